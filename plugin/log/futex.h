/* Waiting for another thread of this process, for a limited time. No lock, no cancellation point. */
#ifndef SHARDLEDGER_FUTEX_H
#define SHARDLEDGER_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* While the word is as expected. Relative, so that a step of the wall clock can't stall the thread. */
static inline void futex_wait(atomic_uint *word, unsigned expected, uint64_t ns) {
  const struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &timeout, NULL, 0);
}

static inline void futex_wake(atomic_uint *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
