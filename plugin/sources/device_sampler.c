/* Samples the devices by NVML once a second, on a thread that may hang. */
#include "device_sampler.h"

#include "device_description.h"
#include "plugin/driver/nvml.h"
#include "plugin/format/clock.h"
#include "plugin/log/event_log.h"
#include "plugin/log/futex.h"
#include "plugin/log/log_helper.h"
#include "plugin/shardledger.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { DEVICES = SL_DEVICES_MAX, SELDOM = 10 };
#define UNCHANGED_NS 30000000000u /* a device that does not change is told so often, */
#define SLOW_NS 2000000u          /* and a list of processes that takes so long is asked for with every tenth sample */
#define STOP_NS 100000000u

enum { IDLE, ASKED, BUSY, STOPPED };
static atomic_uint word, ended_word;

static atomic_bool used[DEVICES], any_used;
static bool loaded, started; /* by the helper thread, or before it */

/* The rest is the sampling thread's alone. */
static struct device {
  bool known, failed;
  void *nvml;
  uint64_t total_bytes;
  unsigned samples;
  struct sl_event_device_sample sample; /* as told last, when */
  struct sl_event_process_memory processes;
  uint64_t told_ns;
} devices[DEVICES];
static bool processes_off, processes_slow;

static void processes_end(int r) {
  processes_off = true;
  sl_source_state("nvml", "off",
                  r == -ESRCH ? "NVML does not list this process (it is in another PID namespace, as in containers): "
                                "what other processes hold is not known"
                              : "NVML refused");
}

/* What each process holds, or as it was told last, where it is not asked for. */
static struct sl_event_process_memory processes_ask(struct device *device, uint32_t id) {
  static bool told;
  struct sl_nvml_memory memory;
  if (processes_off || (processes_slow && device->samples % SELDOM != 0))
    return device->processes;
  const uint64_t begin = sl_clock_ns(CLOCK_MONOTONIC);
  int r = sl_nvml_process_memory(device->nvml, &memory);
  processes_slow = sl_clock_ns(CLOCK_MONOTONIC) - begin > SLOW_NS;
  if (r < 0) {
    processes_end(r);
    return device->processes;
  }
  if (!told)
    sl_source_state("nvml", "on", "");
  told = true;
  return (struct sl_event_process_memory){
      .own_bytes = memory.own_bytes, .other_bytes = memory.other_bytes, .device = id, .others = memory.others};
}

static bool device_begin(struct device *device, uint32_t id) {
  char uuid[SL_UUID_CHARS];
  if (device->known || device->failed)
    return device->known;
  device->failed = !sl_device_describe((int)id, uuid, &device->total_bytes);
  if (!device->failed && sl_nvml_device(uuid, &device->nvml) < 0) {
    device->failed = true;
    processes_end(-EIO);
  }
  return device->known = !device->failed;
}

static void device_sample(struct device *device, uint32_t id) {
  uint64_t free_bytes;
  if (!device_begin(device, id))
    return;
  const struct sl_event_process_memory processes = processes_ask(device, id);
  device->samples++;
  if (sl_nvml_free_bytes(device->nvml, &free_bytes) < 0)
    return;
  const uint64_t now = sl_clock_ns(CLOCK_MONOTONIC);
  const bool same_processes = processes.own_bytes == device->processes.own_bytes &&
                              processes.other_bytes == device->processes.other_bytes &&
                              processes.others == device->processes.others;
  if (device->told_ns && free_bytes == device->sample.free_bytes && same_processes &&
      now - device->told_ns < UNCHANGED_NS)
    return;
  device->sample = (struct sl_event_device_sample){
      .total_bytes = device->total_bytes, .free_bytes = free_bytes, .device = id, .by = SL_SAMPLED_BY_NVML};
  device->processes = processes;
  device->told_ns = now;
  if (processes.own_bytes || processes.others)
    sl_log_append(SL_EVENT_process_memory, &processes, sizeof(processes), NULL, 0);
  sl_log_append(SL_EVENT_device_sample, &device->sample, sizeof(device->sample), NULL, 0);
}

static void *sampler_main(void *unused) {
  sl_log_thread_is_ours();
  for (;;) {
    unsigned state = ASKED;
    futex_wait(&word, IDLE, 60000000000u);
    if (atomic_compare_exchange_strong(&word, &state, BUSY)) {
      for (uint32_t id = 0; id < DEVICES; id++)
        if (atomic_load_explicit(&used[id], memory_order_relaxed) && sl_log_active())
          device_sample(&devices[id], id);
      state = BUSY;
      atomic_compare_exchange_strong(&word, &state, IDLE);
    }
    if (state == STOPPED)
      break;
  }
  atomic_store(&ended_word, 1);
  futex_wake(&ended_word);
  return NULL;
}

void sl_device_sampler_load(void) {
  loaded = sl_nvml_load() == 0;
}

void sl_device_sampler_add(uint32_t device) {
  if (device >= DEVICES || atomic_load_explicit(&used[device], memory_order_relaxed))
    return;
  atomic_store(&used[device], true);
  atomic_store(&any_used, true);
}

void sl_device_sampler_tick(void) {
  static bool tried;
  unsigned idle = IDLE;
  if (!atomic_load(&any_used) || !sl_log_active())
    return;
  if (!tried) {
    tried = true;
    if (!loaded)
      sl_source_state("nvml", "off", "no libnvidia-ml.so.1 found");
    started = loaded && sl_log_thread_start(sampler_main) == 0;
  }
  if (started && atomic_compare_exchange_strong(&word, &idle, ASKED))
    futex_wake(&word);
}

void sl_device_sampler_stop(void) {
  if (!started)
    return;
  atomic_store(&word, STOPPED);
  futex_wake(&word);
  const uint64_t until = sl_clock_ns(CLOCK_MONOTONIC) + STOP_NS;
  for (uint64_t now; !atomic_load(&ended_word) && (now = sl_clock_ns(CLOCK_MONOTONIC)) < until;)
    futex_wait(&ended_word, 0, until - now);
}
