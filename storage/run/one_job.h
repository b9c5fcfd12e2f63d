/*
 * Whether the ranks of several directories are of one job, told by what they recorded: the communicator of all ranks,
 * which has the same id on each, or, where a directory knows of none, the time.
 */
#ifndef SHARDLEDGER_ONE_JOB_H
#define SHARDLEDGER_ONE_JOB_H

#include "run_directory.h"
#include "storage/error.h"
#include "storage/tables/db.h"

/* db holds all rows of the run's ranks. 0; -EINVAL with the two directories that don't belong together. */
int sl_check_one_job(struct sl_db *db, const struct sl_run *run, const char *const *directories,
                     struct sl_error *error);

#endif
