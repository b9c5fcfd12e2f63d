/* The files of a log as they are looked at, and what is believed of them. */
#ifndef SHARDLEDGER_SEGMENT_FILE_H
#define SHARDLEDGER_SEGMENT_FILE_H

#include "segment_index.h"
#include "storage/error.h"

#include <dirent.h>
#include <zstd.h>

/* What a reader believes, so that what it takes from a few bytes has a bound. No writer makes more. */
#define RECORDS_MAX (SL_SEGMENT_BYTES - sizeof(struct sl_segment_header))
#define COMPRESSED_MAX ZSTD_COMPRESSBOUND(SL_SEGMENT_BYTES)

enum finding { FOUND, NOBODYS, DAMAGED, NEWER };

/*
 * Why a file could not be read for now: the disk fails, or there are no descriptors, no memory, no permission. That
 * says nothing about what is in it, so it must not count as damage. Noted where it happens, with an errno, and looked
 * at once a file is done with: 0, or the sentence.
 */
void sl_segment_file_unreadable(int reason);
int sl_segment_file_refuse(const struct sl_segments *segments, const char *name, struct sl_error *error);

/* Of the log's directory. A descriptor or a negative errno. */
int sl_segment_file_open(const struct sl_segments *segments, const char *name);
DIR *sl_segments_list(const struct sl_segments *segments); /* NULL: errno says why */

/* Reads exactly that many bytes, or fails: -ENODATA at the end of the file. */
int sl_file_read(int fd, void *out, size_t bytes, uint64_t offset);
uint64_t sl_file_size(int fd);

/* Memory that has at least so many bytes; NULL: there is none, and it is as it was. */
void *sl_file_room(void *memory, size_t *size, size_t need);

/* A segment header is believed when its check is right; the version comes after, as a newer one has a check too. */
enum finding sl_segment_judge(const struct sl_segment_header *header);

#endif
