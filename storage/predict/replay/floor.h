/*
 * How much of what was reserved could be avoided? Whatever places a rank's requests has to hold all that is active at
 * one instant: the floor. And a plan that is known to do is the ceiling: the same requests in one address space a
 * stream and pool that grows by 2 MiB, the smallest free block first, everything that fits split.
 */
#ifndef SHARDLEDGER_FLOOR_H
#define SHARDLEDGER_FLOOR_H

#include "replay.h"

struct sl_floor {
  uint64_t least_bytes; /* no placement takes less */
  uint64_t plan_bytes;  /* one is known that takes no more */
};

/* 0; -ENOTSUP where not all events are known, or -ENOMEM. */
int sl_floor_find(const struct sl_tape *tape, struct sl_floor *out);

#endif
