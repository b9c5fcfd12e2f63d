/*
 * Merging a process's threads: the streams' next events are in a heap by time.
 *
 * A stream whose next event is an allocator event that is not yet due by its sequence number waits outside the heap.
 * Real logs let it wait for nanoseconds only (the clock was read under the same lock as the number), so when the
 * others get HOLE_NS ahead, the numbers in between are taken for lost.
 *
 * Streams that wait are in two orders: by time, for who has waited longest, and for each device by sequence number, for
 * whose turn comes next. So what one event costs grows with the logarithm of the number of threads only.
 */
#include "log_state.h"
#include "storage/grow.h"

#include <errno.h>

#define HOLE_NS 10000000u

static bool before(const struct stream *a, const struct stream *b) {
  return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->thread < b->thread;
}

static void heap_sink(struct sl_log *log, size_t at) {
  struct stream **heap = log->heap, *moving = heap[at];
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= log->heap_count)
      break;
    if (child + 1 < log->heap_count && before(heap[child + 1], heap[child]))
      child++;
    if (!before(heap[child], moving))
      break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moving;
}

int sl_merge_reserve(struct sl_log *log) {
  struct stream ***lists[] = {&log->streams, &log->heap, &log->waiting};
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    struct stream **grown = sl_list_grow(*lists[i], log->stream_count, sizeof(*grown));
    if (!grown)
      return -ENOMEM;
    *lists[i] = grown;
  }
  return 0;
}

void sl_merge_add(struct sl_log *log, struct stream *stream) {
  log->second_ns = 0;
  size_t at = log->heap_count++;
  while (at > 0 && before(stream, log->heap[(at - 1) / 2])) {
    log->heap[at] = log->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  log->heap[at] = stream;
}

/* The first stream's next event has become a later one. */
static void first_sink(struct sl_log *log) {
  heap_sink(log, 0);
  const uint64_t left_ns = log->heap_count > 1 ? log->heap[1]->time_ns : UINT64_MAX;
  const uint64_t right_ns = log->heap_count > 2 ? log->heap[2]->time_ns : UINT64_MAX;
  log->second_ns = left_ns < right_ns ? left_ns : right_ns;
}

static void heap_drop_first(struct sl_log *log) {
  log->second_ns = 0;
  log->heap[0] = log->heap[--log->heap_count];
  if (log->heap_count)
    heap_sink(log, 0);
}

static const struct sl_event_allocator *allocator_event(const struct stream *stream) {
  return stream->payload;
}

/* ---- streams that wait for their turn ---- */

static void waiting_put(struct sl_log *log, size_t at, struct stream *stream) {
  log->waiting[at] = stream;
  stream->waiting_at = at;
}

static void waiting_rise(struct sl_log *log, size_t at, struct stream *stream) {
  for (; at > 0 && before(stream, log->waiting[(at - 1) / 2]); at = (at - 1) / 2)
    waiting_put(log, at, log->waiting[(at - 1) / 2]);
  waiting_put(log, at, stream);
}

static void waiting_remove(struct sl_log *log, const struct stream *removed) {
  struct stream *moving = log->waiting[--log->waiting_count];
  size_t at = removed->waiting_at;
  if (moving == removed)
    return;
  for (size_t child; (child = 2 * at + 1) < log->waiting_count; at = child) {
    if (child + 1 < log->waiting_count && before(log->waiting[child + 1], log->waiting[child]))
      child++;
    if (!before(log->waiting[child], moving))
      break;
    waiting_put(log, at, log->waiting[child]);
  }
  waiting_rise(log, at, moving);
}

static void update_waiting_until(struct sl_log *log) {
  log->waiting_until_ns = log->waiting_count ? log->waiting[0]->time_ns + HOLE_NS : UINT64_MAX;
}

/* A pairing heap: the first of both, the other one below it. */
static struct stream *order_join(struct stream *a, struct stream *b) {
  if (!a || !b)
    return a ? a : b;
  if ((int32_t)(allocator_event(b)->sequence - allocator_event(a)->sequence) < 0) {
    struct stream *first = b;
    b = a;
    a = first;
  }
  b->neighbor = a->lower;
  a->lower = b;
  return a;
}

/* Takes the first one out: what is below it is joined in pairs, and the pairs with each other. */
static void order_drop_first(struct order *order) {
  struct stream *rest = order->waiting->lower, *pairs = NULL, *all = NULL;
  while (rest) {
    struct stream *one = rest, *other = rest->neighbor;
    rest = other ? other->neighbor : NULL;
    one->neighbor = NULL;
    if (other)
      other->neighbor = NULL;
    struct stream *pair = order_join(one, other);
    pair->neighbor = pairs;
    pairs = pair;
  }
  while (pairs) {
    struct stream *next = pairs->neighbor;
    pairs->neighbor = NULL;
    all = order_join(all, pairs);
    pairs = next;
  }
  order->waiting = all;
}

/* Takes the heap's first stream out, to wait for its turn. */
static void wait_for_turn(struct sl_log *log, struct stream *stream) {
  heap_drop_first(log);
  stream->lower = stream->neighbor = NULL;
  waiting_rise(log, log->waiting_count++, stream);
  struct order *order = &log->orders[stream->device];
  order->waiting = order_join(order->waiting, stream);
  update_waiting_until(log);
}

/* Puts those back into the heap whose turn it is. */
static void release_due(struct sl_log *log, uint8_t device) {
  struct order *order = &log->orders[device];
  struct stream *stream;
  while ((stream = order->waiting) && (int32_t)(allocator_event(stream)->sequence - order->due) <= 0) {
    order_drop_first(order);
    waiting_remove(log, stream);
    sl_merge_add(log, stream);
  }
  update_waiting_until(log);
}

/* Nothing fills the hole before the stream that has waited longest: it becomes a gap, and the order goes on behind. */
static uint32_t skip_hole(struct sl_log *log, struct stream **at) {
  const uint8_t device = log->waiting[0]->device;
  struct order *order = &log->orders[device];
  *at = order->waiting;
  const uint32_t lost = allocator_event(*at)->sequence - order->due;
  order->due += lost;
  release_due(log, device);
  return lost;
}

/* The stream's next event becomes known: where it is an allocator event, of which device? */
void sl_merge_look_at(const struct sl_log *log, struct stream *stream) {
  stream->device = NO_DEVICE;
  if (stream->type == SL_EVENT_allocator && stream->thread != SL_DROPPED_THREAD)
    stream->device = log->place_device[allocator_event(stream)->place];
}

static inline void give(struct sl_log *log, const struct stream *stream, struct sl_event *event) {
  *event = (struct sl_event){.type = stream->type,
                             .thread = stream->given,
                             .tid = stream->tid,
                             .bytes = stream->bytes,
                             .time_ns = stream->time_ns,
                             .salvaged = stream->thread == SL_DROPPED_THREAD,
                             .payload = stream->payload};
  log->counts.events++;
  if (UNLIKELY(stream->type == SL_EVENT_dropped_allocator) && event->salvaged) {
    /* The order goes on behind the gap. */
    const struct sl_event_dropped_allocator *gap = stream->payload;
    if (gap->device < DEVICES_MAX) {
      log->orders[gap->device].due = gap->until;
      log->to_release = log->orders[gap->device].waiting ? (uint8_t)gap->device : log->to_release;
    }
  }
  if (UNLIKELY(stream->type == SL_EVENT_gap))
    log->counts.lost += ((const struct sl_event_gap *)stream->payload)->lost;
}

static void give_hole(struct sl_log *log, const struct stream *behind, uint32_t lost, struct sl_event *event) {
  log->gap = (struct sl_event_gap){.source = OWN_STRING + OWN_ALLOCATOR, .reason = OWN_STRING + OWN_HOLE, .lost = lost};
  *event = (struct sl_event){.type = SL_EVENT_gap,
                             .thread = behind->given,
                             .tid = behind->tid,
                             .bytes = sizeof(log->gap),
                             .time_ns = behind->time_ns,
                             .payload = &log->gap};
  log->counts.events++;
  log->counts.lost += lost;
}

/* The event that was given last, by heap[0], is done with. */
static inline void advance(struct sl_log *log) {
  struct stream *stream = log->current;
  log->current = NULL;
  if (UNLIKELY(!sl_stream_advance(log, stream))) {
    stream->idle = true;
    heap_drop_first(log);
  } else {
    sl_merge_look_at(log, stream);
    if (stream->time_ns >= log->second_ns)
      first_sink(log);
  }
  if (UNLIKELY(log->to_release != NO_DEVICE)) {
    release_due(log, log->to_release);
    log->to_release = NO_DEVICE;
  }
}

void sl_merge_advance(struct sl_log *log) {
  advance(log);
}

/* True when the heap's first event is given now; else it is an allocator event before its turn. */
static bool is_its_turn(struct sl_log *log, const struct stream *stream) {
  if (stream->device == NO_DEVICE)
    return true;
  struct order *order = &log->orders[stream->device];
  const int32_t ahead = (int32_t)(allocator_event(stream)->sequence - order->due);
  if (UNLIKELY(ahead > 0))
    return false;
  /* One that comes after its hole was given up is late, but better than never. */
  if (LIKELY(ahead == 0)) {
    order->due++;
    if (UNLIKELY(order->waiting))
      log->to_release = stream->device;
  }
  return true;
}

int sl_log_next(struct sl_log *log, struct sl_event *event, struct sl_error *error) {
  if (UNLIKELY(log->source.next != NULL)) {
    const int r = log->source.next(log->source.context, event, error);
    log->counts.events += r > 0;
    return r;
  }
  if (UNLIKELY(log->in_definitions)) {
    if (sl_stream_advance(log, &log->definitions)) {
      if (log->following && sl_definition_take(log, log->definitions.type, log->definitions.payload) < 0)
        return sl_error_set(error, -ENOMEM, "out of memory while reading the definitions in %s",
                            log->segments.directory);
      give(log, &log->definitions, event);
      return 1;
    }
    log->in_definitions = log->in_trouble != 0;
  }
  for (;;) {
    if (LIKELY(log->current != NULL))
      advance(log);
    if (UNLIKELY(log->in_trouble)) {
      *error = log->trouble;
      return log->in_trouble;
    }
    const uint64_t next_ns = log->heap_count ? log->heap[0]->time_ns : UINT64_MAX;
    if (UNLIKELY(next_ns > log->waiting_until_ns || log->heap_count == 0)) {
      /* Where events are held back, what fills the hole may be among them, or not be written yet. */
      if (log->waiting_count == 0 || log->waiting_until_ns >= log->until_ns)
        return 0;
      struct stream *behind;
      const uint32_t lost = skip_hole(log, &behind);
      give_hole(log, behind, lost, event);
      return 1;
    }
    if (UNLIKELY(next_ns > log->until_ns))
      return 0;
    struct stream *stream = log->heap[0];
    if (UNLIKELY(stream->type == 0)) { /* Its first segment is due. */
      log->current = stream;
      continue;
    }
    if (UNLIKELY(!is_its_turn(log, stream))) {
      wait_for_turn(log, stream);
      continue;
    }
    give(log, stream, event);
    log->current = stream;
    return 1;
  }
}
