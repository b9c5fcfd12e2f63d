/*
 * The files that full segments are sealed into: one, sealed.slogz, or with SHARDLEDGER_AT_MAX=keep-last several of
 * bounded size. Which of them are dropped when the log nears its limit is decided outside of this process, by
 * `shardledger trim`; here is only found out what it has removed. All of it is the helper thread's own.
 */
#ifndef SHARDLEDGER_SEALED_FILES_H
#define SHARDLEDGER_SEALED_FILES_H

#include "plugin/format/log_format.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * What keep-last takes: each thread that records holds a segment until that is full, and beside these, the first part
 * and what is written to there must be room for one more, or nothing is ever dropped. So many do for eight threads.
 */
#define SL_KEEP_LAST_BYTES_MIN (24 * SL_SEGMENT_BYTES)

/*
 * directory must outlive the files. max_bytes: 0 for no limit; where it is too small for keep-last that is said, and
 * recording will stop there.
 */
void sl_sealed_start(const char *directory, uint64_t max_bytes, bool keep_last);

/* The limit of a log with keep-last; 0: it is a log without. */
uint64_t sl_sealed_keep_last_bytes(void);

/* Where a segment with this header goes. */
void sl_sealed_path(const struct sl_segment_header *header, char *path, size_t size);

/* It went there, as so many bytes. */
void sl_sealed_grew(const struct sl_segment_header *header, uint64_t bytes);

/* By how many bytes the sealed files, and what stands for those that were dropped, are smaller than at the last call.
 */
int64_t sl_sealed_recount(void);

#endif
