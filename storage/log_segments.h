/*
 * The segments of one process's log on disk, raw files and sealed frames alike: an index of them, and loading one.
 *
 * Files are read, never mapped: the process may still be writing, truncating and sealing them.
 */
#ifndef SHARDLEDGER_LOG_SEGMENTS_H
#define SHARDLEDGER_LOG_SEGMENTS_H

#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_NOT_THERE UINT64_MAX

struct sl_segment_entry {
  uint32_t number, thread, sequence, tid;
  uint64_t base_ns;
  uint64_t process_key;
  uint64_t frame_at;   /* offset of the frame header in sealed.slogz, or SL_NOT_THERE */
  uint64_t disk_bytes; /* of the file or frame */
  bool raw;            /* there is, or was, a raw file */
};

struct sl_segments {
  char *directory;                  /* owned */
  struct sl_segment_entry *entries; /* owned; by thread, then sequence */
  size_t count;
  uint64_t disk_bytes;
  uint64_t damaged, damaged_bytes; /* files and frames that could not even be put into the index */
  int sealed_fd;                   /* owned; -1 without a sealed file */
  uint64_t sealed_end;             /* how far frames have been looked at */
  void *compressed;                /* owned; room for loading */
  size_t compressed_size;
};

/* One segment's records in memory. Owned by whoever declares it; zero-initialise, and free with sl_records_free. */
struct sl_records {
  char *data; /* 8-byte aligned, data_size bytes long */
  size_t size, bytes;
  bool checked; /* the whole was checked: records need not be */
};

/* As sl_log_open. On failure nothing is owned. */
int sl_segments_open(const char *directory, struct sl_segments *out, struct sl_error *error);

/* Loads a segment's records. Returns 0, or a negative errno when it is damaged or gone. */
int sl_segments_load(struct sl_segments *segments, const struct sl_segment_entry *entry, struct sl_records *records);

void sl_records_free(struct sl_records *records);
void sl_segments_close(struct sl_segments *segments);

#endif
