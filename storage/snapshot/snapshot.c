/*
 * Dictionaries become rows as soon as they are whole: a frame, a block, a segment, an entry of a history, an
 * annotation. What each is shows in its keys.
 */
#include "snapshot.h"

#include "pickle_reader.h"
#include "snapshot_names.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX UINT32_MAX
#define PROGRESS_BYTES (32u << 20)

/* The reader's own values: SL_PICKLED_own and what kind of row; its number follows. A frame comes first:
 * snapshot_names.c. */
enum { OWN_PLACE = SL_PICKLED_own, OWN_BLOCK, OWN_SEGMENT, OWN_ENTRY, OWN_ANNOTATION };

struct reading {
  struct sl_snapshot *out;
  struct sl_snapshot_names names;
  struct sl_snapshot_block *loose; /* blocks by their own number, until their segment takes them */
  size_t loose_count, loose_capacity, block_capacity, segment_capacity, entry_capacity, annotation_capacity;
  const char *name;
  sl_snapshot_progress *progress;
  void *context;
  size_t told; /* as far as progress was called */
  struct sl_error *error;
};

/* The values of a dictionary, by the word of its key. */
struct fields {
  struct sl_pickled values[SL_WORD_count];
  uint64_t has; /* a bit a word */
};
_Static_assert(SL_WORD_count <= 64, "a bit a word");

static bool has(const struct fields *fields, enum sl_snapshot_word word) {
  return fields->has >> word & 1;
}

static uint64_t number(const struct sl_unpickler *reader, const struct fields *fields, enum sl_snapshot_word word) {
  return has(fields, word) ? (uint64_t)sl_unpickle_number(reader, fields->values[word]) : 0;
}

static int no_memory(struct reading *reading) {
  return sl_no_memory(reading->error);
}

static int taken(struct sl_pickled *out, int kind, uint64_t row) {
  *out = (struct sl_pickled){.number = row, .kind = (uint64_t)kind & 0xff};
  return 1;
}

/* The stack that a list of frames is; each list is looked at once. */
static int stack_of(struct reading *reading, struct sl_unpickler *reader, struct sl_pickled list, uint32_t *out) {
  *out = 0;
  const uint64_t known = sl_unpickle_list_number(reader, list);
  if (known != UINT64_MAX) {
    *out = (uint32_t)known;
    return 0;
  }
  size_t count;
  const struct sl_pickled *places = sl_unpickle_items(reader, list, &count);
  if (!count)
    return 0;
  if (!sl_snapshot_stack(&reading->names, places, count, out))
    return no_memory(reading);
  sl_unpickle_list_replace(reader, list, *out);
  return 0;
}

static int frame_read(struct reading *reading, struct sl_unpickler *reader, const struct fields *fields,
                      struct sl_pickled *out) {
  uint32_t file, function, place;
  const uint64_t line = number(reader, fields, SL_WORD_line);
  const enum sl_snapshot_word word = sl_snapshot_word(&reading->names, reader, fields->values[SL_WORD_filename]);
  if (line == 0 && (word == SL_WORD_category || word == SL_WORD_module || word == SL_WORD_phase))
    return 0; /* of an export of ours: what a frame stands for there is no code */
  if (!sl_snapshot_string(&reading->names, reader, fields->values[SL_WORD_filename], &file) ||
      !sl_snapshot_string(&reading->names, reader, fields->values[SL_WORD_name], &function) ||
      !sl_snapshot_code_at(&reading->names, file, function, line <= INT32_MAX ? (uint32_t)line : 0, &place))
    return no_memory(reading);
  return taken(out, OWN_PLACE, place);
}

static int block_read(struct reading *reading, struct sl_unpickler *reader, const struct fields *fields,
                      struct sl_pickled *out) {
  void *room = sl_list_room(reading->loose, reading->loose_count, &reading->loose_capacity, sizeof *reading->loose);
  if (!room)
    return no_memory(reading);
  reading->loose = room;
  const enum sl_snapshot_word state = sl_snapshot_word(&reading->names, reader, fields->values[SL_WORD_state]);
  const uint64_t size = number(reader, fields, SL_WORD_size);
  struct sl_snapshot_block block = {
      .address = number(reader, fields, SL_WORD_address),
      .bytes = size,
      .requested_bytes = has(fields, SL_WORD_requested_size) ? number(reader, fields, SL_WORD_requested_size) : size,
      /* "active_pending_free", in PyTorch's documentation "active_awaiting_free" */
      .state = state == SL_WORD_active_allocated ? SL_BLOCK_ALLOCATED
               : state == SL_WORD_inactive       ? SL_BLOCK_FREE
                                                 : SL_BLOCK_PENDING,
  };
  int r = has(fields, SL_WORD_frames) ? stack_of(reading, reader, fields->values[SL_WORD_frames], &block.stack) : 0;
  reading->loose[reading->loose_count] = block;
  return r < 0 ? r : taken(out, OWN_BLOCK, reading->loose_count++);
}

static void pool_read(const struct sl_unpickler *reader, const struct fields *fields, uint64_t *owner, uint64_t *id) {
  size_t count = 0;
  const struct sl_pickled *pair = has(fields, SL_WORD_segment_pool_id)
                                      ? sl_unpickle_items(reader, fields->values[SL_WORD_segment_pool_id], &count)
                                      : NULL;
  *owner = count == 2 ? (uint64_t)sl_unpickle_number(reader, pair[0]) : 0;
  *id = count == 2 ? (uint64_t)sl_unpickle_number(reader, pair[1]) : 0;
}

/* The segment's blocks, in a row, each with its address: older versions don't say it. */
static int segment_blocks(struct reading *reading, const struct sl_pickled *items, size_t count,
                          struct sl_snapshot_segment *segment) {
  struct sl_snapshot *out = reading->out;
  uint64_t address = segment->address;
  segment->first_block = out->block_count;
  for (size_t i = 0; i < count; i++) {
    if (items[i].kind != OWN_BLOCK)
      return sl_error_set(reading->error, -EBADMSG, "%s is no memory snapshot: a segment's blocks are none",
                          reading->name);
    struct sl_snapshot_block *added = SL_LIST_ADD_ROOM(out->blocks, out->block_count, &reading->block_capacity);
    if (!added)
      return no_memory(reading);
    struct sl_snapshot_block block = reading->loose[items[i].number];
    block.address = address;
    if (!block.bytes || block.bytes > segment->address + segment->bytes - address)
      return sl_error_set(reading->error, -EBADMSG,
                          "%s is damaged: the blocks of the segment at 0x%llx are larger than it is", reading->name,
                          (unsigned long long)segment->address);
    address += block.bytes;
    *added = block;
    segment->block_count++;
  }
  return 0;
}

static int segment_read(struct reading *reading, struct sl_unpickler *reader, const struct fields *fields,
                        struct sl_pickled *out) {
  struct sl_snapshot *snapshot = reading->out;
  struct sl_snapshot_segment *room =
      sl_list_room(snapshot->segments, snapshot->segment_count, &reading->segment_capacity, sizeof *room);
  if (!room)
    return no_memory(reading);
  snapshot->segments = room;
  const uint64_t device = number(reader, fields, SL_WORD_device);
  struct sl_snapshot_segment segment = {
      .address = number(reader, fields, SL_WORD_address),
      .bytes = number(reader, fields, SL_WORD_total_size),
      .stream = number(reader, fields, SL_WORD_stream),
      .device = device < SL_DEVICES_MAX ? (uint32_t)device : SL_DEVICES_MAX,
      .is_expandable = number(reader, fields, SL_WORD_is_expandable) != 0,
  };
  if (segment.device == SL_DEVICES_MAX)
    return sl_error_set(reading->error, -EBADMSG, "%s is damaged: it speaks of device %lld", reading->name,
                        (long long)device);
  if (segment.address + segment.bytes < segment.address)
    return sl_error_set(reading->error, -EBADMSG, "%s is damaged: a segment is larger than memory", reading->name);
  pool_read(reader, fields, &segment.pool_owner, &segment.pool_id);
  snapshot->is_expandable = snapshot->is_expandable || segment.is_expandable;
  size_t count;
  const struct sl_pickled *items = sl_unpickle_items(reader, fields->values[SL_WORD_blocks], &count);
  int r = segment_blocks(reading, items, count, &segment);
  if (r < 0)
    return r;
  segment.allocated_bytes = number(reader, fields, SL_WORD_allocated_size);
  segment.active_bytes = number(reader, fields, SL_WORD_active_size);
  snapshot->segments[snapshot->segment_count] = segment;
  if (snapshot->segment_count == ROWS_MAX)
    return no_memory(reading);
  return taken(out, OWN_SEGMENT, snapshot->segment_count++);
}

static uint8_t action_of(enum sl_snapshot_word word) {
  switch (word) {
  case SL_WORD_alloc: return SL_ALLOC;
  case SL_WORD_free_requested: return SL_FREE_REQUESTED;
  case SL_WORD_free_completed: return SL_FREE_COMPLETED;
  case SL_WORD_segment_alloc: return SL_SEGMENT_ALLOC;
  case SL_WORD_segment_free: return SL_SEGMENT_FREE;
  case SL_WORD_segment_map: return SL_SEGMENT_MAP;
  case SL_WORD_segment_unmap: return SL_SEGMENT_UNMAP;
  case SL_WORD_snapshot: return SL_ALLOCATOR_SNAPSHOT;
  case SL_WORD_oom: return SL_OUT_OF_MEMORY;
  default: return SL_ALLOCATOR_OTHER;
  }
}

/* A pool's number. 0 is the shared one, and one of more pools than a program has. false: no memory. */
static bool pool_number(struct sl_snapshot *snapshot, uint64_t owner, uint64_t id, uint16_t *out) {
  enum { POOLS_MAX = 4096 };
  *out = 0;
  if (!owner && !id)
    return true;
  for (uint32_t i = 1; i < snapshot->pool_count; i++)
    if (snapshot->pools[i].owner == owner && snapshot->pools[i].id == id) {
      *out = (uint16_t)i;
      return true;
    }
  const uint32_t count = snapshot->pool_count ? snapshot->pool_count : 1;
  if (count == POOLS_MAX)
    return true;
  void *grown = reallocarray(snapshot->pools, count + 1, sizeof *snapshot->pools);
  if (!grown)
    return false;
  snapshot->pools = grown;
  memset(&snapshot->pools[0], 0, sizeof snapshot->pools[0]);
  snapshot->pools[count].owner = owner;
  snapshot->pools[count].id = id;
  snapshot->pool_count = count + 1;
  *out = (uint16_t)count;
  return true;
}

static int entry_read(struct reading *reading, struct sl_unpickler *reader, const struct fields *fields,
                      struct sl_pickled *out) {
  struct sl_snapshot *snapshot = reading->out;
  const uint8_t action = action_of(sl_snapshot_word(&reading->names, reader, fields->values[SL_WORD_action]));
  struct sl_snapshot_entry entry = {
      .address = number(reader, fields, action == SL_OUT_OF_MEMORY ? SL_WORD_device_free : SL_WORD_addr),
      .bytes = number(reader, fields, SL_WORD_size),
      .stream = number(reader, fields, SL_WORD_stream),
      .time_us = number(reader, fields, SL_WORD_time_us),
      .action = action,
  };
  uint64_t owner, id;
  pool_read(reader, fields, &owner, &id);
  if (!pool_number(snapshot, owner, id, &entry.pool) ||
      (has(fields, SL_WORD_user_metadata) && action == SL_ALLOC &&
       !sl_snapshot_string(&reading->names, reader, fields->values[SL_WORD_user_metadata], &entry.note)))
    return no_memory(reading);
  if (has(fields, SL_WORD_frames)) {
    int r = stack_of(reading, reader, fields->values[SL_WORD_frames], &entry.stack);
    if (r < 0)
      return r;
  }
  if (snapshot->entry_count == ROWS_MAX)
    return no_memory(reading);
  struct sl_snapshot_entry *added =
      SL_LIST_ADD_ROOM(snapshot->entries, snapshot->entry_count, &reading->entry_capacity);
  if (!added)
    return no_memory(reading);
  *added = entry;
  return taken(out, OWN_ENTRY, snapshot->entry_count - 1);
}

static int annotation_read(struct reading *reading, struct sl_unpickler *reader, const struct fields *fields,
                           struct sl_pickled *out) {
  struct sl_snapshot *snapshot = reading->out;
  struct sl_snapshot_annotation *room =
      sl_list_room(snapshot->annotations, snapshot->annotation_count, &reading->annotation_capacity, sizeof *room);
  if (!room || snapshot->annotation_count == ROWS_MAX)
    return no_memory(reading);
  snapshot->annotations = room;
  struct sl_snapshot_annotation annotation = {
      .time_us = number(reader, fields, SL_WORD_time_us),
      .starts = sl_snapshot_word(&reading->names, reader, fields->values[SL_WORD_stage]) == SL_WORD_start,
  };
  if (!sl_snapshot_string(&reading->names, reader, fields->values[SL_WORD_name], &annotation.name))
    return no_memory(reading);
  snapshot->annotations[snapshot->annotation_count] = annotation;
  return taken(out, OWN_ANNOTATION, snapshot->annotation_count++);
}

static int dict_read(void *context, struct sl_unpickler *reader, const struct sl_pickled_pair *items, size_t count,
                     struct sl_pickled *out, struct sl_error *error) {
  (void)error; /* the reading has it */
  struct reading *reading = context;
  struct fields fields;
  const size_t at = sl_unpickle_at(reader);
  if (reading->progress && at - reading->told >= PROGRESS_BYTES) {
    reading->progress(reading->context, at);
    reading->told = at;
  }
  fields.has = 0;
  for (size_t i = 0; i < count; i++) {
    const enum sl_snapshot_word word = sl_snapshot_word(&reading->names, reader, items[i].key);
    if (word == SL_WORD_none)
      continue;
    fields.values[word] = items[i].value;
    fields.has |= (uint64_t)1 << word;
  }
  if (has(&fields, SL_WORD_action))
    return entry_read(reading, reader, &fields, out);
  if (has(&fields, SL_WORD_filename) && has(&fields, SL_WORD_line) && has(&fields, SL_WORD_name))
    return frame_read(reading, reader, &fields, out);
  if (has(&fields, SL_WORD_state) && has(&fields, SL_WORD_size))
    return block_read(reading, reader, &fields, out);
  if (has(&fields, SL_WORD_total_size) && has(&fields, SL_WORD_blocks))
    return segment_read(reading, reader, &fields, out);
  if (has(&fields, SL_WORD_stage) && has(&fields, SL_WORD_name))
    return annotation_read(reading, reader, &fields, out);
  return 0;
}

/* ---- the whole ---- */

static int no_snapshot(const struct reading *reading) {
  return sl_error_set(reading->error, -EBADMSG,
                      "%s is a pickle, but no memory snapshot of PyTorch; name a file that "
                      "torch.cuda.memory._dump_snapshot wrote",
                      reading->name);
}

static int traces_read(struct reading *reading, struct sl_unpickler *reader, struct sl_pickled list) {
  struct sl_snapshot *out = reading->out;
  size_t devices;
  const struct sl_pickled *traces = sl_unpickle_items(reader, list, &devices);
  for (size_t device = 0; device < devices; device++) {
    size_t count;
    const struct sl_pickled *items = sl_unpickle_items(reader, traces[device], &count);
    if (!count)
      continue;
    if (device >= SL_DEVICES_MAX)
      return sl_error_set(reading->error, -EBADMSG, "%s is damaged: it speaks of device %zu", reading->name, device);
    uint32_t *numbers = malloc(count * sizeof *numbers);
    if (!numbers)
      return no_memory(reading);
    free(out->traces[device]);
    out->traces[device] = numbers;
    out->trace_counts[device] = count;
    out->has_traces = true;
    for (size_t i = 0; i < count; i++) {
      if (items[i].kind != OWN_ENTRY)
        return sl_error_set(reading->error, -EBADMSG, "%s is damaged: a history has what is no entry", reading->name);
      numbers[i] = (uint32_t)items[i].number;
    }
    sl_unpickle_list_replace(reader, traces[device], 0);
  }
  return 0;
}

static void settings_read(struct reading *reading, struct sl_unpickler *reader, struct sl_pickled dict) {
  size_t count;
  const struct sl_pickled_pair *pairs = sl_unpickle_pairs(reader, dict, &count);
  for (size_t i = 0; i < count; i++) {
    const enum sl_snapshot_word word = sl_snapshot_word(&reading->names, reader, pairs[i].key);
    size_t length;
    const char *text = sl_unpickle_text(reader, pairs[i].value, &length);
    if (text && (word == SL_WORD_alloc_conf || word == SL_WORD_newer_alloc_conf))
      reading->out->settings = (struct sl_snapshot_text){text, (uint32_t)length};
    if (word == SL_WORD_expandable_segments && sl_unpickle_number(reader, pairs[i].value))
      reading->out->is_expandable = true;
  }
}

/* Its segments are rows, whichever list holds them: in the order in which they were whole. */
static bool is_segments(const struct sl_unpickler *reader, struct sl_pickled list) {
  size_t count;
  const struct sl_pickled *items = sl_unpickle_items(reader, list, &count);
  for (size_t i = 0; i < count; i++)
    if (items[i].kind != OWN_SEGMENT)
      return false;
  return list.kind == SL_PICKLED_list;
}

static int root_read(struct reading *reading, struct sl_unpickler *reader, struct sl_pickled root) {
  size_t count;
  const struct sl_pickled_pair *pairs = sl_unpickle_pairs(reader, root, &count);
  bool is_known = false;
  if (root.kind == SL_PICKLED_list)
    return is_segments(reader, root) ? 0 : no_snapshot(reading);
  for (size_t i = 0; i < count; i++) {
    const struct sl_pickled value = pairs[i].value;
    int r = 0;
    switch (sl_snapshot_word(&reading->names, reader, pairs[i].key)) {
    case SL_WORD_segments:
      is_known = is_segments(reader, value);
      if (!is_known)
        return no_snapshot(reading);
      break;
    case SL_WORD_device_traces: r = traces_read(reading, reader, value); break;
    case SL_WORD_allocator_settings: settings_read(reading, reader, value); break;
    default: break;
    }
    if (r < 0)
      return r;
  }
  return is_known ? 0 : no_snapshot(reading);
}

int sl_snapshot_read(const unsigned char *data, size_t length, const char *name, sl_snapshot_progress *progress,
                     void *context, struct sl_snapshot *out, struct sl_error *error) {
  struct sl_unpickler *reader = NULL;
  struct sl_pickled root;
  *out = (struct sl_snapshot){0};
  struct reading reading = {
      .out = out, .names.snapshot = out, .name = name, .progress = progress, .context = context, .error = error};
  int r = sl_unpickle_read(data, length, name, dict_read, &reading, &reader, &root, error);
  if (r == 0)
    r = root_read(&reading, reader, root);
  reader = sl_unpickle_free(reader);
  sl_snapshot_names_free(&reading.names);
  free(reading.loose);
  return r;
}

void sl_snapshot_free(struct sl_snapshot *snapshot) {
  free(snapshot->segments);
  free(snapshot->blocks);
  free(snapshot->entries);
  for (int i = 0; i < SL_DEVICES_MAX; i++)
    free(snapshot->traces[i]);
  free(snapshot->annotations);
  free(snapshot->frames);
  free(snapshot->strings);
  free(snapshot->pools);
  *snapshot = (struct sl_snapshot){0};
}
