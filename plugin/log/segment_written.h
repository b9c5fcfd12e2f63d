/*
 * Segments that are memory, whose files are written. Two kinds:
 *
 * - All of them, where a mapped file could harm the host: on file systems that do not promise room for a later store
 *   (copy on write), that can stall (network, FUSE) or can't map. What has been committed is appended to the file every
 *   second, when the segment is full, and at the end; a kill loses what the last second brought.
 * - Stopgaps, made by a thread of the host that needs a segment now, where files would make it wait: they are written
 *   as soon as the helper thread gets there.
 *
 * A reader finds the same files. A stopgap's is made with its first bytes.
 */
#ifndef SHARDLEDGER_SEGMENT_WRITTEN_H
#define SHARDLEDGER_SEGMENT_WRITTEN_H

#include "segment_pool.h"

#include <stddef.h>

/* Whether this directory's file system is one to write to rather than to map. */
bool sl_written_is_better(const char *directory);

/* Whether an error of allocating or mapping a file says that this file system can't do it. */
bool sl_written_is_needed(int r);

/* From here on sl_written_all writes the segment out, until it is dropped. */
void sl_written_add(struct sl_segment *segment);
void sl_written_drop(struct sl_segment *segment);

/* Where the records end that are committed now; 0 while nobody has taken the segment. Right for mapped ones too. */
uint32_t sl_written_committed(const struct sl_segment *segment);

/* Appends to the segment's file what has been committed since the last time. 0 or a negative errno. */
int sl_written_append(struct sl_segment *segment, const char *path);

/* Fills in the name of a segment's file. */
typedef void sl_segment_path(uint32_t number, char *path, size_t size);

/*
 * Appends to all, or to the stopgaps that have no file yet; definitions first, without which a kill leaves the others
 * nameless. The first error, or 0. -EBUSY: another thread is at it.
 */
int sl_written_all(bool new_stopgaps_only, sl_segment_path *path_of);

#endif
