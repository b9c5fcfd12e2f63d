/* A table that ranks share, as SQLite's queries see it in this process: a virtual table over own_phase and rank_rows.
 */
#ifndef SHARDLEDGER_SHARED_ROWS_H
#define SHARDLEDGER_SHARED_ROWS_H

#include "shared_tables.h"

/* Makes temp.phase, with the rows of the view phase. first: of this database. 0 or a negative errno. */
int sl_shared_rows_make(struct sl_db *db, const struct sl_shared_table *shared, bool first, struct sl_error *error);

#endif
