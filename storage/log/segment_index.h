/* What is known of a log's segments without their records: which there are, of which thread, and where. */
#ifndef SHARDLEDGER_SEGMENT_INDEX_H
#define SHARDLEDGER_SEGMENT_INDEX_H

#include "plugin/format/log_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_NOT_THERE UINT64_MAX

struct sl_segment_entry {
  uint32_t number, thread, sequence, tid;
  uint64_t base_ns;
  uint64_t process_key;
  uint64_t frame_at;   /* offset of the frame header in its sealed file, or SL_NOT_THERE */
  uint32_t file;       /* that file: an index of sl_segments.sealed */
  uint64_t disk_bytes; /* of the file or frame */
  bool raw;            /* there is, or was, a raw file */
  bool done;           /* the reader's: not needed any more */
};

/* One segment's records in memory. Owned by whoever declares it; zero-initialise, and free with sl_records_free. */
struct sl_records {
  char *data; /* 8-byte aligned, data_size bytes long */
  size_t size, bytes;
  bool checked;         /* the whole was checked: records need not be */
  uint64_t modified_ns; /* when the file was, of a raw one */
};

struct sl_sealed_file {
  char name[32];
  int fd;       /* -1: the file has gone, and its place is free */
  bool seen;    /* at the last look */
  uint64_t end; /* how far frames have been looked at */
};

struct sl_segments {
  char *directory;                  /* owned */
  int place;                        /* the directory, held open: all files are looked up in it */
  struct sl_segment_entry *entries; /* owned; by thread, then sequence */
  size_t count;
  uint64_t disk_bytes;
  uint64_t damaged, damaged_bytes; /* files and frames that could not even be put into the index */
  struct sl_sealed_file *sealed;   /* owned; in no order */
  uint32_t sealed_count;
  struct sl_records dropped; /* owned; of SL_DROPPED_NAME, as at the first look; empty without it */
  uint64_t dropped_base_ns;
  uint64_t process_key;                    /* of the process whose log this is; 0 before the first look */
  uint64_t raw_damaged, raw_damaged_bytes; /* the part of the damage that the next look counts again */
  void *compressed;                        /* owned; room for loading */
  size_t compressed_size;
  struct ZSTD_DCtx_s *decompressor; /* of decompressor.h; NULL before the first frame is loaded */
};

/*
 * A segment with this header, of which the entry says where it is. One of another process is damage. 0 or -ENOMEM.
 */
int sl_segments_take(struct sl_segments *segments, const struct sl_segment_header *header,
                     struct sl_segment_entry entry);

/* A file or frame that nothing else is known of. */
void sl_segments_damaged(struct sl_segments *segments, uint64_t bytes);

/* Gives back what loading has kept for the next time. */
void sl_segments_rest(struct sl_segments *segments);

void sl_records_free(struct sl_records *records);
void sl_segments_close(struct sl_segments *segments);

#endif
