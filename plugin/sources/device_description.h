/* Which device it is, by the driver: its event in the log, and its uuid for NVML. No context is needed or touched. */
#ifndef SHARDLEDGER_DEVICE_DESCRIPTION_H
#define SHARDLEDGER_DEVICE_DESCRIPTION_H

#include "plugin/driver/driver_api.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_UUID_CHARS 37 /* with its end */

/* Writes the device's event, once in a process. Any thread that may ask the driver. */
void sl_device_define(const struct sl_driver *driver, CUdevice device);

/* Defines the device, and tells its uuid as nvidia-smi prints it behind "GPU-". false: the driver does not know it. */
bool sl_device_describe(int device, char uuid[SL_UUID_CHARS], uint64_t *total_bytes);

#endif
