/*
 * Capture source device: how much of the device is in use by everybody, who they are, and which device it is.
 *
 * These are the plugin's only calls of the CUDA driver and NVML. They run in sl_device_sample and at the first segment
 * of PyTorch's allocator, on the thread that asks, never in a callback of CUPTI or NVTX, where the driver may hold its
 * locks.
 */
#include "driver_api.h"
#include "event_log.h"
#include "nvml.h"
#include "shardledger.h"
#include "source.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define DEVICES SL_DEVICES_MAX

static _Atomic bool defined[DEVICES];

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi prints it. */
static void uuid_write(const CUuuid *uuid, char text[64]) {
  const unsigned char *b = (const unsigned char *)uuid->bytes;
  snprintf(text, 64, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
           b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static void define_device(const struct sl_driver *driver, CUdevice device) {
  if ((unsigned)device >= DEVICES || atomic_exchange(&defined[device], true))
    return;
  char name[256] = "", uuid_text[64];
  CUuuid uuid;
  size_t total = 0;
  struct sl_event_device event = {.id = (uint32_t)device};
  if (driver->device_get_name(name, sizeof(name), device) == CUDA_SUCCESS)
    event.name = sl_log_name(name);
  if (driver->device_get_uuid(&uuid, device) == CUDA_SUCCESS) {
    uuid_write(&uuid, uuid_text);
    event.uuid = sl_log_name(uuid_text);
  }
  if (driver->device_total_mem(&total, device) == CUDA_SUCCESS)
    event.total_bytes = total;
  sl_log_define(SL_EVENT_device, &event, sizeof(event), NULL, 0);
}

static uint64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A sample asks the driver and NVML, which takes some 100 us: too much for every step where nothing changes. */
static atomic_uint changes, changes_sampled;
static atomic_uint_fast64_t sampled_ns;

void sl_source_device_changed(void) {
  atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed);
}

bool sl_source_device_is_due(void) {
  return atomic_load_explicit(&changes, memory_order_relaxed) != atomic_load(&changes_sampled) ||
         monotonic_ns() - atomic_load(&sampled_ns) >= 1000000000u;
}

/* Samples are rare, so milliseconds don't matter: asked with every one, or where it takes longer with every hundredth.
 * Why it can't be had is said once. */
static void sample_processes(const struct sl_driver *driver, CUdevice device) {
  enum { CHEAP_NS = 2000000, SELDOM = 100 };
  static atomic_uint samples;
  static atomic_bool slow, unavailable, told;
  unsigned number = atomic_fetch_add(&samples, 1);
  CUuuid uuid;
  char text[64];
  if (atomic_load(&unavailable) || (atomic_load(&slow) && number % SELDOM != 0) ||
      driver->device_get_uuid(&uuid, device) != CUDA_SUCCESS)
    return;
  uuid_write(&uuid, text);
  struct sl_nvml_memory memory;
  uint64_t begin = monotonic_ns();
  int r = sl_nvml_process_memory(text, &memory);
  if (number > 0 && monotonic_ns() - begin > CHEAP_NS) /* the first one also loads the library */
    atomic_store(&slow, true);
  if (r < 0) {
    atomic_store(&unavailable, true);
    sl_source_state("nvml", "off",
                    r == -ESRCH
                        ? "NVML does not list this process (it is in another PID namespace, as in containers): what "
                          "other processes hold is not known"
                    : r == -ENOENT ? "no libnvidia-ml.so.1 found"
                                   : "NVML refused");
    return;
  }
  if (!atomic_exchange(&told, true))
    sl_source_state("nvml", "on", "");
  struct sl_event_process_memory event = {.own_bytes = memory.own_bytes,
                                          .other_bytes = memory.other_bytes,
                                          .device = (uint32_t)device,
                                          .others = memory.others};
  sl_log_append(SL_EVENT_process_memory, &event, sizeof(event), NULL, 0);
}

/*
 * The driver answers for the calling thread's current context only, and making another one current here would be
 * seen by the program. In training each rank has one device, and its main thread has that context.
 */
void sl_source_device_sample(bool with_processes) {
  const struct sl_driver *driver = sl_log_active() ? sl_driver_load() : NULL;
  CUcontext context = NULL;
  CUdevice device;
  size_t free_bytes, total_bytes;
  if (!driver || driver->ctx_get_current(&context) != CUDA_SUCCESS || !context ||
      driver->ctx_get_device(&device) != CUDA_SUCCESS)
    return;
  define_device(driver, device);
  /* Before the driver is asked: what changes meanwhile is for the next sample. */
  atomic_store(&changes_sampled, atomic_load_explicit(&changes, memory_order_relaxed));
  atomic_store(&sampled_ns, monotonic_ns());
  if (with_processes)
    sample_processes(driver, device);
  if (driver->mem_get_info(&free_bytes, &total_bytes) != CUDA_SUCCESS)
    return;
  struct sl_event_device_sample event = {
      .total_bytes = total_bytes, .free_bytes = free_bytes, .device = (uint32_t)device};
  sl_log_append(SL_EVENT_device_sample, &event, sizeof(event), NULL, 0);
}
