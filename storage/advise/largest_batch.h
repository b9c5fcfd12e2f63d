/*
 * The largest batch with which a run fits under its limit, from runs of the same job with other batches: how each
 * size grows is fitted to them (storage/predict/changes/change_scale.h), so nothing of it is proven. One run alone
 * tells of no size how it grows.
 */
#ifndef SHARDLEDGER_LARGEST_BATCH_H
#define SHARDLEDGER_LARGEST_BATCH_H

#include "goal.h"
#include "storage/predict/changes/change_scale.h"
#include "storage/predict/replay/whatif.h"
#include "storage/tables/db.h"

enum { SL_LARGEST_FACTOR = 64 }; /* of the largest recorded batch: no larger one is tried */

struct sl_batch_run {
  struct sl_db *db; /* stays the caller's */
  uint64_t batch;
};

struct sl_largest_batch {
  uint64_t own, batch;                        /* that the run has; the largest that fits, 0: none does */
  uint64_t first, last;                       /* the smallest and the largest recorded one */
  bool is_most;                               /* no larger one was tried */
  char why[400];                              /* there is no answer, since …; "" */
  unsigned plays;                             /* of the largest one */
  uint64_t retries;                           /* cached segments are given back so often */
  struct sl_whatif_range allocated, reserved; /* with it; nothing where none fits */
  uint64_t next_allocated; /* what the batch after it needs at least, had it room without end; 0: not known */
  char doubt[500];         /* what is taken for granted */
};

/*
 * Of a rank, under the limit of a goal, which must have one and no refused request. own: the run's batch. 0; or a
 * negative errno with the sentence in error.
 */
int sl_largest_batch(struct sl_db *db, const struct sl_goal *goal, uint64_t own, const struct sl_batch_run *runs,
                     size_t count, struct sl_largest_batch *out, struct sl_error *error);

#endif
