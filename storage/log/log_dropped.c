/*
 * What was dropped to make room, as SL_DROPPED_NAME tells it. Some of it is still there, in segments that began before
 * the part or were still in use, and must not be read twice.
 */
#include "event_table.h"
#include "log_state.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_ranges(const void *left, const void *right) {
  const struct sl_event_dropped_segments *a = left, *b = right;
  if (a->thread != b->thread)
    return a->thread < b->thread ? -1 : 1;
  return (a->from > b->from) - (a->from < b->from);
}

bool sl_dropped_has(const struct dropped *dropped, uint32_t thread, uint32_t from, uint32_t until) {
  size_t low = 0, high = dropped->segment_count; /* the last range that begins no later */
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const struct sl_event_dropped_segments *range = &dropped->segments[middle];
    if (range->thread < thread || (range->thread == thread && range->from <= from))
      low = middle + 1;
    else
      high = middle;
  }
  const struct sl_event_dropped_segments *range = low ? &dropped->segments[low - 1] : NULL;
  return range && range->thread == thread && until <= range->until;
}

/* An allocator event is by its number, like everything about its order. */
bool sl_dropped_has_record(const struct sl_log *log, const struct stream *stream, uint64_t time) {
  const struct dropped *dropped = &log->dropped;
  if (stream->thread == SL_DROPPED_THREAD || stream->thread == 0)
    return false;
  if (stream->type == SL_EVENT_allocator) {
    const struct sl_event_allocator *event = stream->payload;
    const uint8_t device = log->place_device[event->place];
    if (device != NO_DEVICE && dropped->allocators[device].known)
      return event->sequence - dropped->allocators[device].from <
             dropped->allocators[device].until - dropped->allocators[device].from;
  }
  if (sl_event_is_of_device(stream->type)) /* recorded some time after it happened */
    memcpy(&time, stream->payload, sizeof(time));
  return time >= dropped->from_ns && time < dropped->until_ns;
}

static int segments_add(struct dropped *dropped, const struct sl_event_dropped_segments *range) {
  struct sl_event_dropped_segments *added = SL_LIST_ADD(dropped->segments, dropped->segment_count);
  if (!added)
    return -ENOMEM;
  *added = *range;
  return 0;
}

int sl_dropped_take(struct dropped *dropped, const struct stream *stream) {
  if (stream->type == SL_EVENT_dropped) {
    const struct sl_event_dropped *event = stream->payload;
    dropped->from_ns = event->from_ns;
    dropped->until_ns = event->until_ns;
  } else if (stream->type == SL_EVENT_dropped_allocator) {
    const struct sl_event_dropped_allocator *event = stream->payload;
    if (event->device < DEVICES_MAX) {
      dropped->allocators[event->device].known = true;
      dropped->allocators[event->device].from = event->from;
      dropped->allocators[event->device].until = event->until;
    }
  } else if (stream->type == SL_EVENT_dropped_segments) {
    return segments_add(dropped, stream->payload);
  }
  return 0;
}

void sl_dropped_sort(struct dropped *dropped) {
  if (dropped->segment_count)
    qsort(dropped->segments, dropped->segment_count, sizeof(*dropped->segments), compare_ranges);
}
