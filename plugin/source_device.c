/*
 * Capture source device: how much of the device is in use by everybody, who they are, and which device it is.
 *
 * At the allocator's first segment and at step ends the driver is asked, on the thread that does that: such a sample is
 * in step with the allocator's events. Never in a callback of CUPTI or NVTX, where the driver may hold its locks. All
 * the time NVML is asked, on a thread of its own (device_sampler.h).
 */
#include "device_sampler.h"
#include "driver_api.h"
#include "event_log.h"
#include "format/clock.h"
#include "shardledger.h"
#include "source.h"

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

static void define_device(const struct sl_driver *driver, CUdevice device) {
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

bool sl_source_device_describe(int device, char uuid_text[SL_UUID_CHARS], uint64_t *total_bytes) {
  const struct sl_driver *driver = sl_driver_load();
  CUuuid uuid;
  size_t total;
  if (!driver || driver->device_get_uuid(&uuid, device) != CUDA_SUCCESS ||
      driver->device_total_mem(&total, device) != CUDA_SUCCESS)
    return false;
  define_device(driver, device);
  uuid_write(&uuid, uuid_text);
  *total_bytes = total;
  return true;
}

/* A sample asks the driver, which takes some time: too much for every step where nothing changes. */
static atomic_uint changes, changes_sampled;
static atomic_uint_fast64_t sampled_ns;

void sl_source_device_changed(void) {
  atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed);
}

bool sl_source_device_is_due(void) {
  return atomic_load_explicit(&changes, memory_order_relaxed) != atomic_load(&changes_sampled) ||
         sl_clock_ns(CLOCK_MONOTONIC) - atomic_load(&sampled_ns) >= 1000000000u;
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
  sl_device_sampler_add((uint32_t)device);
  /* Before the driver is asked: what changes meanwhile is for the next sample. */
  atomic_store(&changes_sampled, atomic_load_explicit(&changes, memory_order_relaxed));
  atomic_store(&sampled_ns, sl_clock_ns(CLOCK_MONOTONIC));
  if (driver->mem_get_info(&free_bytes, &total_bytes) != CUDA_SUCCESS)
    return;
  struct sl_event_device_sample event = {
      .total_bytes = total_bytes, .free_bytes = free_bytes, .device = (uint32_t)device};
  sl_log_append(SL_EVENT_device_sample, &event, sizeof(event), NULL, 0);
}

static int start(void) {
  sl_device_sampler_load();
  return 0;
}

const struct sl_source sl_source_device = {
    .name = "device", .start = start, .tick = sl_device_sampler_tick, .stop = sl_device_sampler_stop};
