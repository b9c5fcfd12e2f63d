/* The calling thread, as the plugin knows it: from its first event on. */
#ifndef SHARDLEDGER_THREAD_STATE_H
#define SHARDLEDGER_THREAD_STATE_H

#include "thread_data.h"

/* Makes what the plugin keeps for the calling thread, which has nothing yet. NULL: memory is short. */
struct sl_thread *sl_thread_begin(void);

/* The calling thread's; NULL when memory is short. Takes a lock at the thread's first call only. */
static inline struct sl_thread *sl_thread(void) {
  struct sl_thread *thread = (struct sl_thread *)pthread_getspecific(sl_thread_key); /* C++ reads this too */
  return __builtin_expect(thread != 0, 1) ? thread : sl_thread_begin();
}

/* Kernel thread id of the caller, cached. */
uint32_t sl_log_tid(void);

/* Reads options, and is ready for threads and forks; makes nothing yet. Safe to call more than once. */
void sl_log_init(void);

/* ---- for the log's own parts ---- */

struct chain *sl_thread_enter(void); /* the chain behind sl_thread_begin */

/* On the helper thread, every second: a segment that no thread went on in is sealed like a full one. */
void sl_threads_retire_left(void);

#endif
