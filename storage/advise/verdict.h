/*
 * Is anything enough? What is needed whatever is changed, against the most that the limit may be: where it is more,
 * nothing that is known of suffices. Two lower ends, of which the larger one counts:
 *
 * - so far: what the setup holds, and its refused request. A bound: no change frees what a program has made before its
 *   first step.
 * - a step: parameters and buffers; and beside them the gradients of all that are trained, as every optimizer's step
 *   finds them; or, where each is used up in backward, the largest one and the optimizer's states. Of FSDP2 the unit
 *   that gathers most, if that is more. An estimate: all that require a gradient are taken to get one.
 */
#ifndef SHARDLEDGER_VERDICT_H
#define SHARDLEDGER_VERDICT_H

#include "goal.h"
#include "storage/tables/db.h"

enum sl_suffices {
  SL_SUFFICES_something, /* a change fits, or may */
  SL_SUFFICES_unknown,   /* none is known to */
  SL_SUFFICES_nothing,   /* what is needed whatever is changed is more than the limit */
};

struct sl_verdict {
  enum sl_suffices suffices;
  uint64_t least_bytes;              /* that are needed whatever is changed; 0: not known */
  bool is_estimate;                  /* of a step; else a bound, of the setup */
  uint64_t kept_bytes, beside_bytes; /* its parts: what stays, and what has to be beside it */
  const char *beside;                /* in words; NULL: nothing */
  bool is_sharded;                   /* by FSDP2: more ranks leave less on each */
};

/* The least; suffices stays as it is. Needs the table `held`. 0 or a negative errno, with the sentence in error. */
int sl_verdict_read(struct sl_db *db, const struct sl_goal *goal, struct sl_verdict *out, struct sl_error *error);

#endif
