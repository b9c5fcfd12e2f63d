/*
 * Stretches of code in which this thread is not interrupted: no signal handler of the host runs on it, no cancellation
 * ends it. A handler that records, forks or jumps away (longjmp) then never meets a lock of ours held or a list half
 * done. For rare paths: it costs two system calls. Only signals of faults stay: those that are blocked would kill.
 */
#ifndef SHARDLEDGER_UNDISTURBED_H
#define SHARDLEDGER_UNDISTURBED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_undisturbed {
  uint64_t signals; /* the kernel's mask as it was: a sigset_t would take 128 bytes of a small signal stack */
  int cancellation;
};

void sl_undisturbed_begin(struct sl_undisturbed *before);
void sl_undisturbed_end(const struct sl_undisturbed *before);

/* pthread_once, undisturbed: a handler that interrupted the first call would wait for itself. */
struct sl_once {
  atomic_bool done;
  pthread_once_t once;
};
#define SL_ONCE_INIT                                                                                                   \
  { false, PTHREAD_ONCE_INIT }

void sl_once_first(struct sl_once *once, void (*function)(void));

static inline void sl_once(struct sl_once *once, void (*function)(void)) {
  if (!atomic_load_explicit(&once->done, memory_order_acquire))
    sl_once_first(once, function);
}

#endif
