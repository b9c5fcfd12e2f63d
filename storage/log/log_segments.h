/*
 * The segments of one process's log on disk, raw files and sealed frames alike: finding them all, also while the log
 * grows.
 *
 * Files are read, never mapped: the process may still be writing, truncating and sealing them.
 */
#ifndef SHARDLEDGER_LOG_SEGMENTS_H
#define SHARDLEDGER_LOG_SEGMENTS_H

#include "segment_index.h"
#include "storage/error.h"

/* As sl_log_open; close it with sl_segments_close. On failure nothing is owned. */
int sl_segments_open(const char *directory, struct sl_segments *out, struct sl_error *error);

/*
 * Looks at the directory again while the log grows: forgets entries that are done and adds those that are new. A
 * segment that is still being written comes again each time. Entries move; disk_bytes is not kept up. 0 or as
 * sl_log_open.
 */
int sl_segments_update(struct sl_segments *segments, struct sl_error *error);

#endif
