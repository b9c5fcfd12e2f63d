/*
 * The ranks of a run into its ledger, several at once.
 *
 * Each of the threads takes the next rank, reads its log and writes the rows aside; when all ranks before it are in the
 * ledger, it moves them there. Where that is so from the start, it writes into the ledger itself: so comes the first
 * rank in, and every one where there is one thread. A rank's rows depend on its log alone and get in by order of rank,
 * so the ledger is the same for any number of threads.
 */
#ifndef SHARDLEDGER_RANK_JOBS_H
#define SHARDLEDGER_RANK_JOBS_H

#include "run_directory.h"
#include "storage/ledger_options.h"
#include "storage/tables/ledger_writer.h"

/*
 * Writes the rows of all ranks. options has the number of threads, and is told how far all logs together are read. 0,
 * or a negative errno with the reason: that of the lowest rank that failed, and none above it is in the ledger.
 */
int sl_rank_jobs_run(struct sl_run *run, struct sl_ledger_writer *ledger, const struct sl_ledger_options *options,
                     struct sl_error *error);

#endif
