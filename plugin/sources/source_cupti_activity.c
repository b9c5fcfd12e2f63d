/*
 * Capture source cupti_activity: when kernels, copies and memsets ran on the device.
 *
 * CUPTI fills buffers that we hand out and returns them when they are full or flushed; their records are copied into
 * the log then, names included, because the buffers' pointers do not outlive it. Times are CUPTI's, unchanged.
 *
 * Whoever calls into CUPTI to change or flush something owns the source for that time (enum state), so that a flush of
 * the helper thread and a hand-over to torch.profiler never meet. That is a token, not a lock: nobody waits inside
 * CUPTI's callbacks, which CUPTI may run on any thread during a flush.
 */
#include "plugin/format/clock.h"
#include "plugin/log/event_log.h"
#include "plugin/process/config.h"
#include "plugin/shardledger.h"
#include "source.h"
#include "source_cupti.h"
#include "step_window.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NAME "cupti_activity"

/* ---- buffers ---- */

#define BUFFER_BYTES (512u * 1024u) /* of host memory; CUPTI takes about one per thread that calls CUDA */
#define BUFFERS 1024u

/*
 * The buffers that CUPTI has now. One that comes back and is not among them belongs to another tool (both tools'
 * callbacks get mixed up when one registers while the other has buffers out) and is left alone.
 */
static _Atomic(uint8_t *) buffers[BUFFERS];

/* For when memory is short: older CUPTI crashes when it gets no buffer. Untouched until then, and zero. */
#define RESERVES 4u
#define RESERVE_BYTES (32u * 1024u)
static _Alignas(64) uint8_t reserves[RESERVES][RESERVE_BYTES];
static atomic_flag reserve_used[RESERVES] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};

static bool exchange_buffer(uint8_t *from, uint8_t *to) {
  for (unsigned i = 0; i < BUFFERS; i++) {
    uint8_t *expected = from;
    if (atomic_load_explicit(&buffers[i], memory_order_relaxed) == from &&
        atomic_compare_exchange_strong(&buffers[i], &expected, to))
      return true;
  }
  return false;
}

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records) {
  *max_records = 0; /* as many as fit */
  uint8_t *fresh = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh != MAP_FAILED) {
    if (exchange_buffer(NULL, fresh)) {
      *buffer = fresh;
      *size = BUFFER_BYTES;
      return;
    }
    munmap(fresh, BUFFER_BYTES);
  }
  for (unsigned i = 0; i < RESERVES; i++) {
    if (!atomic_flag_test_and_set(&reserve_used[i])) {
      *buffer = reserves[i];
      *size = RESERVE_BYTES;
      return;
    }
  }
  *buffer = NULL; /* CUPTI drops records, and counts them */
  *size = 0;
}

/* Takes a buffer back, once its records are copied. */
static void buffer_free(uint8_t *buffer) {
  uintptr_t offset = (uintptr_t)buffer - (uintptr_t)reserves;
  if (offset < sizeof(reserves)) {
    memset(buffer, 0, RESERVE_BYTES); /* CUPTI is told that buffers come zeroed */
    atomic_flag_clear(&reserve_used[offset / RESERVE_BYTES]);
  } else if (exchange_buffer(buffer, NULL)) {
    munmap(buffer, BUFFER_BYTES);
  }
}

/* ---- records ---- */

/*
 * Each record is read as the oldest struct that has the fields we want: every newer one starts with the same fields
 * (checked below for the newest). So one binary reads CUDA 12 and 13.
 */
typedef CUpti_ActivityKernel4 kernel_record;
typedef CUpti_ActivityMemcpy memcpy_record;
typedef CUpti_ActivityMemcpyPtoP peer_memcpy_record;
typedef CUpti_ActivityMemset memset_record;

/*
 * PyTorch's profiler gives CUPTI a clock of its own, the processor's counter, and leaves it there when it has ended.
 * The records that follow are brought back to CLOCK_REALTIME, by the pair of clocks at the hand-over and that of now.
 */
static struct {
  bool foreign;
  uint64_t real_ns, cupti; /* one instant, when activity was taken back */
  double rate;             /* nanoseconds a tick since then, as of the buffer that is being read */
} device_clock;

static uint64_t host_ns(uint64_t time) {
  if (!device_clock.foreign || time == 0)
    return time;
  return device_clock.real_ns + (uint64_t)(int64_t)((double)(int64_t)(time - device_clock.cupti) * device_clock.rate);
}

static bool keep_all_kernels; /* else those of NCCL; set before anything is enabled */

static void kernel(const void *record) {
  const kernel_record *k = record;
  if (!keep_all_kernels && !(k->name && strstr(k->name, "nccl")))
    return;
  struct sl_event_kernel event = {.start_ns = host_ns(k->start),
                                  .end_ns = host_ns(k->end),
                                  .name = sl_log_name(k->name),
                                  .correlation = k->correlationId,
                                  .stream = k->streamId,
                                  .device = (uint16_t)k->deviceId,
                                  .context = (uint16_t)k->contextId};
  sl_log_append(SL_EVENT_kernel, &event, sizeof(event), NULL, 0);
}

/* Copies between devices have further fields before the correlation id; up to the stream both structs are the same. */
static void append_copy(const memcpy_record *c, uint32_t correlation) {
  struct sl_event_memory_copy event = {.start_ns = host_ns(c->start),
                                       .end_ns = host_ns(c->end),
                                       .bytes = c->bytes,
                                       .correlation = correlation,
                                       .stream = c->streamId,
                                       .device = (uint16_t)c->deviceId,
                                       .kind = c->copyKind,
                                       .source = c->srcKind,
                                       .destination = c->dstKind};
  sl_log_append(SL_EVENT_memory_copy, &event, sizeof(event), NULL, 0);
}

static void copy(const void *record) {
  append_copy(record, ((const memcpy_record *)record)->correlationId);
}

static void peer_copy(const void *record) {
  append_copy(record, ((const peer_memcpy_record *)record)->correlationId);
}

static void set(const void *record) {
  const memset_record *s = record;
  struct sl_event_memory_set event = {.start_ns = host_ns(s->start),
                                      .end_ns = host_ns(s->end),
                                      .bytes = s->bytes,
                                      .correlation = s->correlationId,
                                      .stream = s->streamId,
                                      .device = (uint16_t)s->deviceId,
                                      .value = (uint16_t)s->value};
  sl_log_append(SL_EVENT_memory_set, &event, sizeof(event), NULL, 0);
}

#define SAME_PLACE(older, newer, field)                                                                                \
  _Static_assert(offsetof(older, field) == offsetof(newer, field) &&                                                   \
                     sizeof(((older *)0)->field) == sizeof(((newer *)0)->field),                                       \
                 #field " moved")
SAME_PLACE(kernel_record, CUpti_ActivityKernel9, start);
SAME_PLACE(kernel_record, CUpti_ActivityKernel9, correlationId);
SAME_PLACE(kernel_record, CUpti_ActivityKernel9, name);
SAME_PLACE(memcpy_record, CUpti_ActivityMemcpy5, correlationId);
SAME_PLACE(memcpy_record, peer_memcpy_record, streamId);
SAME_PLACE(peer_memcpy_record, CUpti_ActivityMemcpyPtoP4, correlationId);
SAME_PLACE(memset_record, CUpti_ActivityMemset4, correlationId);

/* The kinds that are recorded, in the order of enabling. */
static const struct kind {
  CUpti_ActivityKind kind;
  uint16_t bytes; /* of the struct that is read */
  enum {
    TIMES,   /* device times: in the steps of SHARDLEDGER_STEPS */
    KERNELS, /* likewise; left out with SHARDLEDGER_KERNELS=none */
  } when;
  void (*read)(const void *record);
} kinds[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof(kernel_record), KERNELS, kernel},
    {CUPTI_ACTIVITY_KIND_MEMCPY, sizeof(memcpy_record), TIMES, copy},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, sizeof(peer_memcpy_record), TIMES, peer_copy},
    {CUPTI_ACTIVITY_KIND_MEMSET, sizeof(memset_record), TIMES, set},
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

static const struct sl_cupti *cupti; /* set before anything is registered, never changed after */

/* One instant by both clocks: the closest of several readings, since the processor can be taken away within one. */
static bool both_clocks(uint64_t *real_ns, uint64_t *ticks) {
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < 5; i++) {
    uint64_t before = sl_clock_ns(CLOCK_REALTIME), counted = 0;
    if (cupti->GetTimestamp(&counted) != CUPTI_SUCCESS)
      return false;
    uint64_t took = sl_clock_ns(CLOCK_REALTIME) - before;
    if (took >= closest)
      continue;
    closest = took;
    *real_ns = before + took / 2;
    *ticks = counted;
  }
  return true;
}

/* Whether CUPTI still counts in CLOCK_REALTIME; it agrees within a microsecond when it does. */
static void device_clock_anchor(void) {
  uint64_t now = 0, ticks = 0;
  device_clock.foreign =
      cupti->GetTimestamp && both_clocks(&now, &ticks) && (ticks > now ? ticks - now : now - ticks) > 1000000000u;
  device_clock.real_ns = now;
  device_clock.cupti = ticks;
}

static void device_clock_update(void) {
  uint64_t now = 0, ticks = 0;
  if (!device_clock.foreign || !both_clocks(&now, &ticks) || ticks <= device_clock.cupti)
    return;
  device_clock.rate = (double)(now - device_clock.real_ns) / (double)(ticks - device_clock.cupti);
}

static void read_buffer(uint8_t *buffer, size_t valid) {
  device_clock_update();
  CUpti_Activity *record = NULL;
  CUptiResult result;
  while ((result = cupti->ActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS && record) {
    size_t left = (size_t)(buffer + valid - (uint8_t *)record);
    for (size_t i = 0; i < KINDS; i++) {
      if (kinds[i].kind != record->kind)
        continue;
      if (kinds[i].bytes > left) {
        sl_log_gap(NAME, "a buffer ended inside a record", 1);
        return;
      }
      kinds[i].read(record);
    }
  }
  if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_MAX_LIMIT_REACHED) /* the latter is the buffer's end */
    sl_log_gap(NAME, sl_cupti_result(cupti, result), 0);
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  if (!buffer)
    return;
  if (sl_log_active()) {
    if (valid > 0 && valid <= size)
      read_buffer(buffer, valid);
    size_t dropped = 0;
    if (cupti->ActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS && dropped > 0)
      sl_log_gap(NAME, "CUPTI had no buffer for its records", dropped);
  }
  buffer_free(buffer);
}

/* ---- starting, flushing, handing over ---- */

enum state {
  OFF,       /* never started, failed, or ended: for good */
  RECORDING, /* kinds are enabled */
  RELEASED,  /* handed to another tool */
  BUSY,      /* somebody is calling CUPTI and will set the next state */
};

static _Atomic int state = OFF;
static pid_t owner; /* process that started it: CUPTI must not be called in a forked child */

static bool take(enum state from) {
  int expected = from;
  return atomic_compare_exchange_strong(&state, &expected, BUSY);
}

static void give(enum state to) {
  atomic_store(&state, to);
}

/* Takes the source from a state, waiting for whoever has it, at most about two seconds. */
static bool take_waiting(enum state from) {
  for (int i = 0; i < 2000; i++) {
    if (take(from))
      return true;
    if (atomic_load(&state) != BUSY)
      return false;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
  return false;
}

static bool times_on; /* the kinds of device times are enabled; for the owner of the source */

static bool is_wanted(const struct kind *kind) {
  if (kind->when == KERNELS && strcmp(sl_option_text(SL_OPTION_kernels), "none") == 0)
    return false;
  return times_on;
}

/* The first of so many kinds may be enabled: the undo list. CUPTI doesn't mind one that is not. */
static void disable(size_t enabled) {
  while (enabled-- > 0)
    cupti->ActivityDisable(kinds[enabled].kind);
}

/* Older libraries and some devices lack a kind; the others are worth having all the same. */
static bool is_missing(CUptiResult result) {
  return result == CUPTI_ERROR_INVALID_KIND || result == CUPTI_ERROR_NOT_COMPATIBLE ||
         result == CUPTI_ERROR_NOT_SUPPORTED;
}

static CUptiResult enable(void) {
  times_on = sl_step_window_open();
  CUptiResult result = cupti->ActivityRegisterCallbacks(buffer_requested, buffer_completed);
  for (size_t i = 0; i < KINDS && result == CUPTI_SUCCESS; i++) {
    if (!is_wanted(&kinds[i]))
      continue;
    result = cupti->ActivityEnable(kinds[i].kind);
    if (is_missing(result))
      result = CUPTI_SUCCESS;
    else if (result != CUPTI_SUCCESS)
      disable(i);
  }
  return result;
}

/* Follows the step window. For the owner of the source. What was launched before keeps its time. */
static void times_follow(void) {
  bool open = sl_step_window_open();
  if (times_on == open)
    return;
  times_on = true; /* so that is_wanted speaks of the kinds of times */
  for (size_t i = 0; i < KINDS; i++) {
    if (!is_wanted(&kinds[i]))
      continue;
    CUptiResult result = open ? cupti->ActivityEnable(kinds[i].kind) : cupti->ActivityDisable(kinds[i].kind);
    if (result != CUPTI_SUCCESS && !is_missing(result))
      sl_log_gap(NAME, sl_cupti_result(cupti, result), 0);
  }
  times_on = open;
}

/* Gives the source back recording what is wanted now, also if that changed while nobody else could take it. */
static void give_recording(void) {
  bool followed;
  do {
    times_follow();
    followed = times_on;
    give(RECORDING);
  } while (followed != sl_step_window_open() && take(RECORDING));
}

/*
 * Never waits: whoever has the source now (a flush, a hand-over) follows the window when it gives it back, so that the
 * first kernels of a step may be without times, or the first ones of an untimed step with them.
 */
void sl_source_cupti_times_changed(void) {
  if (cupti && getpid() == owner && take(RECORDING))
    give_recording();
}

static void report_failure(CUptiResult result) {
  char reason[256];
  snprintf(reason, sizeof(reason), "CUPTI refused: %s (%d)", sl_cupti_result(cupti, result), (int)result);
  sl_source_state(NAME, "failed", reason);
  sl_say("device times are not recorded: %s", reason);
}

/*
 * CUPTI keeps device-side times in GPU memory, up to 250 buffers of 3.2 MB by default. A memory tool takes less: these
 * bounds hold some 10,000 kernels between two flushes. They count only before the first context; refusal is harmless.
 */
static void limit_device_memory(void) {
  size_t bytes = sizeof(size_t);
  cupti->ActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &bytes, &(size_t){1024 * 1024});
  bytes = sizeof(size_t);
  cupti->ActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &bytes, &(size_t){16});
  bytes = sizeof(uint8_t);
  cupti->ActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &(uint8_t){1});
}

static void say_on(bool seated) {
  char reason[256];
  const char *times = sl_step_window_words();
  snprintf(reason, sizeof(reason), "%s%s%s%s", seated ? "" : "without callbacks, which another tool keeps",
           !seated && *times ? "; " : "", *times ? "device times " : "", times);
  sl_source_state(NAME, "on", reason);
}

static int start(void) {
  cupti = sl_cupti_seat();
  if (!cupti) {
    sl_source_state(NAME, "off", "CUPTI is not in use: see cupti_callback");
    return -ENODEV;
  }
  owner = getpid();
  keep_all_kernels = strcmp(sl_option_text(SL_OPTION_kernels), "all") == 0;
  limit_device_memory();
  CUptiResult result = enable();
  if (result != CUPTI_SUCCESS) {
    report_failure(result);
    return -EIO;
  }
  give_recording();
  say_on(true);
  return 0;
}

/* Hands what is complete to buffer_completed. A hard error ends the source. */
static void tick(void) {
  if (!take(RECORDING))
    return;
  CUptiResult result = cupti->ActivityFlushAll(0);
  if (result == CUPTI_SUCCESS) {
    give_recording();
    return;
  }
  disable(KINDS);
  give(OFF);
  report_failure(result);
}

/* At the end, unfinished records too: they have no end time, and nobody will finish them. */
static void flush(void) {
  if (!take_waiting(RECORDING))
    return;
  cupti->ActivityFlushAll(0);
  cupti->ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  give_recording();
}

static void stop(void) {
  if (!take_waiting(RECORDING))
    return;
  disable(KINDS);
  give(OFF);
}

int sl_source_cupti_release(void) {
  if (!cupti || getpid() != owner)
    return -ENODEV;
  if (!take_waiting(RECORDING)) {
    switch (atomic_load(&state)) {
    case RELEASED: return 0;
    case OFF: /* only callbacks were left, but they have the seat */
      if (!sl_cupti_seat())
        return -ENODEV;
      sl_cupti_seat_leave(cupti, "another tool uses CUPTI");
      return 0;
    default: return -EBUSY;
    }
  }
  /* No buffer of ours may stay in CUPTI: the other tool would get it, and not know it. */
  cupti->ActivityFlushAll(0);
  disable(KINDS);
  cupti->ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  sl_cupti_seat_leave(cupti, "another tool uses CUPTI");
  give(RELEASED);
  sl_log_gap(NAME, "another tool uses CUPTI", 0);
  sl_source_state(NAME, "off", "another tool uses CUPTI");
  return 0;
}

int sl_source_cupti_reacquire(void) {
  if (!cupti || getpid() != owner)
    return -ENODEV;
  if (!take_waiting(RELEASED)) {
    switch (atomic_load(&state)) {
    case RECORDING: return 0;
    case OFF: return -ENODEV;
    default: return -EBUSY;
    }
  }
  /* torch.profiler keeps the seat for good, but once its session is over activity can be recorded without it. */
  bool seated = sl_cupti_seat_take(cupti) == 0;
  device_clock_anchor();
  CUptiResult result = enable();
  if (result != CUPTI_SUCCESS) {
    sl_cupti_seat_leave(cupti, "activity can't be recorded yet");
    give(RELEASED);
    report_failure(result);
    return -EBUSY;
  }
  give_recording();
  say_on(seated);
  return 0;
}

const struct sl_source sl_source_cupti_activity = {
    .name = NAME, .start = start, .tick = tick, .flush = flush, .stop = stop};
