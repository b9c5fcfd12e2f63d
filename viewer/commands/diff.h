/* What `diff` says of two runs, for pages that show it. */
#ifndef SHARDLEDGER_DIFF_H
#define SHARDLEDGER_DIFF_H

#include "output/table.h"
#include "storage/tables/db.h"

/*
 * db is the first run, other names the second: their highest peaks and what can't be compared, line by line; and as a
 * table `changes` what differs, equal ranks as one, the largest of each kind first. db is of no use for other questions
 * afterwards, since it has the other's tables, too. 0 or a negative errno.
 */
int sl_print_diff(struct sl_db *db, const char *other, struct sl_output *line, struct sl_output *rows,
                  struct sl_error *error);

#endif
