/*
 * A run that ran out of memory, gone on with: what would it have asked for, had the request been served? Two kinds of
 * rest can be told from its record:
 *
 * - step: an earlier step asked for the same up to there, request by request, and freed the same of it.
 *   The rest is that step's.
 * - optimizer: it is AdamW's first step, which had begun to make its states. The rest are those of the
 *   parameters that have none yet, in their order, and one temporary a parameter (foreach, the default).
 *
 * All else is unknown: what comes then may take more than anything that was recorded.
 */
#ifndef SHARDLEDGER_CONTINUATION_H
#define SHARDLEDGER_CONTINUATION_H

#include "goal.h"

enum sl_rest { SL_REST_recorded, SL_REST_step, SL_REST_optimizer, SL_REST_unknown };

struct sl_continuation {
  enum sl_rest rest; /* recorded: nothing was refused, all is there */
  int64_t as_step;   /* of SL_REST_step: the step whose rest it is */
  char why[200];     /* of SL_REST_unknown; "" */
};

/*
 * Changes a tape of the goal's rank. Where the rest is unknown the tape stays as it was, with the refused request in
 * it. 0 or a negative errno, with the sentence in error.
 */
int sl_continue(struct sl_db *db, const struct sl_goal *goal, struct sl_tape *tape, struct sl_continuation *out,
                struct sl_error *error);

#endif
