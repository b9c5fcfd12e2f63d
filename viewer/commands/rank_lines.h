/* Which ranks are different, in lines: "137 (gpu-node-17)  +2.00 GiB activation, blocks.2 forward, since step 44". */
#ifndef SHARDLEDGER_RANK_LINES_H
#define SHARDLEDGER_RANK_LINES_H

#include "ask_ledger.h"
#include "output/table.h"

/*
 * "256 ranks in 5 groups; 182 alike (290.3 MiB)" and a line for each fact of each other group, or of those that have
 * any of these ranks (NULL: all). Text output only. Nothing for a single rank, nor without recorded allocations. 0 or a
 * negative errno.
 */
int sl_print_rank_lines(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, struct sl_error *error);

/*
 * The same as the heading of a report, with a blank line before it: one line for each of the first groups, and how many
 * more there are. Nothing where all it could say is that two ranks are alike.
 */
int sl_print_rank_heading(struct sl_db *db, struct sl_output *out, struct sl_error *error);

/* "Next to most ranks: +2.00 GiB …", if rank is in another group than the largest. Text output only. 0 or a negative
 * errno. */
int sl_print_rank_difference(struct sl_db *db, struct sl_output *out, int64_t rank, struct sl_error *error);

#endif
