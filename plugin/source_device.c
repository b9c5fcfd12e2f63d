/*
 * Capture source device: how much of the device is in use by everybody, and which device it is.
 *
 * These are the plugin's only calls of the CUDA driver. They run in sl_device_sample alone, on the thread that asks,
 * never in a callback of CUPTI or NVTX, where the driver may hold its locks.
 */
#include "driver_api.h"
#include "event_log.h"
#include "source.h"

#include <stdatomic.h>
#include <stdio.h>

#define DEVICES 64u

static _Atomic bool defined[DEVICES];

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi prints it. */
static uint32_t uuid_name(const CUuuid *uuid) {
  char text[64];
  const unsigned char *b = (const unsigned char *)uuid->bytes;
  int length =
      snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
               b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return sl_log_name_n(text, (size_t)length);
}

static void define_device(const struct sl_driver *driver, CUdevice device) {
  if ((unsigned)device >= DEVICES || atomic_exchange(&defined[device], true))
    return;
  char name[256] = "";
  CUuuid uuid;
  size_t total = 0;
  struct sl_event_device event = {.id = (uint32_t)device};
  if (driver->device_get_name(name, sizeof(name), device) == CUDA_SUCCESS)
    event.name = sl_log_name(name);
  if (driver->device_get_uuid(&uuid, device) == CUDA_SUCCESS)
    event.uuid = uuid_name(&uuid);
  if (driver->device_total_mem(&total, device) == CUDA_SUCCESS)
    event.total_bytes = total;
  sl_log_define(SL_EVENT_device, &event, sizeof(event), NULL, 0);
}

/*
 * The driver answers for the calling thread's current context only, and making another one current here would be
 * seen by the program. In training each rank has one device, and its main thread has that context.
 */
void sl_source_device_sample(void) {
  const struct sl_driver *driver = sl_log_active() ? sl_driver_load() : NULL;
  CUcontext context = NULL;
  CUdevice device;
  size_t free_bytes, total_bytes;
  if (!driver || driver->ctx_get_current(&context) != CUDA_SUCCESS || !context ||
      driver->ctx_get_device(&device) != CUDA_SUCCESS)
    return;
  define_device(driver, device);
  if (driver->mem_get_info(&free_bytes, &total_bytes) != CUDA_SUCCESS)
    return;
  struct sl_event_device_sample event = {
      .total_bytes = total_bytes, .free_bytes = free_bytes, .device = (uint32_t)device};
  sl_log_append(SL_EVENT_device_sample, &event, sizeof(event), NULL, 0);
}
