/* Which segment a chain is in, and whose chain it is: what does not happen for every event. */
#include "log_chain.h"

#include "tsan_host.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

void sl_chain_put_thread(struct chain *chain, uint64_t now) {
  const struct sl_event_thread thread = {chain->thread, chain->thread_tid};
  sl_chain_put_timed(chain, now, SL_EVENT_thread, &thread, sizeof(thread), NULL, 0);
}

void sl_chain_continue(struct chain *chain, struct sl_segment *segment, uint64_t now) {
  struct sl_segment *before = chain->segment;
  __atomic_store_n(&chain->segment, segment, __ATOMIC_RELEASE);
  if (before)
    sl_pool_retire(before, (uint32_t)(chain->cursor - (char *)before->map));
  chain->cursor = NULL;
  sl_chain_set_end(chain, NULL);
  if (!segment)
    return;
  struct sl_segment_header *header = segment->map;
  header->thread = chain->ordinal;
  header->sequence = chain->sequence++;
  header->tid = chain->thread_tid;
  header->base_ns = now;
  uint64_t check = XXH3_64bits(header, offsetof(struct sl_segment_header, check));
  __atomic_store_n(&header->check, check, __ATOMIC_RELEASE);
  chain->base_ns = now;
  chain->cursor = (char *)(header + 1);
  sl_chain_set_end(chain, (char *)header + SL_SEGMENT_BYTES);
  if (chain->thread != chain->ordinal)
    sl_chain_put_thread(chain, now);
}

bool sl_chain_stays(struct chain *chain, intptr_t need) {
  struct sl_segment *segment = chain->segment;
  if (!segment || !segment->stopgap)
    return false;
  sl_chain_set_end(chain, (char *)segment->map + SL_SEGMENT_BYTES);
  return sl_chain_room(chain) >= need;
}

bool sl_chain_take(struct chain *chain) {
  bool owned = false;
  if (!atomic_compare_exchange_strong_explicit(&chain->owned, &owned, true, memory_order_acquire, memory_order_relaxed))
    return false;
  sl_tsan_acquire(chain);
  return true;
}

void sl_chain_give_up(struct chain *chain) {
  sl_tsan_release(chain);
  atomic_store_explicit(&chain->owned, false, memory_order_release);
}

void sl_chain_copy(struct chain *to, struct chain *from) {
  to->cursor = from->cursor;
  sl_chain_set_end(to, __atomic_load_n(&from->end, __ATOMIC_RELAXED));
  to->base_ns = from->base_ns;
  to->segment = from->segment;
  to->ordinal = from->ordinal;
  to->sequence = from->sequence;
  to->thread = from->thread;
  to->thread_tid = from->thread_tid;
  atomic_store_explicit(&to->busy, atomic_load_explicit(&from->busy, memory_order_relaxed), memory_order_relaxed);
  atomic_store_explicit(&to->owned, true, memory_order_relaxed);
  to->state = from->state;
}
