/*
 * One thread's records as a stream: it holds one segment in memory, from its first event to its last.
 *
 * When as many bytes of segments are in memory as the log may have, further streams hold PART_BYTES of theirs, and read
 * the segment again for the next part: so a log of many threads takes a bounded amount of memory, whatever its segments
 * expand to.
 */
#include "event_table.h"
#include "log_state.h"
#include "plugin/format/clock.h"
#include "plugin/format/record_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_NS 10000000000u /* since the last change of a file */
#define PART_BYTES 32768u     /* while there is twice as much, */
#define PART_BYTES_MIN 4096u  /* and then: more than the longest record */

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
  const uint64_t now_ns = sl_clock_ns(CLOCK_REALTIME);
  return stream->next == stream->end && !stream->records.checked && stream->records.modified_ns + FRESH_NS > now_ns;
}

/* ---- what a stream holds of its segment ---- */

void sl_stream_release(struct sl_log *log, struct stream *stream) {
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
  sl_stream_release(log, stream);
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
    sl_segments_rest(&log->segments);
    /* Else it is read again, or the segment may get more records. */
    if (log->opened && (!log->following || stream->records.checked))
      sl_stream_release(log, stream);
    return false;
  }
  struct sl_segment_entry *entry = stream->next;
  stream->at = stream->stop = NULL;
  stream->in_parts = false;
  if (entry->sequence > stream->next_sequence) {
    const bool dropped = sl_dropped_has(&log->dropped, entry->thread, stream->next_sequence, entry->sequence);
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

/* Nobody wants it, and it would be given now: so it is counted, and its turn need not be found. */
static bool is_left_out(struct sl_log *log, const struct stream *stream) {
  if (LIKELY(!(log->left_out[stream->type / 64] >> stream->type % 64 & 1)) || stream->time_ns > log->until_ns ||
      stream->thread == 0)
    return false;
  log->counts.events++;
  if (stream->time_ns > log->left_out_ns)
    log->left_out_ns = stream->time_ns;
  return true;
}

/* What a record of any kind needs: one at the end of a segment, with a tail, of another version, damaged. */
static __attribute__((noinline)) bool advance_by_any(struct sl_log *log, struct stream *stream) {
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
    if (UNLIKELY(log->dropped.until_ns) && sl_dropped_has_record(log, stream, time))
      continue;
    if (time > stream->time_ns)
      stream->time_ns = time;
    if (is_left_out(log, stream))
      continue;
    return true;
  }
}

/* Over records that are nothing but their event, as nearly all are. false: the next one is another. */
static inline bool advance_by_plain(struct sl_log *log, struct stream *stream) {
  struct sl_record_header header;
  while (LIKELY((size_t)(stream->stop - stream->at) >= sizeof(header))) {
    memcpy(&header, stream->at, sizeof(header));
    const size_t bytes = log->plain_words[header.type] * 8u;
    if (header.words * 8u != bytes || bytes == 0 || (size_t)(stream->stop - stream->at) < bytes)
      return false;
    stream->type = header.type;
    stream->payload = stream->at + sizeof(header);
    stream->bytes = (uint32_t)(bytes - sizeof(header));
    stream->at += bytes;
    const uint64_t time = stream->base_ns + header.delta_ns;
    if (time > stream->time_ns)
      stream->time_ns = time;
    if (!is_left_out(log, stream))
      return true;
  }
  return false;
}

bool sl_stream_advance(struct sl_log *log, struct stream *stream) {
  if (LIKELY(stream->records.checked && !log->dropped.until_ns) && advance_by_plain(log, stream))
    return true;
  return advance_by_any(log, stream);
}

void sl_stream_plain(struct sl_log *log) {
  for (int type = 0; type < 256; type++) {
    const struct sl_event_layout *layout = sl_event_layout((uint8_t)type);
    const bool is_plain = layout->name && layout->tail < 0 && type != SL_EVENT_time_base && type != SL_EVENT_thread;
    log->plain_words[type] = is_plain ? (uint8_t)((sizeof(struct sl_record_header) + layout->bytes) / 8) : 0;
  }
}

/* ---- where it begins and goes on ---- */

/* Its head is the time of its first segment, without a type. */
void sl_stream_start(struct sl_log *log, struct stream *stream, struct sl_segment_entry *first,
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

void sl_stream_reload(struct sl_log *log, struct stream *stream, const struct sl_segment_entry *entry) {
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
