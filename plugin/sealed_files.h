/*
 * The files that full segments are sealed into: one, sealed.slogz, or with SHARDLEDGER_AT_MAX=keep-last several, of
 * which the oldest but the first are dropped when the log nears its limit (storage/log/log_drop.h). All of it is the
 * helper thread's own.
 */
#ifndef SHARDLEDGER_SEALED_FILES_H
#define SHARDLEDGER_SEALED_FILES_H

#include "log_format.h"

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

/* Where a segment with this header goes. */
void sl_sealed_path(const struct sl_segment_header *header, char *path, size_t size);

/* It went there, as so many bytes; its last record is of last_ns. */
void sl_sealed_grew(const struct sl_segment_header *header, uint64_t last_ns, uint64_t bytes);

/* Whether the log, of so many bytes, is near enough to its limit to drop something, or is about to. */
bool sl_sealed_is_due(uint64_t bytes);

/*
 * One piece of that. `number` is a segment's that is not used yet; *freed becomes the bytes by which the log got
 * smaller. Returns whether the number was taken.
 */
bool sl_sealed_drop(uint32_t number, int64_t *freed);

/* Whether it is at work. */
bool sl_sealed_is_dropping(void);

/* Whether there may be room later, as soon as a step has begun: so the limit is not the end. */
bool sl_sealed_makes_room(void);

/* Gives up what is at work; files stay as they are. */
void sl_sealed_end(void);

#endif
