/*
 * What the plugin keeps for each thread. Behind a key and not thread-local storage: in a library that is loaded late,
 * the C library allocates that at its first use, in a signal handler too, and ends the process when memory is short.
 */
#ifndef SHARDLEDGER_THREAD_STATE_H
#define SHARDLEDGER_THREAD_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SL_THREAD_LEVELS 256u

/* Zero when the thread begins. */
struct sl_thread {
  bool inside_cupti;                 /* it runs a callback of CUPTI */
  uint32_t levels[SL_THREAD_LEVELS]; /* open push/pop ranges, by NVTX domain */
};

extern __attribute__((visibility("hidden"))) pthread_key_t sl_thread_key;
struct sl_thread *sl_thread_begin(void);

/* The calling thread's; NULL when memory is short. Takes a lock at the thread's first call only. */
static inline struct sl_thread *sl_thread(void) {
  struct sl_thread *thread = (struct sl_thread *)pthread_getspecific(sl_thread_key); /* C++ reads this too */
  return __builtin_expect(thread != 0, 1) ? thread : sl_thread_begin();
}

#endif
