/*
 * What questions about a long run would have to add up over all of its steps, added up while these are written: so that
 * the answer takes no longer than on ten steps.
 */
#ifndef SHARDLEDGER_RANK_SUMS_H
#define SHARDLEDGER_RANK_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "storage/allocator/block_map.h"

struct sl_period_row;
struct sl_collective_total_row;

/* Of one rank. Zero-initialise; free with sl_rank_sums_clear. */
struct sl_rank_sums {
  uint64_t steps, steps_in_full, steps_agreed, steps_differed;
  int64_t first_step, last_step; /* where there are steps */
  uint64_t periods;
  struct sl_block_totals peak; /* the highest of all periods, each on its own */
  uint64_t peak_device_bytes;
  uint64_t peak_period, step_period; /* that of the highest allocated bytes, and that step; the first of several */
  uint64_t step_peak_bytes;
  bool recorded, steps_recorded, cached; /* any period's allocations, any step's, any with a cache of PyTorch's own */
  struct sl_collective_total_row *collectives; /* one a communicator and operation; owned */
  size_t collective_count;
};

void sl_rank_sums_period(struct sl_rank_sums *sums, const struct sl_period_row *row);

/* The row's operation has to live as long. 0 or -ENOMEM. */
int sl_rank_sums_collective(struct sl_rank_sums *sums, const struct sl_collective_total_row *row);

void sl_rank_sums_clear(struct sl_rank_sums *sums);

#endif
