/* What a change costs in time, from the run's own phases, collectives and copies. */
#ifndef SHARDLEDGER_PRICE_H
#define SHARDLEDGER_PRICE_H

#include "candidates.h"
#include "goal.h"

struct sl_cost {
  int64_t ns;      /* a step; 0: none is known of; -1: not known */
  char words[300]; /* where it comes from, as one says it */
};

/* name: of the fact, as a class. 0 or a negative errno. */
int sl_price(struct sl_db *db, const struct sl_goal *goal, enum sl_price price, const char *name, struct sl_cost *out,
             struct sl_error *error);

#endif
