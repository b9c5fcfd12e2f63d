/* What `survivors` says first, for pages that speak of the whole run. */
#ifndef SHARDLEDGER_SURVIVORS_H
#define SHARDLEDGER_SURVIVORS_H

#include "output/table.h"
#include "storage/tables/db.h"

/*
 * What grows of all ranks: a line, or that nothing does, or that nobody can tell; and as a table `growth` the owners
 * that grow on the rank that grows most, where there are some. 0 or a negative errno.
 */
int sl_print_growth(struct sl_db *db, struct sl_output *line, struct sl_output *owners, struct sl_error *error);

#endif
