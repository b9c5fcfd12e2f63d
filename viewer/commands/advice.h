/* What would make a run fit, as `advise` and `oom` print it. */
#ifndef SHARDLEDGER_ADVICE_H
#define SHARDLEDGER_ADVICE_H

#include "ask_ledger.h"
#include "output/table.h"
#include "storage/advise/advise.h"

/*
 * Of these ranks the one to advise on, and the refused request (-1: none) that it has to get past. -ENODATA with the
 * sentence in error where there is nothing to advise on.
 */
int sl_advise_choose(struct sl_db *db, const struct sl_ranks *ranks, uint32_t *rank, int64_t *at_ns,
                     struct sl_error *error);

/* The table of advice, the first of which is the one to take; text leaves out what can't help. */
void sl_print_advice(struct sl_output *out, const struct sl_advise *advise);

/* What can't help, and why; nothing where all can. */
void sl_print_no_advice(struct sl_output *out, const struct sl_advise *advise);

/* Text: what the job may take, what it needs and how that is known, one line each. */
void sl_print_goal(struct sl_output *out, const struct sl_advise *advise);

/* Text: what fragmentation costs. */
void sl_print_floor(struct sl_output *out, const struct sl_advise *advise);

/* Data: the same as sl_print_goal and sl_print_floor say, as a table of one row. */
void sl_print_goal_row(struct sl_output *out, const struct sl_advise *advise);

#endif
