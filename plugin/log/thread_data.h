/*
 * What the plugin keeps for each thread. Behind a key and not thread-local storage: in a library that is loaded late,
 * the C library allocates that at its first use, in a signal handler too, and ends the process when memory is short.
 */
#ifndef SHARDLEDGER_THREAD_DATA_H
#define SHARDLEDGER_THREAD_DATA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SL_THREAD_LEVELS 256u

/* Zero when the thread begins. */
struct sl_thread {
  bool inside_cupti;                 /* it runs a callback of CUPTI */
  uint32_t levels[SL_THREAD_LEVELS]; /* open push/pop ranges, by NVTX domain */
};

extern __attribute__((visibility("hidden"))) pthread_key_t sl_thread_key; /* until it is made, no thread has anything */

#endif
