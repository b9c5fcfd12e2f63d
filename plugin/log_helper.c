#include "log_helper.h"

#include "event_log.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLBACKS_MAX 8
#define TICK_NS 1000000000u
#define NICENESS 10
#define STACK_BYTES (1024u * 1024)

struct callbacks {
  _Atomic(sl_log_callback *) list[CALLBACKS_MAX];
  atomic_uint count;
};

static struct callbacks ticks, ends;
static _Atomic(sl_log_cupti_clock *) cupti_clock;
static bool (*do_work)(void);
static atomic_uint wake_word, stop_word, ended_word;
static atomic_uint_fast64_t stop_by_ns;

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Relative, so that a step of the wall clock can't stall the thread. */
static void futex_wait(atomic_uint *word, unsigned expected, uint64_t ns) {
  const struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &timeout, NULL, 0);
}

static void futex_wake(atomic_uint *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void callbacks_add(struct callbacks *callbacks, sl_log_callback *callback) {
  unsigned at = atomic_fetch_add(&callbacks->count, 1);
  if (at < CALLBACKS_MAX)
    atomic_store(&callbacks->list[at], callback);
}

static void callbacks_call(struct callbacks *callbacks) {
  for (int i = 0; i < CALLBACKS_MAX; i++) {
    sl_log_callback *callback = atomic_load(&callbacks->list[i]);
    if (callback)
      callback();
  }
}

void sl_log_on_tick(sl_log_callback *tick) {
  callbacks_add(&ticks, tick);
}

void sl_log_on_end(sl_log_callback *end) {
  callbacks_add(&ends, end);
}

void sl_log_set_cupti_clock(sl_log_cupti_clock *clock) {
  atomic_store(&cupti_clock, clock);
}

void sl_log_helper_wake(void) {
  if (atomic_exchange(&wake_word, 1) == 0)
    futex_wake(&wake_word);
}

static void record_clocks(void) {
  sl_log_cupti_clock *cupti = atomic_load(&cupti_clock);
  struct sl_event_clock clock = {.monotonic_ns = clock_ns(CLOCK_MONOTONIC), .cupti_ns = cupti ? cupti() : 0};
  clock.realtime_ns = clock_ns(CLOCK_REALTIME);
  sl_log_append(SL_EVENT_clock, &clock, sizeof(clock), NULL, 0);
}

static void *helper_main(void *unused) {
  pthread_setname_np(pthread_self(), "shardledger");
  const id_t tid = (id_t)syscall(SYS_gettid);
  setpriority(PRIO_PROCESS, tid, getpriority(PRIO_PROCESS, tid) + NICENESS);
  uint64_t next_tick = 0;
  while (!atomic_load(&stop_word)) {
    atomic_store(&wake_word, 0);
    while (do_work() && !atomic_load(&stop_word))
      ;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now >= next_tick) {
      record_clocks();
      callbacks_call(&ticks);
      next_tick = now + TICK_NS;
    } else {
      futex_wait(&wake_word, 0, next_tick - now);
    }
  }
  callbacks_call(&ends);
  record_clocks();
  while (clock_ns(CLOCK_MONOTONIC) < atomic_load(&stop_by_ns) && do_work())
    ;
  atomic_store(&ended_word, 1);
  futex_wake(&ended_word);
  return NULL;
}

int sl_log_helper_start(bool (*work)(void)) {
  sigset_t all, before;
  pthread_attr_t attributes;
  pthread_t thread;
  do_work = work;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int r = -pthread_create(&thread, &attributes, helper_main, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (r < 0)
    atomic_store(&ended_word, 1);
  return r;
}

bool sl_log_helper_stop(unsigned deadline_ms) {
  const uint64_t until = clock_ns(CLOCK_MONOTONIC) + (uint64_t)deadline_ms * 1000000u;
  atomic_store(&stop_by_ns, until);
  atomic_store(&stop_word, 1);
  sl_log_helper_wake();
  for (;;) {
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (atomic_load(&ended_word) || now >= until)
      break;
    futex_wait(&ended_word, 0, until - now);
  }
  return atomic_load(&ended_word) != 0;
}
