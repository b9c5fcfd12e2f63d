/*
 * Merging a process's threads. Each thread is a stream that holds one segment in memory, from its first event to its
 * last; the streams' next events are in a heap by time.
 *
 * A stream whose next event is an allocator event that is not yet due by its sequence number waits outside the heap.
 * Real logs let it wait for nanoseconds only (the clock was read under the same lock as the number), so when the
 * others get HOLE_NS ahead, the numbers in between are taken for lost.
 *
 * Streams that wait are in two orders: by time, for who has waited longest, and for each device by sequence number, for
 * whose turn comes next. So what one event costs grows with the logarithm of the number of threads only.
 *
 * When HELD_MAX bytes of segments are in memory, further streams hold PART_BYTES of theirs, and read the segment again
 * for the next part: so a log of many threads takes a bounded amount of memory, whatever its segments expand to.
 *
 * This is one file, though a long one, because reading a stream and merging the streams are one inner loop.
 */
#include "log_reader.h"

#include "event_table.h"
#include "log_names.h"
#include "log_segments.h"
#include "plugin/format/events.h"
#include "plugin/format/log_format.h"
#include "plugin/format/record_check.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define HOLE_NS 10000000u
#define FRESH_NS 10000000000u /* since the last change of a file */
#define HELD_MAX (128u << 20)
#define PART_BYTES 32768u    /* while there is twice as much, */
#define PART_BYTES_MIN 4096u /* and then: more than the longest record */
#define FIELDS_MAX 128u      /* of the longest event without a tail */
#define DEVICES_MAX SL_DEVICES_MAX
#define NO_DEVICE 0xffu
#define OWN_STRING 0xfffffff0u /* ids from here on are the reader's own, for the gaps that it reports */

#define EVENT_BEGIN(number, name, meaning)                                                                             \
  _Static_assert(sizeof(struct sl_event_##name) <= FIELDS_MAX, "records of older versions are filled up in place");
#define FIELD(type, name, kind, meaning)
#define TAIL(length_field, kind, meaning)
#define EVENT_END(name)
#include "plugin/format/events.def"
#undef EVENT_BEGIN
#undef FIELD
#undef TAIL
#undef EVENT_END

enum own_string { OWN_LOG, OWN_ALLOCATOR, OWN_DAMAGED, OWN_MISSING, OWN_HOLE, OWN_COUNT };
static const char *const own_strings[OWN_COUNT] = {
    [OWN_LOG] = "log",
    [OWN_ALLOCATOR] = "allocator",
    [OWN_DAMAGED] = "a segment of the log is damaged",
    [OWN_MISSING] = "a segment of the log is missing",
    [OWN_HOLE] = "allocator events are missing from their sequence",
};

struct stream {
  struct sl_segment_entry *next, *end; /* segments still to load */
  struct sl_records records;
  char *at, *stop;
  uint64_t base_ns;
  uint32_t thread, next_sequence; /* of the segments */
  uint32_t given, tid;            /* the thread whose events these are now */
  bool in_gap;                    /* the next event is `gap`, not a record */
  bool idle;                      /* there is no next event, until the log has grown */
  struct sl_event_gap gap;
  bool in_parts;                 /* memory holds a part of the segment only, which goes on behind it */
  uint64_t behind;               /* bytes of the segment behind the part */
  uint32_t part_from;            /* where the part begins in it */
  struct sl_segment_entry entry; /* of the segment, when in parts */

  /* The next event. */
  uint64_t time_ns;
  const void *payload;
  uint32_t bytes;
  uint8_t type;
  uint8_t device;                  /* of an allocator event */
  uint64_t filled[FIELDS_MAX / 8]; /* the payload of a record that is shorter than the event is now */

  /* While it waits for its turn. */
  size_t waiting_at;               /* its place in the order by time */
  struct stream *lower, *neighbor; /* in the device's order by sequence */
};

/* A device's allocator events. */
struct order {
  uint32_t due;           /* sequence number of the next one */
  struct stream *waiting; /* streams that wait for theirs: a pairing heap, the lowest number first */
};

/* A part of the log that was dropped to make room. */
struct dropped {
  uint64_t from_ns, until_ns; /* both 0: nothing was */
  struct {
    bool known;
    uint32_t from, until; /* sequence numbers */
  } allocators[DEVICES_MAX];
  struct sl_event_dropped_segments *segments;
  size_t segment_count, segment_capacity; /* by thread and sequence */
};

struct sl_log {
  struct sl_segments segments;
  struct dropped dropped;
  struct stream definitions;
  struct stream **streams; /* one a thread, by its ordinal */
  size_t stream_count, stream_capacity;
  struct stream **heap; /* by next event's time; [0] is the next one */
  size_t heap_count;
  struct stream **waiting; /* a heap too, by time */
  size_t waiting_count;
  uint64_t waiting_until_ns; /* time of the first hole, if nothing fills it */
  struct stream *current;    /* heap[0] when it gave the last event; to be advanced */
  uint8_t to_release;        /* the device whose order moved on with that event, while streams wait for it */
  bool in_definitions, opened;
  bool following;          /* the log may still grow */
  uint64_t until_ns;       /* events of threads after it are held back */
  uint64_t damaged_before; /* in the index, when it was looked at last */
  int in_trouble;          /* a segment can't be read for now: the negative errno; 0: no */
  struct sl_error trouble; /* why */
  struct sl_event_gap gap; /* a hole, reported by itself */

  struct order orders[DEVICES_MAX];
  uint8_t place_device[65536];
  struct sl_log_names names;

  struct sl_log_counts counts;
  uint64_t newer[256 / 64];      /* types of records that were skipped, a bit each */
  uint64_t held_max, held_bytes; /* of records, in all streams */
  struct sl_records spare;       /* a segment of which a stream takes a part */
  uint64_t unplaced; /* damaged segments whose thread is not known, and whose place was not yet found missing */
  uint64_t bytes_read;
};

/* ---- one stream ---- */

static void damage(struct sl_log *log, struct stream *stream, uint64_t bytes, enum own_string why) {
  if (!log->opened)
    return; /* The definitions are read a second time, and counted then. */
  /* A missing one may have been counted already, as a file that nothing was known about. */
  if (why == OWN_MISSING && log->unplaced > 0)
    log->unplaced--;
  else
    log->counts.damaged_segments++;
  log->counts.skipped_bytes += bytes;
  stream->in_gap = true;
  stream->gap = (struct sl_event_gap){.source = OWN_STRING + OWN_LOG, .reason = OWN_STRING + why};
}

enum verdict { RECORD_fits, RECORD_shorter, RECORD_newer, RECORD_damaged };

/*
 * The record at stream->at: its check decides whether it is whole. One of an unknown type, or longer than its event is
 * here, was written by a newer version; a shorter one by an older version. Events with a tail have one length for ever,
 * so that it is known where the tail begins.
 */
static enum verdict judge_record(const struct stream *stream, const struct sl_record_header *header) {
  const struct sl_event_layout *info = sl_event_layout(header->type);
  const size_t payload = (size_t)header->words * 8 - sizeof(*header);
  const char *fields = stream->at + sizeof(*header);
  enum verdict verdict = RECORD_fits;
  if (header->words == 0 || (size_t)(stream->stop - stream->at) < (size_t)header->words * 8)
    return RECORD_damaged;
  if (UNLIKELY(payload != info->bytes || info->tail >= 0 || !info->name)) {
    if (!info->name) {
      if (header->type == 0)
        return RECORD_damaged;
      verdict = RECORD_newer;
    } else if (info->tail >= 0) {
      uint32_t tail;
      if (payload < info->bytes)
        return RECORD_damaged;
      memcpy(&tail, fields + info->fields[info->tail_length].offset, sizeof(tail));
      if (tail > payload || payload != info->bytes + (((size_t)tail + 7) & ~(size_t)7))
        return RECORD_damaged;
    } else if (payload < info->bytes) {
      verdict = RECORD_shorter;
    }
  }
  if (stream->records.checked)
    return verdict;
  return sl_record_check(header->type, header->words, header->delta_ns, fields, payload) == header->check
             ? verdict
             : RECORD_damaged;
}

/* What a newer version recorded is left out, and counted. */
static void skip_newer(struct sl_log *log, uint8_t type) {
  if (!log->opened)
    return; /* as damage */
  log->counts.newer_records++;
  log->newer[type / 64] |= 1ull << type % 64;
}

/* An older version's event has no more fields than it knew: the others are 0. */
static void fill_up(struct stream *stream) {
  const size_t bytes = sl_event_layout(stream->type)->bytes;
  memset(stream->filled, 0, sizeof(stream->filled));
  memcpy(stream->filled, stream->payload, stream->bytes);
  stream->payload = stream->filled;
  stream->bytes = (uint32_t)bytes;
}

/*
 * A log that is mapped shows whole records only. One that is written in pieces, as on a network file system, may show
 * the beginning of a record before its end: what is not right in a fresh file may be so at the next look.
 */
static bool is_being_written(const struct stream *stream) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  return stream->next == stream->end && !stream->records.checked && stream->records.modified_ns + FRESH_NS > now_ns;
}

static int compare_ranges(const void *left, const void *right) {
  const struct sl_event_dropped_segments *a = left, *b = right;
  if (a->thread != b->thread)
    return a->thread < b->thread ? -1 : 1;
  return (a->from > b->from) - (a->from < b->from);
}

/* Were the segments before this one, which are missing, dropped? */
static bool is_dropped(const struct dropped *dropped, uint32_t thread, uint32_t from, uint32_t until) {
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

/* ---- what a stream holds of its segment ---- */

static void stream_release(struct sl_log *log, struct stream *stream) {
  log->held_bytes -= stream->records.size;
  sl_records_free(&stream->records);
  stream->at = stream->stop = NULL;
  stream->in_parts = false;
}

/* Where the part ends that begins there: behind a record. *is_last: nothing follows it, or nothing that is one. */
static size_t part_end(const struct sl_records *records, size_t from, size_t most, bool *is_last) {
  size_t end = from;
  while (end + sizeof(struct sl_record_header) <= records->bytes) {
    struct sl_record_header header;
    memcpy(&header, records->data + end, sizeof(header));
    const size_t bytes = header.words * 8u;
    *is_last = bytes == 0 || bytes > records->bytes - end;
    if (*is_last) /* what begins there is judged by what it says of itself */
      return end + sizeof(header);
    if (end + bytes - from > most)
      return end;
    end += bytes;
  }
  *is_last = true;
  return records->bytes;
}

static int take_part(struct sl_log *log, struct stream *stream, const struct sl_segment_entry *entry, size_t from) {
  bool is_last = false;
  int r = sl_segments_load(&log->segments, entry, &log->spare, &log->trouble);
  if (r < 0 || log->spare.bytes < from)
    return r < 0 ? r : -EBADMSG;
  const size_t most = log->held_bytes < 2 * log->held_max ? PART_BYTES : PART_BYTES_MIN;
  const size_t bytes = part_end(&log->spare, from, most, &is_last) - from;
  stream_release(log, stream);
  char *data = malloc(bytes + 8);
  if (!data)
    return -ENOMEM;
  memcpy(data, log->spare.data + from, bytes);
  stream->records = (struct sl_records){.data = data,
                                        .size = bytes + 8,
                                        .bytes = bytes,
                                        .checked = log->spare.checked,
                                        .modified_ns = log->spare.modified_ns};
  log->held_bytes += stream->records.size;
  stream->entry = *entry;
  stream->part_from = (uint32_t)from;
  stream->in_parts = !is_last;
  stream->behind = log->spare.bytes - from - bytes;
  stream->at = data;
  stream->stop = data + bytes;
  return 0;
}

/* Takes the segment's records from there on: all of them, where memory has room for it. */
static int stream_take(struct sl_log *log, struct stream *stream, const struct sl_segment_entry *entry, size_t from) {
  const size_t before = stream->records.size;
  const bool grows = log->following && entry->frame_at == SL_NOT_THERE; /* is read from where it ended */
  if (log->held_bytes - before + SL_SEGMENT_BYTES > log->held_max && !grows)
    return take_part(log, stream, entry, from);
  const int r = sl_segments_load(&log->segments, entry, &stream->records, &log->trouble);
  log->held_bytes += stream->records.size - before;
  stream->in_parts = false;
  stream->behind = 0;
  if (r < 0 || stream->records.bytes < from)
    return r < 0 ? r : -EBADMSG;
  stream->at = stream->records.data + from;
  stream->stop = stream->records.data + stream->records.bytes;
  return 0;
}

/* The segment can't be read for now: it may be the next time, so nothing of it is lost, and the log ends here with an
 * error. */
static bool is_trouble(struct sl_log *log, int r) {
  if (r != -SL_LOG_UNREADABLE && r != -ENOMEM)
    return false;
  if (!log->trouble.text[0])
    sl_error_set(&log->trouble, r, "out of memory while reading %s", log->segments.directory);
  log->in_trouble = r;
  return true;
}

static void stream_take_next_part(struct sl_log *log, struct stream *stream) {
  const struct sl_segment_entry entry = stream->entry;
  const size_t from = stream->part_from + (size_t)(stream->at - stream->records.data);
  const int r = stream_take(log, stream, &entry, from);
  if (!is_trouble(log, r) && r < 0) {
    stream->in_parts = false;
    stream->at = stream->stop = NULL;
    damage(log, stream, 0, OWN_DAMAGED);
  }
}

/* The next segment, or false at the thread's end. A segment that is missing or can't be loaded becomes a gap. */
static bool stream_load(struct sl_log *log, struct stream *stream) {
  if (stream->next == stream->end) {
    /* Else it is read again, or the segment may get more records. */
    if (log->opened && (!log->following || stream->records.checked))
      stream_release(log, stream);
    return false;
  }
  struct sl_segment_entry *entry = stream->next;
  stream->at = stream->stop = NULL;
  stream->in_parts = false;
  if (entry->sequence > stream->next_sequence) {
    const bool dropped = is_dropped(&log->dropped, entry->thread, stream->next_sequence, entry->sequence);
    stream->next_sequence = entry->sequence;
    if (dropped)
      return true;
    damage(log, stream, 0, OWN_MISSING);
    return true;
  }
  const int r = stream_take(log, stream, entry, 0);
  if (is_trouble(log, r))
    return false;
  stream->next++;
  entry->done = true;
  stream->next_sequence = entry->sequence + 1;
  stream->base_ns = entry->base_ns;
  stream->given = entry->thread;
  stream->tid = entry->tid;
  if (log->opened)
    log->bytes_read += entry->disk_bytes;
  if (r < 0) {
    damage(log, stream, entry->disk_bytes, OWN_DAMAGED);
    return true;
  }
  if (log->opened)
    log->counts.segments++;
  return true;
}

static void stream_take_gap(struct stream *stream) {
  if (stream->base_ns > stream->time_ns)
    stream->time_ns = stream->base_ns;
  stream->in_gap = false;
  stream->type = SL_EVENT_gap;
  stream->bytes = sizeof(stream->gap);
  stream->payload = &stream->gap;
}

/*
 * Is the record from the part that was dropped? Some are left of it, in segments that began before it or that were
 * still in use. An allocator event is by its number, like everything about its order.
 */
static bool is_left_over(const struct sl_log *log, const struct stream *stream, uint64_t time) {
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

/* Makes the next event of the stream its head; false at its end. Times never go back within a stream. */
static bool stream_advance(struct sl_log *log, struct stream *stream) {
  for (;;) {
    struct sl_record_header header = {0};
    if (LIKELY((size_t)(stream->stop - stream->at) >= sizeof(header)))
      memcpy(&header, stream->at, sizeof(header));
    if (UNLIKELY(header.type == 0 && header.words == 0)) {
      const size_t rest = (size_t)(stream->stop - stream->at);
      if (stream->in_parts && rest == 0) {
        stream_take_next_part(log, stream);
        continue;
      }
      if (rest > 0 && rest < sizeof(header)) {
        if (log->following && is_being_written(stream))
          return false;
        damage(log, stream, rest + stream->behind, OWN_DAMAGED);
        stream->at = stream->stop = NULL;
        stream->in_parts = false;
      }
      if (stream->in_gap) {
        stream_take_gap(stream);
        return true;
      }
      if (!stream_load(log, stream))
        return false;
      continue;
    }
    const enum verdict verdict = judge_record(stream, &header);
    if (UNLIKELY(verdict == RECORD_damaged)) {
      if (log->following && is_being_written(stream))
        return false;
      damage(log, stream, (uint64_t)(stream->stop - stream->at) + stream->behind, OWN_DAMAGED);
      stream->at = stream->stop = NULL;
      stream->in_parts = false;
      continue;
    }
    stream->type = header.type;
    stream->payload = stream->at + sizeof(header);
    stream->bytes = header.words * 8u - (uint32_t)sizeof(header);
    stream->at += header.words * 8u;
    if (UNLIKELY(verdict == RECORD_newer)) {
      skip_newer(log, header.type);
      continue;
    }
    if (UNLIKELY(verdict == RECORD_shorter))
      fill_up(stream);
    if (UNLIKELY(header.type == SL_EVENT_time_base)) {
      stream->base_ns = ((const struct sl_event_time_base *)stream->payload)->realtime_ns;
      continue;
    }
    if (UNLIKELY(header.type == SL_EVENT_thread)) {
      const struct sl_event_thread *thread = stream->payload;
      if (thread->ordinal != 0) { /* which only definitions have */
        stream->given = thread->ordinal;
        stream->tid = thread->tid;
      }
      continue;
    }
    uint64_t time = stream->base_ns + header.delta_ns;
    if (UNLIKELY(log->dropped.until_ns) && is_left_over(log, stream, time))
      continue;
    if (time > stream->time_ns)
      stream->time_ns = time;
    return true;
  }
}

/* ---- definitions ---- */

static void define_place(struct sl_log *log, const struct sl_event_allocator_place *place) {
  if (place->id < 65536 && place->device < DEVICES_MAX)
    log->place_device[place->id] = (uint8_t)place->device;
}

static int define(struct sl_log *log, const struct stream *definition) {
  switch (definition->type) {
  case SL_EVENT_string: return sl_log_names_string(&log->names, definition->payload);
  case SL_EVENT_info: return sl_log_names_info(&log->names, definition->payload);
  case SL_EVENT_allocator_place: define_place(log, definition->payload); return 0;
  default: return 0;
  }
}

static int read_definitions(struct sl_log *log) {
  int r = 0;
  while (r == 0 && stream_advance(log, &log->definitions))
    r = define(log, &log->definitions);
  return r;
}

/* ---- the merge ---- */

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

static void heap_add(struct sl_log *log, struct stream *stream) {
  size_t at = log->heap_count++;
  while (at > 0 && before(stream, log->heap[(at - 1) / 2])) {
    log->heap[at] = log->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  log->heap[at] = stream;
}

static void heap_drop_first(struct sl_log *log) {
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
    heap_add(log, stream);
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
static void look_at_head(const struct sl_log *log, struct stream *stream) {
  stream->device = NO_DEVICE;
  if (stream->type == SL_EVENT_allocator && stream->thread != SL_DROPPED_THREAD)
    stream->device = log->place_device[allocator_event(stream)->place];
}

static void give(struct sl_log *log, const struct stream *stream, struct sl_event *event) {
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
static void advance_current(struct sl_log *log) {
  struct stream *stream = log->current;
  log->current = NULL;
  if (UNLIKELY(!stream_advance(log, stream))) {
    stream->idle = true;
    heap_drop_first(log);
  } else {
    look_at_head(log, stream);
    heap_sink(log, 0);
  }
  if (UNLIKELY(log->to_release != NO_DEVICE)) {
    release_due(log, log->to_release);
    log->to_release = NO_DEVICE;
  }
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
  if (UNLIKELY(log->in_definitions)) {
    if (stream_advance(log, &log->definitions)) {
      if (log->following && define(log, &log->definitions) < 0)
        return sl_error_set(error, -ENOMEM, "out of memory while reading the definitions in %s",
                            log->segments.directory);
      give(log, &log->definitions, event);
      return 1;
    }
    log->in_definitions = log->in_trouble != 0;
  }
  for (;;) {
    if (LIKELY(log->current != NULL))
      advance_current(log);
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

/* ---- opening and closing ---- */

/* Until its first segment is due, a stream holds nothing: its head is the time of that segment, without a type. */
static void stream_start(struct sl_log *log, struct stream *stream, struct sl_segment_entry *first,
                         struct sl_segment_entry *end) {
  log->held_bytes -= stream->records.size;
  sl_records_free(&stream->records);
  *stream = (struct stream){.next = first,
                            .end = end,
                            .thread = first->thread,
                            .given = first->thread,
                            .tid = first->tid,
                            .base_ns = first->base_ns,
                            .time_ns = first->base_ns,
                            .device = NO_DEVICE};
}

static int streams_reserve(struct sl_log *log) {
  if (log->stream_count == log->stream_capacity) {
    size_t capacity = log->stream_capacity ? 2 * log->stream_capacity : 16;
    struct stream ***lists[] = {&log->streams, &log->heap, &log->waiting};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
      struct stream **larger = reallocarray(*lists[i], capacity, sizeof(*larger));
      if (!larger)
        return -ENOMEM;
      *lists[i] = larger;
    }
    log->stream_capacity = capacity;
  }
  return 0;
}

static int stream_add(struct sl_log *log, struct sl_segment_entry *first, struct sl_segment_entry *end) {
  struct stream *stream = streams_reserve(log) < 0 ? NULL : calloc(1, sizeof(*stream));
  if (!stream)
    return -ENOMEM;
  stream_start(log, stream, first, end);
  log->streams[log->stream_count++] = stream;
  heap_add(log, stream);
  return 0;
}

static int compare_streams(const void *left, const void *right) {
  const struct stream *a = *(struct stream *const *)left, *b = *(struct stream *const *)right;
  return (a->thread > b->thread) - (a->thread < b->thread);
}

static void sort_streams(struct sl_log *log) {
  if (log->stream_count)
    qsort(log->streams, log->stream_count, sizeof(*log->streams), compare_streams);
}

static int start_streams(struct sl_log *log) {
  struct sl_segment_entry *entries = log->segments.entries, *end = entries + log->segments.count;
  int r = 0;
  for (struct sl_segment_entry *entry = entries, *next; r == 0 && entry < end; entry = next) {
    for (next = entry; next < end && next->thread == entry->thread;)
      next++;
    if (entry->thread == 0)
      stream_start(log, &log->definitions, entry, next);
    else
      r = stream_add(log, entry, next);
  }
  return r;
}

static int dropped_segments_add(struct dropped *dropped, const struct sl_event_dropped_segments *range) {
  if (dropped->segment_count == dropped->segment_capacity) {
    const size_t capacity = dropped->segment_capacity ? 2 * dropped->segment_capacity : 16;
    void *larger = reallocarray(dropped->segments, capacity, sizeof(*dropped->segments));
    if (!larger)
      return -ENOMEM;
    dropped->segments = larger;
    dropped->segment_capacity = capacity;
  }
  dropped->segments[dropped->segment_count++] = *range;
  return 0;
}

/* What was dropped must be known before the first event; the rest of these records are a stream like any other. */
static int read_dropped(struct sl_log *log) {
  struct dropped *dropped = &log->dropped;
  struct stream *stream = calloc(1, sizeof(*stream));
  if (!stream)
    return -ENOMEM;
  *stream = (struct stream){.records = log->segments.dropped,
                            .at = log->segments.dropped.data,
                            .stop = log->segments.dropped.data + log->segments.dropped.bytes,
                            .base_ns = log->segments.dropped_base_ns,
                            .time_ns = log->segments.dropped_base_ns,
                            .thread = SL_DROPPED_THREAD,
                            .given = SL_DROPPED_THREAD};
  log->segments.dropped = (struct sl_records){0};
  log->held_bytes += stream->records.size;
  struct stream scan = *stream;
  int r = 0;
  while (r == 0 && stream_advance(log, &scan)) {
    if (scan.type == SL_EVENT_dropped) {
      const struct sl_event_dropped *event = scan.payload;
      dropped->from_ns = event->from_ns;
      dropped->until_ns = event->until_ns;
    } else if (scan.type == SL_EVENT_dropped_allocator) {
      const struct sl_event_dropped_allocator *event = scan.payload;
      if (event->device < DEVICES_MAX) {
        dropped->allocators[event->device].known = true;
        dropped->allocators[event->device].from = event->from;
        dropped->allocators[event->device].until = event->until;
      }
    } else if (scan.type == SL_EVENT_dropped_segments) {
      r = dropped_segments_add(dropped, scan.payload);
    }
  }
  if (dropped->segment_count)
    qsort(dropped->segments, dropped->segment_count, sizeof(*dropped->segments), compare_ranges);
  if (r == 0)
    r = streams_reserve(log);
  if (r < 0) {
    stream_release(log, stream);
    free(stream);
    return r;
  }
  log->streams[log->stream_count++] = stream;
  heap_add(log, stream);
  return 0;
}

int sl_log_open(const char *directory, struct sl_log **out, struct sl_error *error) {
  struct sl_log *log = calloc(1, sizeof(*log));
  *out = NULL;
  if (!log)
    return sl_no_memory(error);
  log->waiting_until_ns = log->until_ns = UINT64_MAX;
  log->to_release = NO_DEVICE;
  log->held_max = HELD_MAX;
  memset(log->place_device, NO_DEVICE, sizeof(log->place_device));
  int r = sl_segments_open(directory, &log->segments, error);
  if (r < 0) {
    free(log);
    return r;
  }
  if (log->segments.dropped.data)
    r = read_dropped(log);
  if (r == 0)
    r = start_streams(log);
  sort_streams(log);
  const struct stream definitions = log->definitions;
  if (r == 0 && definitions.next)
    r = read_definitions(log);
  if (r == 0 && log->in_trouble) {
    r = log->in_trouble;
    *error = log->trouble;
    sl_log_close(log);
    return r;
  }
  if (r < 0) {
    sl_log_close(log);
    return sl_error_set(error, r, "out of memory while reading the definitions in %s", directory);
  }
  if (definitions.next) {
    for (struct sl_segment_entry *entry = definitions.next; entry < definitions.end; entry++)
      entry->done = false; /* read again, to be given */
    stream_start(log, &log->definitions, definitions.next, definitions.end);
    log->in_definitions = true;
  }
  log->opened = true;
  log->counts.damaged_segments = log->unplaced = log->damaged_before = log->segments.damaged;
  log->counts.skipped_bytes = log->segments.damaged_bytes;
  log->counts.bytes = log->segments.disk_bytes;
  *out = log;
  return 0;
}

/* ---- following a log that grows ---- */

/* The segment that the stream stands in may have got more records. */
static void stream_reload(struct sl_log *log, struct stream *stream, const struct sl_segment_entry *entry) {
  if (!stream->at || stream->records.checked)
    return; /* damaged, or sealed and so whole */
  const size_t at = (size_t)(stream->at - stream->records.data);
  /* The record in front of it may be the stream's next event, and move with the rest. */
  const uintptr_t payload = (uintptr_t)stream->payload - (uintptr_t)stream->records.data;
  const size_t held = stream->records.size;
  const int r = sl_segments_load_more(&log->segments, entry, &stream->records, at);
  log->held_bytes += stream->records.size - held;
  if (r < 0)
    return;
  stream->at = stream->records.data + at;
  stream->stop = stream->records.data + stream->records.bytes;
  if (payload < at)
    stream->payload = stream->records.data + payload;
}

/* The stream's entries of a new look: those that it has used up, the one that it stands in, those that follow. */
static void stream_continue(struct sl_log *log, struct stream *stream, struct sl_segment_entry *first,
                            struct sl_segment_entry *end) {
  for (; first < end && first->sequence < stream->next_sequence; first++) {
    first->done = !stream->in_parts || first->sequence + 1 != stream->next_sequence;
    if (first->sequence + 1 == stream->next_sequence)
      stream_reload(log, stream, first);
  }
  stream->next = first;
  stream->end = end;
  if (stream->idle && stream_advance(log, stream)) {
    stream->idle = false;
    look_at_head(log, stream);
    heap_add(log, stream);
  }
}

/* Among the first ones, which are in order. */
static struct stream *stream_of_thread(const struct sl_log *log, size_t count, uint32_t thread) {
  const struct stream search = {.thread = thread}, *key = &search;
  struct stream **found = count ? bsearch(&key, log->streams, count, sizeof(*log->streams), compare_streams) : NULL;
  return found ? *found : NULL;
}

/* A thread's next segment is missing while later ones are there. */
static bool misses_segment(const struct sl_log *log) {
  const struct sl_segment_entry *entries = log->segments.entries;
  for (size_t i = 0; i < log->segments.count; i++) {
    const struct stream *stream =
        entries[i].thread ? stream_of_thread(log, log->stream_count, entries[i].thread) : &log->definitions;
    const bool is_first = i == 0 || entries[i - 1].thread != entries[i].thread;
    const uint32_t known = stream ? stream->next_sequence : 0;
    const uint32_t before = is_first || entries[i - 1].sequence + 1 < known ? known : entries[i - 1].sequence + 1;
    if (entries[i].sequence > before)
      return true;
  }
  return false;
}

int sl_log_follow(struct sl_log *log, struct sl_error *error) {
  int r = 0;
  log->following = true;
  log->in_trouble = 0;
  if (log->current)
    advance_current(log);
  r = sl_segments_update(&log->segments, error);
  if (r == 0 && misses_segment(log)) /* As at the first look: what the second one misses is missing. */
    r = sl_segments_update(&log->segments, error);
  if (r < 0)
    return r;
  if (log->segments.damaged > log->damaged_before) {
    log->counts.damaged_segments += log->segments.damaged - log->damaged_before;
    log->unplaced += log->segments.damaged - log->damaged_before;
    log->damaged_before = log->segments.damaged;
  }
  for (size_t i = 0; i < log->stream_count; i++)
    log->streams[i]->next = log->streams[i]->end = NULL;
  log->definitions.next = log->definitions.end = NULL;
  const size_t known = log->stream_count;
  struct sl_segment_entry *entries = log->segments.entries, *end = entries + log->segments.count;
  for (struct sl_segment_entry *entry = entries, *next; r == 0 && entry < end; entry = next) {
    for (next = entry; next < end && next->thread == entry->thread;)
      next++;
    struct stream *stream = entry->thread ? stream_of_thread(log, known, entry->thread) : &log->definitions;
    if (stream)
      stream_continue(log, stream, entry, next);
    else
      r = stream_add(log, entry, next);
  }
  if (log->stream_count > known)
    sort_streams(log);
  log->in_definitions = true;
  return r < 0 ? sl_error_set(error, r, "out of memory while reading %s", log->segments.directory) : 0;
}

void sl_log_limit(struct sl_log *log, uint64_t bytes) {
  log->held_max = bytes;
}

void sl_log_hold(struct sl_log *log, uint64_t until_ns) {
  log->until_ns = until_ns;
}

uint64_t sl_log_held(const struct sl_log *log) {
  return log->heap_count && log->heap[0]->time_ns > log->until_ns ? log->heap[0]->time_ns : 0;
}

uint64_t sl_log_dropped_from(const struct sl_log *log) {
  return log->dropped.until_ns ? log->dropped.from_ns : 0;
}

const struct sl_event_dropped_segments *sl_log_dropped_segments(const struct sl_log *log, size_t *count) {
  *count = log->dropped.segment_count;
  return log->dropped.segments;
}

const struct sl_segments *sl_log_segments(const struct sl_log *log) {
  return &log->segments;
}

const char *sl_log_string(const struct sl_log *log, uint32_t id) {
  if (id >= OWN_STRING && id - OWN_STRING < OWN_COUNT)
    return own_strings[id - OWN_STRING];
  const char *text = sl_log_names_text(&log->names, id);
  return text ? text : "";
}

const char *sl_log_info(const struct sl_log *log, const char *key) {
  return sl_log_names_fact(&log->names, key);
}

void sl_log_counts(const struct sl_log *log, struct sl_log_counts *out) {
  *out = log->counts;
  for (size_t i = 0; i < sizeof(log->newer) / sizeof(log->newer[0]); i++)
    out->newer_kinds += (unsigned)__builtin_popcountll(log->newer[i]);
}

uint64_t sl_log_bytes_read(const struct sl_log *log) {
  return log->bytes_read;
}

struct sl_log *sl_log_close(struct sl_log *log) {
  if (!log)
    return NULL;
  for (size_t i = 0; i < log->stream_count; i++) {
    sl_records_free(&log->streams[i]->records);
    free(log->streams[i]);
  }
  sl_records_free(&log->definitions.records);
  sl_records_free(&log->spare);
  sl_log_names_free(&log->names);
  sl_segments_close(&log->segments);
  free(log->dropped.segments);
  free(log->streams);
  free(log->heap);
  free(log->waiting);
  free(log);
  return NULL;
}
