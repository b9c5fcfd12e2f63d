/*
 * Segments on file systems where files can't be mapped, or should not be (network file systems): the segment is memory,
 * and what has been committed in it is appended to its file every second, when it is full, and at the end. A reader
 * finds the same files. A kill loses what the last second brought.
 */
#ifndef SHARDLEDGER_SEGMENT_WRITTEN_H
#define SHARDLEDGER_SEGMENT_WRITTEN_H

#include "segment_pool.h"

#include <stddef.h>

/* Whether this directory's file system is one to write to rather than to map. */
bool sl_written_is_better(const char *directory);

/* Whether an error of allocating or mapping a file says that this file system can't do it. */
bool sl_written_is_needed(int r);

/* Memory for a segment, zero and touched; NULL when there is none. Freed as a mapping of SL_SEGMENT_BYTES. */
void *sl_written_memory(void);

/* From here on sl_written_all writes the segment out, until it is dropped. */
void sl_written_add(struct sl_segment *segment);
void sl_written_drop(struct sl_segment *segment);

/* Appends to the segment's file what has been committed since the last time. 0 or a negative errno. */
int sl_written_append(struct sl_segment *segment, const char *path);

/* Appends to all; path_of fills in the name of a segment's file. The first error, or 0. */
int sl_written_all(void (*path_of)(uint32_t number, char *path, size_t size));

#endif
