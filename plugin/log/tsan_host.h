/*
 * A program under ThreadSanitizer sees our calls of memcpy and mmap, but not the atomics of a library that was built
 * without it, and would report races where there are none. These tell it what a handover orders. Elsewhere they are
 * nothing.
 */
#ifndef SHARDLEDGER_TSAN_HOST_H
#define SHARDLEDGER_TSAN_HOST_H

extern void __tsan_acquire(void *) __attribute__((weak));
extern void __tsan_release(void *) __attribute__((weak));

/* Before the atomic store that hands it over, and after the load that takes it. */
static inline void sl_tsan_release(void *handed_over) {
  if (__tsan_release)
    __tsan_release(handed_over);
}

static inline void sl_tsan_acquire(void *taken) {
  if (__tsan_acquire)
    __tsan_acquire(taken);
}

#endif
