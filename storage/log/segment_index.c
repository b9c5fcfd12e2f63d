/* The list behind the index. What its entries say is checked where it is read; here it is counted and put in. */
#include "segment_index.h"

#include "decompressor.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void sl_segments_damaged(struct sl_segments *segments, uint64_t bytes) {
  segments->damaged++;
  segments->damaged_bytes += bytes;
  segments->disk_bytes += bytes;
}

int sl_segments_take(struct sl_segments *segments, const struct sl_segment_header *header,
                     struct sl_segment_entry entry) {
  if ((segments->process_key && header->process_key != segments->process_key) || header->thread == SL_DROPPED_THREAD) {
    sl_segments_damaged(segments, entry.disk_bytes);
    return 0;
  }
  entry.number = header->number;
  entry.thread = header->thread;
  entry.sequence = header->sequence;
  entry.tid = header->tid;
  entry.base_ns = header->base_ns;
  entry.process_key = header->process_key;
  struct sl_segment_entry *added = SL_LIST_ADD(segments->entries, segments->count);
  if (!added)
    return -ENOMEM;
  *added = entry;
  segments->disk_bytes += entry.disk_bytes;
  return 0;
}

void sl_records_free(struct sl_records *records) {
  free(records->data);
  *records = (struct sl_records){0};
}

void sl_segments_rest(struct sl_segments *segments) {
  free(segments->compressed);
  segments->compressed = NULL;
  segments->compressed_size = 0;
  segments->decompressor = sl_decompressor_give(segments->decompressor);
}

void sl_segments_close(struct sl_segments *segments) {
  for (uint32_t i = 0; i < segments->sealed_count; i++)
    if (segments->sealed[i].fd >= 0)
      close(segments->sealed[i].fd);
  free(segments->sealed);
  sl_records_free(&segments->dropped);
  if (segments->place > 0) /* 0: it was never opened */
    close(segments->place);
  free(segments->directory);
  free(segments->entries);
  sl_segments_rest(segments);
  *segments = (struct sl_segments){0};
}
