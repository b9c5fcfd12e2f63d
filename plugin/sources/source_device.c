/*
 * Capture source device: how much of the device is in use by everybody, and who they are.
 *
 * At the allocator's first segment and at step ends the driver is asked, on the thread that does that: such a sample is
 * in step with the allocator's events. Never in a callback of CUPTI or NVTX, where the driver may hold its locks. All
 * the time NVML is asked, on a thread of its own (device_sampler.h).
 */
#include "device_description.h"
#include "device_sampler.h"
#include "plugin/driver/driver_api.h"
#include "plugin/format/clock.h"
#include "plugin/log/event_log.h"
#include "plugin/log/futex.h"
#include "plugin/shardledger.h"
#include "source.h"

#include <stdatomic.h>

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
  sl_device_define(driver, device);
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
