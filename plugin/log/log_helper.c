/*
 * Everybody waits for this thread with an end to it: it may be stuck in a file system, or only short of a processor,
 * and a wait tells the two apart.
 */
#include "log_helper.h"

#include "futex.h"
#include "plugin/format/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLBACKS_MAX 8
#define TICK_NS 1000000000u
#define NICENESS 10
#define STACK_BYTES (1024u * 1024)
#define STARVED_NS 5000000000u /* at most, for a thread of ours that would run if there were a processor */
#define LOOK_NS 20000000u

struct callbacks {
  _Atomic(sl_log_callback *) list[CALLBACKS_MAX];
  atomic_uint count;
};

static struct callbacks ticks, ends;
static int (*do_open)(void);
static bool (*do_work)(void);
static void (*do_tick)(void);
static void (*do_finish)(void);
static atomic_uint wake_word, open_word, stop_word, ended_word, finished_word;
static atomic_uint_fast64_t stop_by_ns;
static atomic_uint helper_tid, finish_tid;

/* Sets the word for good, for whoever waits for it. */
static void announce(atomic_uint *word) {
  atomic_store(word, 1);
  futex_wake(word);
}

/*
 * Whether a thread waits for a processor, and for nothing else: the third word of its stat. A file system that does not
 * answer leaves it asleep.
 */
static bool is_runnable(unsigned tid) {
  char path[64], text[64];
  if (tid == 0)
    return true; /* it has not even begun */
  snprintf(path, sizeof(path), "/proc/self/task/%u/stat", tid);
  /* Not by open: whoever stands in front of that may be what does not answer. */
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  const ssize_t bytes = read(file, text, sizeof(text) - 1);
  close(file);
  text[bytes > 0 ? bytes : 0] = 0;
  const char *name_end = strrchr(text, ')');
  return name_end && strncmp(name_end, ") R", 3) == 0;
}

bool sl_log_helper_is_starved(void) {
  return is_runnable(atomic_load(&helper_tid));
}

/*
 * Whether the thread has announced it by then. On a machine with too much to do that says little of a file system: the
 * wait goes on while the thread is only short of a processor.
 */
static bool wait_until(atomic_uint *word, const atomic_uint *tid, uint64_t until_ns) {
  const uint64_t last_ns = until_ns + STARVED_NS;
  for (;;) {
    const uint64_t now = sl_clock_ns(CLOCK_MONOTONIC);
    if (atomic_load(word) || (now >= until_ns && (now >= last_ns || !is_runnable(atomic_load(tid)))))
      return atomic_load(word) != 0;
    futex_wait(word, 0, now < until_ns ? until_ns - now : LOOK_NS);
  }
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

void sl_log_helper_wake(void) {
  if (atomic_exchange(&wake_word, 1) == 0)
    futex_wake(&wake_word);
}

static void be_nice(void) {
  const id_t tid = (id_t)syscall(SYS_gettid);
  setpriority(PRIO_PROCESS, tid, getpriority(PRIO_PROCESS, tid) + NICENESS);
}

void sl_log_thread_is_ours(void) {
  pthread_setname_np(pthread_self(), "shardledger");
  be_nice();
}

static void *helper_main(void *unused) {
  pthread_setname_np(pthread_self(), "shardledger");
  atomic_store(&helper_tid, (unsigned)syscall(SYS_gettid));
  int r = do_open();
  announce(&open_word);
  if (r < 0)
    goto finish;
  uint64_t next_tick = 0;
  unsigned ticks_done = 0;
  while (!atomic_load(&stop_word)) {
    atomic_store(&wake_word, 0);
    while (do_work() && !atomic_load(&stop_word))
      ;
    uint64_t now = sl_clock_ns(CLOCK_MONOTONIC);
    if (now >= next_tick) {
      do_tick();
      callbacks_call(&ticks);
      if (ticks_done++ == 1) /* not in the first second: threads of the host wait for their first segments */
        be_nice();
      next_tick = now + TICK_NS;
    } else {
      futex_wait(&wake_word, 0, next_tick - now);
    }
  }
  callbacks_call(&ends);
  do_tick();
  while (sl_clock_ns(CLOCK_MONOTONIC) < atomic_load(&stop_by_ns) && do_work())
    ;

finish:
  announce(&ended_word);
  return NULL;
}

int sl_log_thread_start(void *(*body)(void *)) {
  sigset_t all, before;
  pthread_attr_t attributes;
  pthread_t thread;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int r = -pthread_create(&thread, &attributes, body, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return r;
}

int sl_log_helper_start(int (*open)(void), bool (*work)(void), void (*tick)(void)) {
  do_open = open;
  do_work = work;
  do_tick = tick;
  return sl_log_thread_start(helper_main);
}

bool sl_log_helper_wait_for_open(unsigned ms) {
  return wait_until(&open_word, &helper_tid, sl_clock_ns(CLOCK_MONOTONIC) + ms * UINT64_C(1000000));
}

bool sl_log_helper_stop(uint64_t until_ns) {
  atomic_store(&stop_by_ns, until_ns);
  atomic_store(&stop_word, 1);
  sl_log_helper_wake();
  return wait_until(&ended_word, &helper_tid, until_ns);
}

static void *finish_main(void *unused) {
  pthread_setname_np(pthread_self(), "shardledger");
  atomic_store(&finish_tid, (unsigned)syscall(SYS_gettid));
  do_finish();
  announce(&finished_word);
  return NULL;
}

void sl_log_helper_finish(void (*function)(void), uint64_t until_ns) {
  do_finish = function;
  if (sl_log_thread_start(finish_main) == 0)
    wait_until(&finished_word, &finish_tid, until_ns);
}
