/* Ranges are followed as they open and close; what is left at the end is open there. */
#include "kept_ranges.h"

#include "plugin/format/events.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_DEPTH 512u /* deeper ones are counted only; phases stop there as well */

struct open_range {
  struct sl_event_kept_range range;
  struct open_range *outer; /* of the same thread; of ranges that were pushed */
};

struct sl_kept_thread {
  uint32_t ordinal;
  uint32_t depth;
  struct open_range *innermost; /* of those above MAX_DEPTH */
  UT_hash_handle hh;
};

struct sl_kept_start { /* by id */
  uint64_t id;
  struct sl_event_kept_range range;
  UT_hash_handle hh;
};

static struct sl_kept_thread *thread_of(struct sl_kept_ranges *ranges, uint32_t ordinal) {
  struct sl_kept_thread *thread;
  SL_HASH_FIND_OR_ADD(ranges->threads, ordinal, ordinal, thread);
  return thread;
}

static int range_open(struct sl_kept_ranges *ranges, const struct sl_event_kept_range *range) {
  if (range->id) {
    struct sl_kept_start *started = calloc(1, sizeof *started);
    if (!started)
      return -ENOMEM;
    started->id = range->id;
    started->range = *range;
    SL_HASH_ADD(ranges->started, id, started);
    return started ? 0 : -ENOMEM;
  }
  struct sl_kept_thread *thread = thread_of(ranges, range->thread);
  if (thread && thread->depth++ >= MAX_DEPTH)
    return 0;
  struct open_range *open = thread ? malloc(sizeof *open) : NULL;
  if (!open)
    return -ENOMEM;
  *open = (struct open_range){*range, thread->innermost};
  thread->innermost = open;
  return 0;
}

static void range_pop(struct sl_kept_ranges *ranges, uint32_t ordinal, uint16_t domain) {
  struct sl_kept_thread *thread;
  HASH_FIND(hh, ranges->threads, &ordinal, sizeof ordinal, thread);
  if (thread && thread->depth > MAX_DEPTH) {
    thread->depth--;
    return;
  }
  for (struct open_range **at = thread ? &thread->innermost : NULL; at && *at; at = &(*at)->outer)
    if ((*at)->range.domain == domain) {
      struct open_range *open = *at;
      *at = open->outer;
      free(open);
      thread->depth--;
      return;
    }
}

static void range_end(struct sl_kept_ranges *ranges, uint64_t id) {
  struct sl_kept_start *started;
  HASH_FIND(hh, ranges->started, &id, sizeof id, started);
  if (started) {
    HASH_DEL(ranges->started, started);
    free(started);
  }
}

void sl_kept_ranges_clear(struct sl_kept_ranges *ranges) {
  struct sl_kept_thread *thread, *next_thread;
  HASH_ITER(hh, ranges->threads, thread, next_thread) {
    for (struct open_range *open = thread->innermost, *outer; open; open = outer) {
      outer = open->outer;
      free(open);
    }
    HASH_DEL(ranges->threads, thread);
    free(thread);
  }
  SL_HASH_FREE(ranges->started);
}

int sl_kept_ranges_event(struct sl_kept_ranges *ranges, const struct sl_event *event) {
  const void *payload = event->payload;
  switch (event->type) {
  case SL_EVENT_kept_range: return range_open(ranges, payload);
  case SL_EVENT_range_push: {
    const struct sl_event_range_push *e = payload;
    const struct sl_event_kept_range range = {event->time_ns, e->value, 0,         event->thread,
                                              event->tid,     e->name,  e->domain, e->category};
    return range_open(ranges, &range);
  }
  case SL_EVENT_range_pop:
    range_pop(ranges, event->thread, ((const struct sl_event_range_pop *)payload)->domain);
    return 0;
  case SL_EVENT_range_start: {
    const struct sl_event_range_start *e = payload;
    const struct sl_event_kept_range range = {event->time_ns, e->value, e->id,     event->thread,
                                              event->tid,     e->name,  e->domain, e->category};
    return range_open(ranges, &range);
  }
  case SL_EVENT_range_end: range_end(ranges, ((const struct sl_event_range_end *)payload)->id); return 0;
  default: return 0;
  }
}

static int put_pushed(struct sl_dropped_file *file, uint64_t at_ns, const struct sl_kept_thread *thread) {
  const struct open_range *inwards[MAX_DEPTH];
  uint32_t count = 0;
  int r = 0;
  for (const struct open_range *open = thread->innermost; open && count < MAX_DEPTH; open = open->outer)
    inwards[count++] = open;
  while (count-- > 0 && r == 0)
    r = sl_dropped_put(file, at_ns, SL_EVENT_kept_range, &inwards[count]->range, sizeof inwards[count]->range);
  return r;
}

int sl_kept_ranges_put(const struct sl_kept_ranges *ranges, struct sl_dropped_file *file, uint64_t at_ns) {
  int r = 0;
  for (const struct sl_kept_thread *thread = ranges->threads; thread && r == 0; thread = thread->hh.next)
    r = put_pushed(file, at_ns, thread);
  for (const struct sl_kept_start *started = ranges->started; started && r == 0; started = started->hh.next)
    r = sl_dropped_put(file, at_ns, SL_EVENT_kept_range, &started->range, sizeof started->range);
  return r;
}
