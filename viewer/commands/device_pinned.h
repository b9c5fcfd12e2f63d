/* Pinned host memory over a rank's whole life: how much at most, and whether it grows from step to step. */
#ifndef SHARDLEDGER_DEVICE_PINNED_H
#define SHARDLEDGER_DEVICE_PINNED_H

#include "output/table.h"
#include "storage/tables/db.h"

#include <stddef.h>

struct sl_pinned_growth {
  size_t from;   /* of the bytes: from here on each is more than the one before, or at least no less */
  int64_t bytes; /* a step, on average from there to the last; 0: it does not grow */
};

/*
 * Of the bytes at the ends of steps. Grown is what never falls in the second half, and rises there in two steps at the
 * least: caches fill up once, at the beginning, and allocators that round up do not grow in every step.
 */
struct sl_pinned_growth sl_pinned_growth_of(const int64_t *bytes, size_t count);

/* Nothing where none was pinned. 0 or a negative errno. */
int sl_print_pinned_life(struct sl_db *db, struct sl_output *out, int64_t rank, struct sl_error *error);

#endif
