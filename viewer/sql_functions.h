/* Functions of ours in SQL, on every ledger that a command opens. Views of the ledger can't use them: others read those
 * too. */
#ifndef SHARDLEDGER_SQL_FUNCTIONS_H
#define SHARDLEDGER_SQL_FUNCTIONS_H

#include "storage/tables/db.h"

/*
 * rank_ranges(rank), rank_ranges(first, last): an aggregate that writes ranks, in any order and repeated or not, as
 * "64-71,80"; of the second form those from first to last. NULL counts for nothing; NULL without any rank. 0 or
 * -ENOMEM.
 */
int sl_add_functions(struct sl_db *db, struct sl_error *error);

#endif
