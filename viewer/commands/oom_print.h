/* What `oom` says first, for commands that speak of a job which died. */
#ifndef SHARDLEDGER_OOM_PRINT_H
#define SHARDLEDGER_OOM_PRINT_H

#include "output/table.h"
#include "storage/tables/db.h"

/*
 * Why the job died: the refused request that ended a rank, with its place and reason, or whose log just stops. Nothing
 * where neither is so. 0 or a negative errno.
 */
int sl_print_death(struct sl_db *db, struct sl_output *out, struct sl_error *error);

/*
 * Of the same death who died in which order, in groups, and what was alive by category, against the step before. Of a
 * refused request sl_advise_run comes before it, which makes the table `held`. 0 or a negative errno.
 */
int sl_print_death_tables(struct sl_db *db, struct sl_output *out, struct sl_error *error);

#endif
