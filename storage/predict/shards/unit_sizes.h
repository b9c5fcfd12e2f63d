/*
 * What FSDP2's units make, in other sizes: over another number of ranks, or in other types. Each allocation must take
 * what the rules of shards.h say of the recorded number and types, to the byte, before it gets what they say of others.
 */
#ifndef SHARDLEDGER_UNIT_SIZES_H
#define SHARDLEDGER_UNIT_SIZES_H

#include "shards.h"
#include "storage/predict/tape/tape.h"

struct sl_unit_progress { /* of a unit: what it makes next */
  size_t copied, reduced;
};

struct sl_unit_sizes {
  struct sl_tape *tape;
  const struct sl_shards *before, *after; /* the same units: as recorded, and as they would be */
  uint64_t from, to;                      /* ranks that share a unit's parameters */
  uint64_t replicas;                      /* groups of such ranks: 1 without HSDP */
  struct sl_error *error;
  size_t changed;
  struct sl_unit_progress *progress; /* sl_unit_sizes_begin's */
};

/* Whether the rules are known to hold. 0; -ENOTSUP, with the reason as the rest of a sentence in error. */
int sl_unit_sizes_check(const struct sl_unit_sizes *sizes);

/* 0 or -ENOMEM; end it with sl_unit_sizes_end in any case. */
int sl_unit_sizes_begin(struct sl_unit_sizes *sizes);
void sl_unit_sizes_end(struct sl_unit_sizes *sizes);

/* Whether an allocation is a unit's; such ones are changed in their order. 0 or -ENOTSUP, as above. */
bool sl_unit_sizes_has(const struct sl_unit_sizes *sizes, const struct sl_tape_allocation *allocation);
int sl_unit_sizes_change(struct sl_unit_sizes *sizes, struct sl_tape_allocation *allocation);

/* One of another kind, by its own rule: what it is named, what it must take, and what it gets. */
int sl_unit_sizes_take(struct sl_unit_sizes *sizes, struct sl_tape_allocation *allocation, const char *what,
                       uint64_t before, uint64_t after);

/* Of the first unit, which all have to be like; 1 where there is none. */
static inline uint64_t sl_shards_replicas(const struct sl_shards *shards) {
  return shards->unit_count && shards->units[0].replicas ? shards->units[0].replicas : 1;
}

#endif
