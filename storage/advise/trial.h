/* One change, or several together, on a rank's tape: does the job then fit, and what does it take? */
#ifndef SHARDLEDGER_TRIAL_H
#define SHARDLEDGER_TRIAL_H

#include "advise.h"

struct sl_bench { /* what all trials of a rank share */
  struct sl_db *db;
  const struct sl_goal *goal;
  const struct sl_continuation *rest;
  const struct sl_tape *tape;        /* with its continuation */
  const struct sl_replay *unchanged; /* of the tape as it was recorded, had the limit held from goal.limit_event on */
  const struct sl_replay *life;      /* the same, from goal.life_event on */
  size_t from_period;                /* the limit holds in this one and those after it, of sl_tape.periods */
};

/* As it is, with room without end: what it needs. And under the limit. 0 or -ENOMEM. */
int sl_bench_need(const struct sl_bench *bench, struct sl_advise *out);
int sl_bench_limited(const struct sl_bench *bench, struct sl_advise *out, bool *is_refused);

/*
 * Fills what is predicted of an advice's parts; plays: at most, 0: as many as whatif makes. A change that the run can't
 * have is SL_FITS_refused, and why says the reason. 0 or -ENOMEM.
 */
int sl_trial(const struct sl_bench *bench, unsigned plays, struct sl_advice *advice);

#endif
