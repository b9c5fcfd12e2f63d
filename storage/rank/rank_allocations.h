/* The tensor-level allocations that are alive or were made since the last decision, in the order of their making. */
#ifndef SHARDLEDGER_RANK_ALLOCATIONS_H
#define SHARDLEDGER_RANK_ALLOCATIONS_H

#include "storage/attribution/allocation.h"

/* Zero-initialise; free with sl_rank_allocations_free. */
struct sl_rank_allocations {
  struct sl_allocation **list; /* owned */
  size_t count, capacity;
  size_t made; /* structs that are there; those from count on are free to be used again */
  uint64_t last_id;
};

void sl_rank_allocations_free(struct sl_rank_allocations *all);

/* A copy with an id of its own. NULL: no memory. */
struct sl_allocation *sl_rank_allocations_add(struct sl_rank_allocations *all, const struct sl_allocation *made);

/* So many have been decided: the newest have not. */
size_t sl_rank_allocations_decided(const struct sl_rank_allocations *all);

/* What is alive was so at this step's end. */
void sl_rank_allocations_outlive(struct sl_rank_allocations *all, int64_t step);

/* The phases of all are forgotten; what was made behind the position `since` is known by its number from here on. */
void sl_rank_allocations_go_on(struct sl_rank_allocations *all, uint64_t since);

/*
 * Takes out what was complete at this position or before, after giving it to take; UINT64_MAX: everything. The first
 * failure of take is returned, and what it failed for stays.
 */
int sl_rank_allocations_settle(struct sl_rank_allocations *all, uint64_t until,
                               int (*take)(void *context, struct sl_allocation *allocation), void *context);

/* The one alive that holds this address, from the newest, since buffers are mostly fresh. NULL: none. */
const struct sl_allocation *sl_rank_allocations_holding(const struct sl_rank_allocations *all, uint64_t address);

/* As sized of sl_collective_host. */
uint64_t sl_rank_allocations_sized(const struct sl_rank_allocations *all, const struct sl_phase *phase, uint64_t bytes,
                                   uint64_t factor);

#endif
