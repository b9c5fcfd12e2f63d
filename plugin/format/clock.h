/* The clocks of records, and of those who wait: nanoseconds. */
#ifndef SHARDLEDGER_CLOCK_H
#define SHARDLEDGER_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t sl_clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC in milliseconds, as poll counts. */
static inline int64_t sl_clock_ms(void) {
  return (int64_t)(sl_clock_ns(CLOCK_MONOTONIC) / 1000000);
}

#endif
