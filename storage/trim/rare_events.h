/*
 * Copies of the rare events in the part of a log that is dropped, of which state follows: driver allocations that are
 * alive, segments, contexts, loaded code, communicators, gaps. What was made and ended within it leaves no trace.
 */
#ifndef SHARDLEDGER_RARE_EVENTS_H
#define SHARDLEDGER_RARE_EVENTS_H

#include "dropped_file.h"
#include "storage/log/log_reader.h"

#include <stdbool.h>

struct sl_rare_copy;

struct sl_rare_events {                     /* zero at first */
  struct sl_rare_copy *first, *last, *made; /* owned; in order, and by what they make */
};

/* Whether it is such an event. */
bool sl_is_rare(const struct sl_event *event);

/* Copies an event. device: of the place of an allocator event. 0 or -ENOMEM. */
int sl_rare_add(struct sl_rare_events *rare, const struct sl_event *event, uint8_t device);

/* Appends them to what stands for the part. 0 or a negative errno. */
int sl_rare_put(const struct sl_rare_events *rare, struct sl_dropped_file *file);

void sl_rare_clear(struct sl_rare_events *rare);

#endif
