/* Which ranks of how many are rehearsed, and how far: what `rehearse` was asked for, checked. */
#ifndef SHARDLEDGER_REHEARSAL_PLAN_H
#define SHARDLEDGER_REHEARSAL_PLAN_H

#include <stdint.h>

#define SL_REHEARSAL_WORLD_MAX 1000000 /* ranks */

struct sl_rehearsal_plan {
  int64_t world_size, steps;
  int64_t local_size;   /* 0: 8, or all of fewer ranks */
  int64_t device_bytes; /* 0: what the device has */
  int64_t *ranks;       /* owned */
  int count;
  char id[64]; /* of this command, the same for all of its ranks */
};

/*
 * Fills in ranks, local_size and id. ranks: "5", "0,last", "0-3,63"; first is 0, and so is largest, since torch.chunk
 * gives the first ranks whole parts. -EINVAL after saying what is wrong; sl_rehearsal_plan_free in any case.
 */
int sl_rehearsal_plan_make(struct sl_rehearsal_plan *plan, const char *ranks);
void sl_rehearsal_plan_free(struct sl_rehearsal_plan *plan);

#endif
