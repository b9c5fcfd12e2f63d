/*
 * What a reduction that is split over blocks stages: made with its little semaphores, and freed with them. It depends
 * on rows and blocks, and not on the type that is reduced, since sums are made in float32.
 */
#ifndef SHARDLEDGER_STAGING_H
#define SHARDLEDGER_STAGING_H

#include "tape.h"

/* Of a recorded allocation, or of a step's rest, by its row and the one after it. */
static inline bool sl_is_staging(const struct sl_tape *tape, uint32_t index) {
  enum { SEMAPHORES = 64 << 10, NEAR = 4 };
  const struct sl_tape_allocation *a = &tape->allocations[index], *b = a + 1;
  return index + 1 < (tape->rest.is_one ? tape->allocation_count : tape->recorded_count) && a->free_event &&
         b->requested <= SEMAPHORES && b->requested < a->requested && b->alloc_event - a->alloc_event <= NEAR &&
         b->free_event - b->alloc_event <= NEAR && a->free_event > b->free_event &&
         a->free_event - b->free_event <= NEAR;
}

#endif
