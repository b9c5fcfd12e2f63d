/* A segment's records, wherever they are. */
#ifndef SHARDLEDGER_SEGMENT_LOAD_H
#define SHARDLEDGER_SEGMENT_LOAD_H

#include "segment_index.h"
#include "storage/error.h"

/*
 * Loads a segment's records. Returns 0, or a negative errno when it is damaged or gone; -SL_LOG_UNREADABLE or -ENOMEM,
 * with the sentence, when it can't be read for now.
 */
int sl_segments_load(struct sl_segments *segments, const struct sl_segment_entry *entry, struct sl_records *records,
                     struct sl_error *error);

/*
 * Loads what a segment that was being written has got since: the first `from` bytes are there and stay as they are, but
 * data may move. Returns 0, or a negative errno when the segment is gone; the records are then as they were.
 */
int sl_segments_load_more(struct sl_segments *segments, const struct sl_segment_entry *entry,
                          struct sl_records *records, size_t from);

#endif
