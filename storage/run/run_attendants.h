/*
 * Processes that only attend to a rank: a rank may start others that use the GPU, which get its RANK with its
 * environment (an inference engine, a loader that makes batches there, a search for the fastest kernel), and may be
 * started by one that looked at the GPU before. They are no rank of the run, and no run that somebody looks for.
 */
#ifndef SHARDLEDGER_RUN_ATTENDANTS_H
#define SHARDLEDGER_RUN_ATTENDANTS_H

#include "run_directory.h"

/*
 * Sets attends of the run's processes, which are in the order of their starts: of two of the same family and rank of
 * which one is the other's ancestor, that which has no steps, where the other one has. Logs are read up to their first
 * step where there are such two, and else not at all. 0 or a negative errno.
 */
int sl_run_find_attendants(struct sl_run *run, struct sl_error *error);

#endif
