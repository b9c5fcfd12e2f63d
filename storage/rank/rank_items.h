/*
 * What happens in a period is kept as items, in order, until it is closed: allocations, frees, tags, module states, and
 * where phases begin and end.
 */
#ifndef SHARDLEDGER_RANK_ITEMS_H
#define SHARDLEDGER_RANK_ITEMS_H

#include "storage/attribution/item.h"

struct sl_reshard { /* FSDP gave up a unit's parameters in backward */
  uint64_t at;
  size_t item; /* that stands for its end */
};

/* Zero-initialise; free with sl_rank_items_free. */
struct sl_rank_items {
  struct sl_item *list; /* owned */
  size_t count, capacity;
  struct sl_reshard *reshards; /* of these items, in order; owned */
  size_t reshard_count, reshard_capacity;
  struct sl_phase whole; /* stands for each period as a whole where highest points are looked for */
};

void sl_rank_items_free(struct sl_rank_items *items);
void sl_rank_items_clear(struct sl_rank_items *items);

/* NULL: no memory. */
struct sl_item *sl_rank_items_add(struct sl_rank_items *items, enum sl_item_type type, uint64_t at_ns);

/* The same for what happens to an allocation, to a phase whose highest point is looked for, and to all. 0 or -ENOMEM.
 */
int sl_rank_items_allocation(struct sl_rank_items *items, enum sl_item_type type, struct sl_allocation *allocation,
                             uint64_t at_ns);
int sl_rank_items_opened(struct sl_rank_items *items, struct sl_phase *phase, uint64_t at_ns);
int sl_rank_items_closed(struct sl_rank_items *items, struct sl_phase *phase, uint64_t at, uint64_t at_ns);
int sl_rank_items_watch(struct sl_rank_items *items, uint64_t at_ns);

/* After a piece of a period: the phases that go on are looked at from here on. 0 or -ENOMEM. */
int sl_rank_items_restart(struct sl_rank_items *items, struct sl_phases *phases, uint64_t at_ns);

#endif
