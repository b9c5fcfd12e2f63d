/* Which device it is: asked of the driver, written once. */
#include "device_description.h"

#include "plugin/log/event_log.h"
#include "plugin/shardledger.h"

#include <stdatomic.h>
#include <stdio.h>

#define DEVICES SL_DEVICES_MAX

static _Atomic bool defined[DEVICES];

/* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi prints it behind "GPU-". */
static void uuid_write(const CUuuid *uuid, char text[SL_UUID_CHARS]) {
  const unsigned char *b = (const unsigned char *)uuid->bytes;
  snprintf(text, SL_UUID_CHARS, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
           b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

void sl_device_define(const struct sl_driver *driver, CUdevice device) {
  if ((unsigned)device >= DEVICES || atomic_exchange(&defined[device], true))
    return;
  char name[256] = "", uuid_text[SL_UUID_CHARS + 4] = "GPU-";
  CUuuid uuid;
  size_t total = 0;
  struct sl_event_device event = {.id = (uint32_t)device};
  if (driver->device_get_name(name, sizeof(name), device) == CUDA_SUCCESS)
    event.name = sl_log_name(name);
  if (driver->device_get_uuid(&uuid, device) == CUDA_SUCCESS) {
    uuid_write(&uuid, uuid_text + 4);
    event.uuid = sl_log_name(uuid_text);
  }
  if (driver->device_total_mem(&total, device) == CUDA_SUCCESS)
    event.total_bytes = total;
  sl_log_define(SL_EVENT_device, &event, sizeof(event), NULL, 0);
}

bool sl_device_describe(int device, char uuid_text[SL_UUID_CHARS], uint64_t *total_bytes) {
  const struct sl_driver *driver = sl_driver_load();
  CUuuid uuid;
  size_t total;
  if (!driver || driver->device_get_uuid(&uuid, device) != CUDA_SUCCESS ||
      driver->device_total_mem(&total, device) != CUDA_SUCCESS)
    return false;
  sl_device_define(driver, device);
  uuid_write(&uuid, uuid_text);
  *total_bytes = total;
  return true;
}
