/*
 * Ranks that behave alike are one group; what is different on the others is said by the ledger itself: the tables
 * rank_group and rank_difference (docs/ranks.md).
 */
#ifndef SHARDLEDGER_RANK_GROUPS_H
#define SHARDLEDGER_RANK_GROUPS_H

#include "storage/tables/db.h"

/*
 * Fills both from a ledger that has all of its ranks, its indexes and its views: what it writes follows from the ledger
 * alone, and replaces what is there. 0 or a negative errno.
 */
int sl_rank_groups_fill(struct sl_db *db, struct sl_error *error);

#endif
