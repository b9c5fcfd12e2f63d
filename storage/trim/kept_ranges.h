/* Which ranges are open where the dropped part of a log ends: a reader goes on with them. */
#ifndef SHARDLEDGER_KEPT_RANGES_H
#define SHARDLEDGER_KEPT_RANGES_H

#include "dropped_file.h"
#include "storage/log/log_reader.h"

struct sl_kept_thread;
struct sl_kept_start;

struct sl_kept_ranges {           /* zero at first */
  struct sl_kept_thread *threads; /* owned; with what they have pushed */
  struct sl_kept_start *started;  /* owned; by id */
};

/* Takes a range event, also a kept_range of an older gap; others are ignored. 0 or -ENOMEM. */
int sl_kept_ranges_event(struct sl_kept_ranges *ranges, const struct sl_event *event);

/* Appends them to what stands for the part, those of a thread from the outermost on. 0 or a negative errno. */
int sl_kept_ranges_put(const struct sl_kept_ranges *ranges, struct sl_dropped_file *file, uint64_t at_ns);

void sl_kept_ranges_clear(struct sl_kept_ranges *ranges);

#endif
