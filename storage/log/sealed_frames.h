/* The sealed files of a log, frame by frame. */
#ifndef SHARDLEDGER_SEALED_FRAMES_H
#define SHARDLEDGER_SEALED_FRAMES_H

#include "segment_index.h"
#include "storage/error.h"

#include <dirent.h>

/* Opens a sealed file, unless it is already. One that can't be, as it has gone, is not there. */
int sl_sealed_open(struct sl_segments *segments, const char *name, struct sl_error *error);

/* Takes the frames that sealed files have got since the last time, also those of new files, into the index. */
int sl_sealed_index(struct sl_segments *segments, DIR *listing, struct sl_error *error);

/* Reads the compressed bytes behind a frame header at `at` into segments->compressed; false when they are not right. */
bool sl_frame_read(struct sl_segments *segments, int fd, const struct sl_frame_header *frame, uint64_t at);

#endif
