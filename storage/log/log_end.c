/* When a log ends, without reading it: from the last segment of each of its threads. */
#include "log_state.h"

uint64_t sl_log_end_ns(struct sl_log *log) {
  struct sl_segment_entry *entries = log->segments.entries;
  uint64_t end_ns = 0;
  for (size_t i = 0; i < log->segments.count; i++) {
    if (i + 1 < log->segments.count && entries[i + 1].thread == entries[i].thread)
      continue;
    struct stream scan = {0};
    sl_stream_start(log, &scan, &entries[i], &entries[i] + 1);
    scan.next_sequence = entries[i].sequence; /* those before it are not missed */
    while (sl_stream_advance(log, &scan))
      end_ns = scan.time_ns > end_ns ? scan.time_ns : end_ns;
    sl_stream_release(log, &scan);
  }
  return end_ns;
}
