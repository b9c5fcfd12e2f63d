/*
 * The snapshot's rows become events, one after the other: definitions first, then those of all devices and of the
 * annotations by their times.
 */
#include "snapshot_log.h"

#include "annotation_ranges.h"
#include "plugin/format/name.h"
#include "snapshot_file.h"
#include "snapshot_places.h"
#include "snapshot_start.h"
#include "storage/phases/phase.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE "torch_snapshot"

enum { DOMAIN = 1, THREAD = 1, WAITING_MAX = 8 };

/* Strings of ours, by number: they come before those of the file. */
enum own_string {
  OWN_none,
  OWN_fidelity,
  OWN_snapshot,
  OWN_config,
  OWN_config_value,
  OWN_source,
  OWN_on,
  OWN_reason,
  OWN_domain,
  OWN_source_file,
  OWN_file,
  OWN_rank,
  OWN_rank_value,
  OWN_count,
};

struct device {
  struct sl_start start;
  size_t next; /* entry of its history */
  uint64_t at_ns;
  uint32_t sequence;
  bool adds_requests, adds_ends; /* the history has no free_requested, or no free_completed: both are told at once */
};

enum stage { STRINGS, FACTS, PLACES, FRAMES, SITES, RESTORES, EXISTING, HISTORY, SUMS, DONE };

struct sl_snapshot_log {
  struct sl_mapped_file file;
  struct sl_snapshot snapshot;
  struct sl_snapshot_places places;
  struct device devices[SL_DEVICES_MAX];
  uint32_t *threads; /* of annotations */
  uint32_t thread_count;
  uint32_t *sites;       /* by frame; 0: none */
  uint32_t *site_frames; /* the other way around, from 1 */
  uint32_t site_count;
  char *texts[OWN_count]; /* owned, where they are made */
  uint64_t begins_ns;
  size_t given; /* entries */

  enum stage stage;
  size_t at;       /* in the stage */
  uint32_t device; /* likewise */
  size_t annotation;

  struct { /* what one row became */
    uint64_t time_ns;
    uint32_t thread, bytes;
    uint8_t type;
    uint64_t payload[(sizeof(struct sl_event_string) + SL_NAME_MAX + 15) / 8];
  } waiting[WAITING_MAX];
  size_t first, count;
};

/* ---- putting events ---- */

static void put(struct sl_snapshot_log *log, uint32_t thread, uint64_t time_ns, uint8_t type, const void *fields,
                size_t bytes) {
  const size_t at = log->count++;
  log->waiting[at].time_ns = time_ns;
  log->waiting[at].thread = thread;
  log->waiting[at].bytes = (uint32_t)bytes;
  log->waiting[at].type = type;
  memcpy(log->waiting[at].payload, fields, bytes);
}

#define DEFINE(log, event, ...)                                                                                        \
  do {                                                                                                                 \
    const struct sl_event_##event fields = {__VA_ARGS__};                                                              \
    put(log, 0, (log)->begins_ns, SL_EVENT_##event, &fields, sizeof fields);                                           \
  } while (0)
#define TELL(log, at_ns, event, ...)                                                                                   \
  do {                                                                                                                 \
    const struct sl_event_##event fields = {__VA_ARGS__};                                                              \
    put(log, THREAD, at_ns, SL_EVENT_##event, &fields, sizeof fields);                                                 \
  } while (0)

static uint32_t string_of(uint32_t number) {
  return number ? OWN_count - 1 + number : 0;
}

/* ---- definitions ---- */

static const char *own_text(const struct sl_snapshot_log *log, enum own_string own) {
  static const char *const constant[OWN_count] = {
      [OWN_fidelity] = "fidelity",
      [OWN_snapshot] = "snapshot",
      [OWN_config] = "allocator_config",
      [OWN_source] = SOURCE,
      [OWN_on] = "on",
      [OWN_domain] = "shardledger",
      [OWN_source_file] = "torch_snapshot",
      [OWN_rank] = "rank",
  };
  return log->texts[own] ? log->texts[own] : constant[own];
}

/* Text of string `number` of ours and the file's together; *length 0: there is none. */
static const char *string_text(const struct sl_snapshot_log *log, size_t number, size_t *length) {
  if (number < OWN_count) {
    const char *own = own_text(log, (enum own_string)number);
    *length = own ? strlen(own) : 0;
    return own;
  }
  const struct sl_snapshot_text *text = &log->snapshot.strings[number - OWN_count + 1];
  *length = text->length;
  return text->text;
}

static size_t string_count(const struct sl_snapshot_log *log) {
  return OWN_count + (log->snapshot.string_count ? log->snapshot.string_count - 1 : 0);
}

static void define_string(struct sl_snapshot_log *log, size_t number) {
  struct {
    struct sl_event_string event;
    char text[SL_NAME_MAX + 8];
  } record = {.event.id = (uint32_t)number};
  size_t length;
  const char *text = string_text(log, number, &length);
  if (!length)
    return;
  record.event.length = (uint32_t)sl_name_clean(text, sl_name_clip(text, length), record.text);
  put(log, 0, log->begins_ns, SL_EVENT_string, &record, sizeof record.event + (record.event.length + 7) / 8 * 8);
}

static void define_facts(struct sl_snapshot_log *log) {
  DEFINE(log, info, .key = OWN_fidelity, .value = OWN_snapshot);
  DEFINE(log, info, .key = OWN_source_file, .value = OWN_file);
  if (log->texts[OWN_config_value])
    DEFINE(log, info, .key = OWN_config, .value = OWN_config_value);
  if (log->texts[OWN_rank_value])
    DEFINE(log, info, .key = OWN_rank, .value = OWN_rank_value);
  DEFINE(log, source_state, .source = OWN_source, .state = OWN_on, .reason = OWN_reason);
  DEFINE(log, nvtx_domain, .id = DOMAIN, .name = OWN_domain);
}

static void define_existing(struct sl_snapshot_log *log, uint32_t device, const struct sl_start_block *block) {
  DEFINE(log, allocator_existing, .address = block->address, .bytes = block->bytes,
         .requested_bytes = block->requested_bytes, .device = device,
         .place = sl_snapshot_place_of(&log->places, device, block->stream, block->pool_owner, block->pool_id),
         .state = block->state, .starts_segment = block->starts_segment);
  if (block->stack && block->state == SL_BLOCK_ALLOCATED)
    DEFINE(log, existing_site, .address = block->address, .device = device, .site = log->sites[block->stack]);
}

/* ---- the history ---- */

/* The middle of the microsecond in which it happened. Within a device times never go back; one that is missing is the
 * one before. */
static uint64_t time_of(const struct device *device, uint64_t time_us) {
  const uint64_t at_ns = time_us && time_us < UINT64_MAX / 2000 ? time_us * 1000 + 500 : 0;
  return at_ns > device->at_ns ? at_ns : device->at_ns;
}

static const struct sl_snapshot_entry *next_entry(const struct sl_snapshot_log *log, uint32_t device) {
  const struct sl_snapshot *snapshot = &log->snapshot;
  const size_t next = log->devices[device].next;
  return next < snapshot->trace_counts[device] ? &snapshot->entries[snapshot->traces[device][next]] : NULL;
}

static void tell_entry(struct sl_snapshot_log *log, uint32_t number, const struct sl_snapshot_entry *entry,
                       uint64_t at_ns) {
  struct device *device = &log->devices[number];
  const uint32_t row = log->snapshot.traces[number][device->next++], site = entry->stack ? log->sites[entry->stack] : 0;
  const uint16_t place = log->places.of_entries[row];
  device->at_ns = at_ns;
  if (entry->note)
    TELL(log, at_ns, allocator_note, .sequence = device->sequence, .device = number, .note = string_of(entry->note));
  if (site && entry->action == SL_ALLOC)
    TELL(log, at_ns, allocator_site, .sequence = device->sequence, .device = number, .site = site);
  if (entry->action == SL_FREE_COMPLETED && device->adds_requests)
    TELL(log, at_ns, allocator, .address = entry->address, .bytes = entry->bytes, .sequence = device->sequence++,
         .place = place, .action = SL_FREE_REQUESTED);
  TELL(log, at_ns, allocator, .address = entry->address, .bytes = entry->bytes, .sequence = device->sequence++,
       .place = place, .action = entry->action);
  if (entry->action == SL_FREE_REQUESTED && device->adds_ends)
    TELL(log, at_ns, allocator, .address = entry->address, .bytes = entry->bytes, .sequence = device->sequence++,
         .place = place, .action = SL_FREE_COMPLETED);
  if (site && entry->action == SL_OUT_OF_MEMORY)
    TELL(log, at_ns, refused_site, .device = number, .site = site);
  log->given++;
}

static void tell_annotation(struct sl_snapshot_log *log, uint64_t at_ns) {
  const struct sl_snapshot_annotation *annotation = &log->snapshot.annotations[log->annotation];
  const uint32_t thread = log->threads[log->annotation++];
  if (!thread)
    return;
  if (annotation->starts) {
    const struct sl_event_range_push push = {
        .name = string_of(annotation->name), .domain = DOMAIN, .category = SL_KIND_record_function};
    put(log, thread, at_ns, SL_EVENT_range_push, &push, sizeof push);
  } else {
    const struct sl_event_range_pop pop = {.domain = DOMAIN};
    put(log, thread, at_ns, SL_EVENT_range_pop, &pop, sizeof pop);
  }
}

/* The device whose next entry is the earliest; SL_DEVICES_MAX: none has one. */
static uint32_t earliest(const struct sl_snapshot_log *log, uint64_t *at_ns) {
  uint32_t found = SL_DEVICES_MAX;
  for (uint32_t i = 0; i < SL_DEVICES_MAX; i++) {
    const struct sl_snapshot_entry *entry = next_entry(log, i);
    const uint64_t time_ns = entry ? time_of(&log->devices[i], entry->time_us) : 0;
    if (entry && (found == SL_DEVICES_MAX || time_ns < *at_ns)) {
      found = i;
      *at_ns = time_ns;
    }
  }
  return found;
}

/* A range that starts in an entry's microsecond starts before it, one that ends ends after it. false: all is told. */
static bool tell_next(struct sl_snapshot_log *log) {
  const struct sl_snapshot *snapshot = &log->snapshot;
  uint64_t at_ns = 0;
  const uint32_t device = earliest(log, &at_ns);
  if (log->annotation < snapshot->annotation_count) {
    const struct sl_snapshot_annotation *annotation = &snapshot->annotations[log->annotation];
    const uint64_t time_ns = annotation->time_us * 1000 + 500;
    if (device == SL_DEVICES_MAX || time_ns < at_ns || (time_ns == at_ns && annotation->starts)) {
      tell_annotation(log, time_ns);
      return true;
    }
  }
  if (device == SL_DEVICES_MAX)
    return false;
  tell_entry(log, device, next_entry(log, device), at_ns);
  return true;
}

/* What the allocator held when the snapshot was taken, by PyTorch's own account: what the history has to come to. */
static void tell_sums(struct sl_snapshot_log *log, uint32_t number) {
  const struct sl_snapshot *snapshot = &log->snapshot;
  struct sl_event_allocator_stats sums = {.sequence = log->devices[number].sequence, .device = number};
  uint64_t latest_ns = log->begins_ns;
  bool any = false;
  for (uint32_t i = 0; i < SL_DEVICES_MAX; i++)
    latest_ns = log->devices[i].at_ns > latest_ns ? log->devices[i].at_ns : latest_ns;
  for (size_t i = 0; i < snapshot->segment_count; i++) {
    const struct sl_snapshot_segment *segment = &snapshot->segments[i];
    if (segment->device != number)
      continue;
    any = true;
    sums.reserved_bytes += segment->bytes;
    for (size_t j = 0; j < segment->block_count; j++) {
      const struct sl_snapshot_block *block = &snapshot->blocks[segment->first_block + j];
      sums.allocated_bytes += block->state == SL_BLOCK_ALLOCATED ? block->bytes : 0;
      sums.active_bytes += block->state != SL_BLOCK_FREE ? block->bytes : 0;
      sums.requested_bytes += block->state != SL_BLOCK_FREE ? block->requested_bytes : 0;
    }
  }
  if (any || snapshot->trace_counts[number])
    put(log, THREAD, latest_ns, SL_EVENT_allocator_stats, &sums, sizeof sums);
}

/* ---- one stage after the other ---- */

static void stage_next(struct sl_snapshot_log *log) {
  log->stage = (enum stage)(log->stage + 1);
  log->at = 0;
  log->device = 0;
}

static void stage_step(struct sl_snapshot_log *log) {
  const struct sl_snapshot *snapshot = &log->snapshot;
  const size_t at = log->at++;
  switch (log->stage) {
  case STRINGS:
    if (at < string_count(log))
      return define_string(log, at);
    break;
  case FACTS:
    if (at == 0)
      return define_facts(log);
    break;
  case PLACES:
    if (at < log->places.count) {
      put(log, 0, log->begins_ns, SL_EVENT_allocator_place, &log->places.list[at], sizeof log->places.list[at]);
      return;
    }
    break;
  case FRAMES:
    if (at + 1 < snapshot->frame_count) {
      const struct sl_snapshot_frame *frame = &snapshot->frames[at + 1];
      DEFINE(log, frame, .id = (uint32_t)at + 1, .caller = frame->caller, .file = string_of(frame->file),
             .function = string_of(frame->function), .line = frame->line);
      return;
    }
    break;
  case SITES:
    if (at < log->site_count) {
      DEFINE(log, site, .id = (uint32_t)at + 1, .frame = log->site_frames[at + 1], .stack_of = SL_STACK_OF_CALLER);
      return;
    }
    break;
  case RESTORES:
    if (at < SL_DEVICES_MAX) {
      const struct sl_start *start = &log->devices[at].start;
      if (start->count)
        DEFINE(log, allocator_restore, .device = (uint32_t)at, .segments = (uint32_t)start->segments,
               .blocks = (uint32_t)start->count);
      return;
    }
    break;
  case EXISTING:
    if (log->device < SL_DEVICES_MAX) {
      if (at < log->devices[log->device].start.count)
        return define_existing(log, log->device, &log->devices[log->device].start.blocks[at]);
      sl_start_free(&log->devices[log->device++].start);
      log->at = 0;
      return;
    }
    break;
  case HISTORY:
    if (tell_next(log))
      return;
    break;
  case SUMS:
    if (at < SL_DEVICES_MAX)
      return tell_sums(log, (uint32_t)at);
    break;
  case DONE: return;
  }
  stage_next(log);
}

static int snapshot_next(void *context, struct sl_event *event, struct sl_error *error) {
  struct sl_snapshot_log *log = context;
  if (log->first == log->count) {
    log->first = log->count = 0;
    while (log->count == 0 && log->stage != DONE)
      stage_step(log);
    if (log->count == 0)
      return sl_snapshot_file_settled(&log->file, own_text(log, OWN_file), error);
  }
  const size_t at = log->first++;
  *event = (struct sl_event){.type = log->waiting[at].type,
                             .thread = log->waiting[at].thread,
                             .bytes = log->waiting[at].bytes,
                             .time_ns = log->waiting[at].time_ns,
                             .past = log->waiting[at].type == SL_EVENT_allocator ? SL_PAST_placed : SL_PAST_not,
                             .payload = log->waiting[at].payload};
  return 1;
}

static uint64_t snapshot_bytes_read(void *context) {
  const struct sl_snapshot_log *log = context;
  const size_t all = log->snapshot.entry_count;
  return log->given < all ? (uint64_t)((double)log->file.length * (double)log->given / (double)all) : log->file.length;
}

static void snapshot_close(void *context) {
  struct sl_snapshot_log *log = context;
  for (int i = 0; i < SL_DEVICES_MAX; i++)
    sl_start_free(&log->devices[i].start);
  for (int i = 0; i < OWN_count; i++)
    free(log->texts[i]);
  sl_snapshot_places_free(&log->places);
  sl_snapshot_free(&log->snapshot);
  sl_mapped_file_close(&log->file);
  free(log->threads);
  free(log->sites);
  free(log->site_frames);
  free(log);
}

/* ---- opening ---- */

static bool site_add(struct sl_snapshot_log *log, uint32_t frame) {
  if (frame && !log->sites[frame]) {
    log->sites[frame] = ++log->site_count;
    log->site_frames[log->site_count] = frame;
  }
  return true;
}

/* Each call stack that memory was asked for with is a site. */
static int sites_find(struct sl_snapshot_log *log) {
  const struct sl_snapshot *snapshot = &log->snapshot;
  log->sites = calloc((size_t)snapshot->frame_count + 1, sizeof *log->sites);
  log->site_frames = calloc((size_t)snapshot->frame_count + 1, sizeof *log->site_frames);
  if (!log->sites || !log->site_frames)
    return -ENOMEM;
  for (size_t i = 0; i < snapshot->entry_count; i++)
    if (snapshot->entries[i].action == SL_ALLOC || snapshot->entries[i].action == SL_OUT_OF_MEMORY)
      site_add(log, snapshot->entries[i].stack);
  for (size_t i = 0; i < snapshot->block_count; i++)
    site_add(log, snapshot->blocks[i].stack);
  return 0;
}

static void begin_find(struct sl_snapshot_log *log) {
  const struct sl_snapshot *snapshot = &log->snapshot;
  uint64_t first_ns = UINT64_MAX;
  for (uint32_t i = 0; i < SL_DEVICES_MAX; i++)
    for (size_t j = 0; j < snapshot->trace_counts[i]; j++) {
      const uint64_t at_ns = time_of(&log->devices[i], snapshot->entries[snapshot->traces[i][j]].time_us);
      if (at_ns && at_ns < first_ns)
        first_ns = at_ns;
    }
  for (size_t i = 0; i < snapshot->annotation_count; i++) {
    const uint64_t at_ns = snapshot->annotations[i].time_us * 1000 + 500;
    if (snapshot->annotations[i].time_us && at_ns < first_ns)
      first_ns = at_ns;
  }
  log->begins_ns = first_ns == UINT64_MAX ? log->file.changed_ns : first_ns;
  for (uint32_t i = 0; i < SL_DEVICES_MAX; i++)
    log->devices[i].at_ns = log->begins_ns;
}

static bool any_device(const struct sl_snapshot_log *log, size_t member) {
  for (uint32_t i = 0; i < SL_DEVICES_MAX; i++)
    if (*(const bool *)((const char *)&log->devices[i] + member))
      return true;
  return false;
}

/* What the ledger says of where it comes from. false: no memory. */
static bool texts_make(struct sl_snapshot_log *log, const char *path) {
  const struct sl_snapshot *snapshot = &log->snapshot;
  const int64_t rank = sl_snapshot_rank(path);
  char *file = realpath(path, NULL);
  log->texts[OWN_file] = file ? file : strdup(path);
  const bool asks = any_device(log, offsetof(struct device, adds_requests));
  const bool ends = any_device(log, offsetof(struct device, adds_ends));
  bool made =
      log->texts[OWN_file] &&
      asprintf(&log->texts[OWN_reason],
               "PyTorch's own memory snapshot: steps, modules and what tensors are is not in it; %s%s",
               snapshot->has_traces ? "times are PyTorch's time_us, without threads"
                                    : "it has no history, so it is one moment, at the file's last change",
               asks   ? "; the history has no free_requested entries, so memory counts until it could be used again"
               : ends ? "; the history has no free_completed entries, so memory counts until it was given back"
                      : "") >= 0;
  if (snapshot->settings.text && snapshot->settings.length)
    log->texts[OWN_config_value] = strndup(snapshot->settings.text, snapshot->settings.length);
  else if (snapshot->is_expandable)
    log->texts[OWN_config_value] = strdup("expandable_segments:True");
  if (rank >= 0)
    made = asprintf(&log->texts[OWN_rank_value], "%lld", (long long)rank) >= 0 && made;
  return made;
}

static int rows_read(struct sl_snapshot_log *log, const char *path, struct sl_error *error) {
  struct sl_allocator_config config;
  int r = sl_snapshot_read(log->file.data, log->file.length, path, sl_snapshot_file_release, &log->file, &log->snapshot,
                           error);
  if (r < 0)
    return r;
  sl_snapshot_file_release(&log->file, log->file.length);
  begin_find(log);
  for (uint32_t i = 0; i < SL_DEVICES_MAX; i++) {
    const bool asks = sl_trace_has(&log->snapshot, i, SL_FREE_REQUESTED);
    const bool ends = sl_trace_has(&log->snapshot, i, SL_FREE_COMPLETED);
    log->devices[i].adds_requests = ends && !asks;
    log->devices[i].adds_ends = asks && !ends;
  }
  r = texts_make(log, path) ? 0 : -ENOMEM;
  sl_allocator_config_parse(log->texts[OWN_config_value], &config);
  for (uint32_t i = 0; i < SL_DEVICES_MAX && r == 0; i++)
    r = sl_start_find(&log->snapshot, i, &config, &log->devices[i].start);
  if (r == 0)
    r = sl_snapshot_places_find(&log->snapshot, &log->places);
  for (uint32_t i = 0; i < SL_DEVICES_MAX && r == 0; i++)
    for (size_t j = 0; j < log->devices[i].start.count && r == 0; j++) {
      const struct sl_start_block *block = &log->devices[i].start.blocks[j];
      r = sl_snapshot_place_add(&log->places, i, block->stream, block->pool_owner, block->pool_id);
    }
  if (r == 0)
    r = sl_annotation_ranges_find(&log->snapshot, &log->threads, &log->thread_count);
  if (r == 0)
    r = sites_find(log);
  return r < 0 ? sl_no_memory(error) : 0;
}

/* Names are known before the first event. */
static int names_define(struct sl_snapshot_log *from, struct sl_log *log) {
  int r = 0;
  for (size_t i = 0; i < string_count(from) && r == 0; i++) {
    define_string(from, i);
    if (from->count)
      r = sl_log_make_known(log, SL_EVENT_string, from->waiting[0].payload);
    from->count = 0;
  }
  define_facts(from);
  for (size_t i = 0; i < from->count && r == 0; i++)
    r = sl_log_make_known(log, from->waiting[i].type, from->waiting[i].payload);
  from->count = 0;
  return r;
}

int sl_snapshot_log_open(const char *path, struct sl_log **out, struct sl_error *error) {
  struct sl_snapshot_log *from = calloc(1, sizeof *from);
  *out = NULL;
  if (!from)
    return sl_no_memory(error);
  int r = sl_snapshot_file_open(path, &from->file, error);
  if (r == 0)
    r = rows_read(from, path, error);
  if (sl_mapped_file_is_changed(&from->file)) /* whatever was found in it */
    r = sl_snapshot_file_settled(&from->file, path, error);
  if (r < 0) {
    snapshot_close(from);
    return r;
  }
  const struct sl_log_source source = {from, snapshot_next, snapshot_bytes_read, snapshot_close};
  struct sl_log *log = sl_log_of(&source, from->file.length);
  if (!log) {
    snapshot_close(from);
    return sl_no_memory(error);
  }
  if (names_define(from, log) < 0) {
    sl_log_close(log);
    return sl_no_memory(error);
  }
  *out = log;
  return 0;
}

int sl_recording_open(const char *path, struct sl_log **out, struct sl_error *error) {
  return sl_snapshot_is(path) ? sl_snapshot_log_open(path, out, error) : sl_log_open(path, out, error);
}
