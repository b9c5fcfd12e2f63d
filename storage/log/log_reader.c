/* Opens a process's log, follows one that grows, and tells what is known of it besides its events. */
#include "log_reader.h"

#include "log_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX (128u << 20)

static const char *const own_strings[OWN_COUNT] = {
    [OWN_LOG] = "log",
    [OWN_ALLOCATOR] = "allocator",
    [OWN_DAMAGED] = "a segment of the log is damaged",
    [OWN_MISSING] = "a segment of the log is missing",
    [OWN_HOLE] = "allocator events are missing from their sequence",
};

/* ---- opening ---- */

static int stream_add(struct sl_log *log, struct sl_segment_entry *first, struct sl_segment_entry *end) {
  struct stream *stream = sl_merge_reserve(log) < 0 ? NULL : calloc(1, sizeof(*stream));
  if (!stream)
    return -ENOMEM;
  sl_stream_start(log, stream, first, end);
  log->streams[log->stream_count++] = stream;
  sl_merge_add(log, stream);
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
      sl_stream_start(log, &log->definitions, entry, next);
    else
      r = stream_add(log, entry, next);
  }
  return r;
}

/* What was dropped must be known before the first event; the rest of these records are a stream like any other. */
static int read_dropped(struct sl_log *log) {
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
  while (r == 0 && sl_stream_advance(log, &scan))
    r = sl_dropped_take(&log->dropped, &scan);
  sl_dropped_sort(&log->dropped);
  if (r == 0)
    r = sl_merge_reserve(log);
  if (r < 0) {
    sl_stream_release(log, stream);
    free(stream);
    return r;
  }
  log->streams[log->stream_count++] = stream;
  sl_merge_add(log, stream);
  return 0;
}

static struct sl_log *log_new(void) {
  struct sl_log *log = calloc(1, sizeof(*log));
  if (!log)
    return NULL;
  log->waiting_until_ns = log->until_ns = UINT64_MAX;
  log->to_release = NO_DEVICE;
  log->held_max = HELD_MAX;
  memset(log->place_device, NO_DEVICE, sizeof(log->place_device));
  sl_stream_plain(log);
  return log;
}

struct sl_log *sl_log_of(const struct sl_log_source *source, uint64_t bytes) {
  struct sl_log *log = log_new();
  if (!log)
    return NULL;
  log->source = *source;
  log->opened = true;
  log->counts.bytes = bytes;
  return log;
}

int sl_log_make_known(struct sl_log *log, uint8_t type, const void *fields) {
  return sl_definition_take(log, type, fields);
}

int sl_log_open(const char *directory, struct sl_log **out, struct sl_error *error) {
  struct sl_log *log = log_new();
  *out = NULL;
  if (!log)
    return sl_no_memory(error);
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
    r = sl_definitions_read(log);
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
    sl_stream_start(log, &log->definitions, definitions.next, definitions.end);
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

/* The stream's entries of a new look: those that it has used up, the one that it stands in, those that follow. */
static void stream_continue(struct sl_log *log, struct stream *stream, struct sl_segment_entry *first,
                            struct sl_segment_entry *end) {
  for (; first < end && first->sequence < stream->next_sequence; first++) {
    first->done = !stream->in_parts || first->sequence + 1 != stream->next_sequence;
    if (first->sequence + 1 == stream->next_sequence)
      sl_stream_reload(log, stream, first);
  }
  stream->next = first;
  stream->end = end;
  if (stream->idle && sl_stream_advance(log, stream)) {
    stream->idle = false;
    sl_merge_look_at(log, stream);
    sl_merge_add(log, stream);
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
    sl_merge_advance(log);
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

/* ---- what is known of it ---- */

void sl_log_limit(struct sl_log *log, uint64_t bytes) {
  log->held_max = bytes;
}

void sl_log_hold(struct sl_log *log, uint64_t until_ns) {
  log->until_ns = until_ns;
}

void sl_log_leave_out(struct sl_log *log, uint8_t type) {
  log->left_out[type / 64] |= 1ull << type % 64;
}

uint64_t sl_log_left_out_ns(const struct sl_log *log) {
  return log->left_out_ns;
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

bool sl_log_is_lost_stretch(const struct sl_log *log, const struct sl_event_gap *gap) {
  return strcmp(sl_log_string(log, gap->source), "log") == 0;
}

const char *sl_log_info(const struct sl_log *log, const char *key) {
  return sl_log_names_fact(&log->names, key);
}

int64_t sl_log_info_number(const struct sl_log *log, const char *key) {
  const char *text = sl_log_info(log, key);
  return text && *text ? strtoll(text, NULL, 10) : -1;
}

void sl_log_counts(const struct sl_log *log, struct sl_log_counts *out) {
  *out = log->counts;
  for (size_t i = 0; i < sizeof(log->newer) / sizeof(log->newer[0]); i++)
    out->newer_kinds += (unsigned)__builtin_popcountll(log->newer[i]);
}

uint64_t sl_log_bytes_read(const struct sl_log *log) {
  return log->source.next ? log->source.bytes_read(log->source.context) : log->bytes_read;
}

struct sl_log *sl_log_close(struct sl_log *log) {
  if (!log)
    return NULL;
  if (log->source.close)
    log->source.close(log->source.context);
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
