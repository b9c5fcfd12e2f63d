/*
 * Threads' places in the log: one chain of segments each, with a record at a time put behind the last one. What is
 * inline here runs for every event.
 */
#ifndef SHARDLEDGER_LOG_CHAIN_H
#define SHARDLEDGER_LOG_CHAIN_H

#include "plugin/format/events.h"
#include "plugin/format/record_check.h"
#include "segment_pool.h"
#include "thread_data.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define HEADER_BYTES sizeof(struct sl_record_header)
#define WORDS_MAX 255u
/* Room for what may have to go before an event: a time base and a gap. */
#define PRELUDE_BYTES (2 * HEADER_BYTES + sizeof(struct sl_event_time_base) + sizeof(struct sl_event_gap))

/*
 * A thread's place in the log. Made once, never freed: a late event may still look at it. When its thread ends, the
 * next new thread goes on in it, also in its segment: threads that live for a few events cost a few bytes each.
 */
struct chain {
  /*
   * Where the next record goes; both NULL without a segment. The helper thread may set `end` to NULL too: then the
   * thread looks for another segment at its next event.
   */
  char *cursor, *end;
  uint64_t base_ns; /* what delta_ns counts from */
  struct sl_segment *segment;
  uint32_t ordinal, sequence;  /* of its segments: the ordinal is that of its first thread */
  uint32_t thread, thread_tid; /* whose it is now, or was last */
  /*
   * Set while its thread writes. The thread sets it, then looks at `off`; sl_log_end sets `off`, makes every thread's
   * stores visible (membarrier), then waits for busy: so the thread needs no fence. It also turns away events from
   * a signal handler that interrupts an append. A handler that jumps out of one (longjmp) leaves it set: nothing tells
   * an append that will go on from one that won't, so what follows on that thread is counted as lost.
   */
  atomic_bool busy;
  atomic_bool owned;
  bool is_left;              /* it has a segment that no thread has gone on in since the last tick */
  bool is_new;               /* its thread has recorded nothing yet */
  bool is_at_rest;           /* at the end: nobody writes to it any more */
  atomic_uint_fast32_t lost; /* since the last gap record, */
  atomic_bool lost_at_limit; /* some of them for the size limit, though there may be room by now */
  struct chain *next;
  struct sl_thread state; /* its thread's */
};

static inline struct chain *sl_chain_of(struct sl_thread *thread) {
  return (struct chain *)((char *)thread - offsetof(struct chain, state));
}

static inline struct chain *sl_chain_mine(void) {
  struct sl_thread *thread = pthread_getspecific(sl_thread_key);
  return LIKELY(thread) ? sl_chain_of(thread) : NULL;
}

/* Writes one record at the cursor; the caller has made sure of the room. The commit word goes last. */
static inline void sl_chain_put(struct chain *chain, uint64_t now, enum sl_event_type type, const void *fields,
                                size_t bytes, const void *tail, size_t tail_bytes) {
  size_t payload = bytes + ((tail_bytes + 7) & ~(size_t)7);
  uint64_t words = (HEADER_BYTES + payload) / 8;
  char *at = chain->cursor;
  memcpy(at + HEADER_BYTES, fields, bytes);
  if (tail_bytes)
    memcpy(at + HEADER_BYTES + bytes, tail, tail_bytes); /* The padding is zero already: segments come zeroed. */
  uint64_t delta = now - chain->base_ns;
  uint64_t check = sl_record_check(type, words, delta, tail_bytes ? at + HEADER_BYTES : fields, payload);
  uint64_t commit = (uint64_t)type | words << 8 | check << 16 | delta << 32;
  chain->cursor = at + HEADER_BYTES + payload;
  __atomic_store_n((uint64_t *)(void *)at, commit, __ATOMIC_RELEASE);
}

/* As put, after a time base where the delta would not fit, also because the clock went back. */
static inline void sl_chain_put_timed(struct chain *chain, uint64_t now, enum sl_event_type type, const void *fields,
                                      size_t bytes, const void *tail, size_t tail_bytes) {
  if (UNLIKELY(now - chain->base_ns > UINT32_MAX)) {
    const struct sl_event_time_base base = {now};
    chain->base_ns = now;
    sl_chain_put(chain, now, SL_EVENT_time_base, &base, sizeof(base), NULL, 0);
  }
  sl_chain_put(chain, now, type, fields, bytes, tail, tail_bytes);
}

/* Tells that the chain is another thread's than the one it is named after. There is room. */
void sl_chain_put_thread(struct chain *chain, uint64_t now);

/* Bytes that the chain's segment has left; less than none when it is to go on in another. */
static inline intptr_t sl_chain_room(const struct chain *chain) {
  return (intptr_t)((uintptr_t)__atomic_load_n(&chain->end, __ATOMIC_RELAXED) - (uintptr_t)chain->cursor);
}

static inline void sl_chain_set_end(struct chain *chain, char *end) {
  __atomic_store_n(&chain->end, end, __ATOMIC_RELAXED);
}

static inline bool sl_chain_lose(struct chain *chain, enum sl_event_type type) {
  if (type != SL_EVENT_allocator)
    atomic_fetch_add_explicit(&chain->lost, 1, memory_order_relaxed);
  return false;
}

/* Gives the chain its next segment. `segment` is taken over; NULL leaves it without one. */
void sl_chain_continue(struct chain *chain, struct sl_segment *segment, uint64_t now);

/* A stopgap that the helper thread wants given up does for a while longer. */
bool sl_chain_stays(struct chain *chain, intptr_t need);

/* Whether the chain was nobody's, and is the caller's now; and gives it back. */
bool sl_chain_take(struct chain *chain);
void sl_chain_give_up(struct chain *chain);

/* Of the calling thread's own: the helper thread looks at some of it, and may end the segment. */
void sl_chain_copy(struct chain *to, struct chain *from);

#endif
