/*
 * What questions about a long run would have to add up over all of its steps, added up while these are written: so that
 * the answer takes no longer than on ten steps.
 */
#ifndef SHARDLEDGER_RANK_SUMS_H
#define SHARDLEDGER_RANK_SUMS_H

#include <stddef.h>
#include <stdint.h>

struct sl_step_row;
struct sl_collective_total_row;

/* Of one rank. Zero-initialise; free with sl_rank_sums_clear. */
struct sl_rank_sums {
  uint64_t steps, steps_in_full, steps_agreed, steps_differed;
  int64_t first_step, last_step;               /* where there are steps */
  struct sl_collective_total_row *collectives; /* one a communicator and operation; owned */
  size_t collective_count;
};

void sl_rank_sums_step(struct sl_rank_sums *sums, const struct sl_step_row *row);

/* The row's operation has to live as long. 0 or -ENOMEM. */
int sl_rank_sums_collective(struct sl_rank_sums *sums, const struct sl_collective_total_row *row);

void sl_rank_sums_clear(struct sl_rank_sums *sums);

#endif
