/*
 * The little of NVML that the plugin asks: how much of a device is free, and which processes hold how much of it.
 * Looked up at run time; a machine without it loses only this. Any call may hang in the driver, and the first ones take
 * milliseconds: all but sl_nvml_load are for the sampling thread alone (device_sampler.h).
 */
#ifndef SHARDLEDGER_NVML_H
#define SHARDLEDGER_NVML_H

#include <stdint.h>

struct sl_nvml_memory {
  uint64_t own_bytes;   /* of this process */
  uint64_t other_bytes; /* of all others */
  uint32_t others;      /* how many they are */
};

/* Looks the library up, and calls nothing in it. Once, before the other functions. 0, or -ENOENT: no NVML here. */
int sl_nvml_load(void);

/* The device with this UUID, without its prefix ("xxxxxxxx-…"), for the calls below. 0 or -EIO: NVML refused. */
int sl_nvml_device(const char *uuid, void **out);

/* Bytes of the device that nobody holds. 0 or -EIO. */
int sl_nvml_free_bytes(void *device, uint64_t *out);

/*
 * What the processes hold. -EIO: NVML refused; -ESRCH: it does not list this process, so that nobody can tell which of
 * the others is this one.
 */
int sl_nvml_process_memory(void *device, struct sl_nvml_memory *out);

#endif
