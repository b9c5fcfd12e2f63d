/* Where a rank is in its life: the period that goes on, and what was before the step that goes on. */
#ifndef SHARDLEDGER_RANK_LIFE_H
#define SHARDLEDGER_RANK_LIFE_H

#include "rank_period.h"

struct sl_rank_life {
  struct sl_rank_period current; /* that goes on */
  struct sl_rank_period outside; /* before the step that goes on, has ended and waits to be decided with it */
  bool outside_waits;
  bool has_steps;
  uint64_t next_period;
  uint64_t cycle_began_at, last_cycle_began_at; /* the ends of the last step and of the one before */
};

#endif
