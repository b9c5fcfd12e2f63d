/* Work that is in pieces, by several threads: each takes the next piece until there is none. */
#ifndef SHARDLEDGER_JOBS_H
#define SHARDLEDGER_JOBS_H

#include <stddef.h>

/*
 * How many threads are of use for so many pieces. asked 0: as many as there are processors that this process may use,
 * SL_LEDGER_JOBS_MAX at most.
 */
size_t sl_job_count(size_t asked, size_t pieces);

/*
 * Calls work on so many threads, of which the caller's is one, and returns when all have come back. Where no more
 * threads can be had, those that there are do it all.
 */
void sl_jobs_run(size_t count, void (*work)(void *context), void *context);

#endif
