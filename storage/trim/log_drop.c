/*
 * One pass over the log: the state at the end of the gap is kept up to date by event, as a reader does it, and written
 * when that end is found.
 */
#include "log_drop.h"

#include "call_counts.h"
#include "kept_ranges.h"
#include "nvtx_ranges/kinds.h"
#include "plugin/format/events.h"
#include "plugin/format/log_format.h"
#include "rare_events.h"
#include "storage/allocator/block_map.h"
#include "storage/log/event_table.h"
#include "storage/log/segment_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX SL_DEVICES_MAX
#define PLACES_MAX 65536u
#define NO_STEP UINT32_MAX

struct made { /* the user of an allocated block */
  uint64_t alloc_ns;
  uint32_t sequence, tid, step;
  uint64_t tag_ns;         /* 0: it has none */
  struct sl_event_tag tag; /* the last one */
};

struct device {
  struct sl_block_map *map;
  uint32_t next, from; /* sequence numbers of allocator events */
  bool restored;
  uint32_t restored_sequence;
  bool sampled;
  struct sl_event_device_sample sample; /* the last one */
};

struct drop {
  const struct sl_log_drop_options *options;
  struct sl_log *log;
  struct sl_allocator_config config;
  struct device devices[DEVICES_MAX];
  uint8_t place_device[PLACES_MAX];
  uint16_t shardledger_domain;
  struct sl_kept_ranges ranges;
  struct sl_rare_events rare;
  struct sl_call_counts *calls;

  uint64_t from_ns, last_ns, events;
  bool from_is_fixed; /* something was dropped before, or the first files have ended */
  bool jumping;       /* between the two states of an older gap */
  bool saw_step;
  uint32_t step; /* the open one; NO_STEP */
  uint64_t step_range;
  uint32_t first_step, last_step;

  struct sl_dropped_file out;
  uint64_t at_ns; /* of what is written */
};

/* ---- what is there: PyTorch's blocks ---- */

static void blocks_free(struct device *device) {
  size_t count;
  struct sl_block *blocks = device->map ? sl_block_map_blocks(device->map, &count) : NULL;
  for (size_t i = 0; blocks && i < count; i++)
    free(blocks[i].user);
  free(blocks);
  device->map = sl_block_map_free(device->map);
}

static struct device *device_of(struct drop *drop, uint32_t id) {
  if (id >= DEVICES_MAX)
    return NULL;
  struct device *device = &drop->devices[id];
  if (!device->map)
    device->map = sl_block_map_new(&drop->config);
  return device->map ? device : NULL;
}

static int block_restore(struct drop *drop, uint32_t id, uint64_t address, uint64_t bytes, uint64_t requested,
                         int state, uint32_t place, bool starts_segment, const struct made *made) {
  struct device *device = device_of(drop, id);
  struct made *user = device && state == SL_BLOCK_ALLOCATED ? malloc(sizeof *user) : NULL;
  if (!device || (!user && state == SL_BLOCK_ALLOCATED))
    return -ENOMEM;
  int r = sl_block_map_restore(device->map, address, bytes, requested, state, place, starts_segment);
  if (r == 0 && user) {
    *user = *made;
    sl_block_map_set_user(device->map, user);
    return 0;
  }
  free(user);
  return r == -EINVAL ? 0 : r;
}

static int on_allocator(struct drop *drop, const struct sl_event *event) {
  const struct sl_event_allocator *e = event->payload;
  struct device *device = device_of(drop, drop->place_device[e->place]);
  if (!device)
    return drop->place_device[e->place] < DEVICES_MAX ? -ENOMEM : 0;
  if (device->restored && (int32_t)(e->sequence - device->restored_sequence) < 0)
    return 0;
  device->next = e->sequence + 1;
  struct sl_block_change change;
  int r = sl_block_map_apply(device->map, e->action, e->address, e->bytes, e->place, &change);
  if (r < 0 || change.unknown)
    return r;
  if (e->action == SL_FREE_COMPLETED)
    free(change.user);
  if (e->action != SL_ALLOC)
    return 0;
  struct made *made = malloc(sizeof *made);
  if (!made)
    return -ENOMEM;
  *made = (struct made){.alloc_ns = event->time_ns, .sequence = e->sequence, .tid = event->tid, .step = drop->step};
  sl_block_map_set_user(device->map, made);
  return 0;
}

static void on_tag(struct drop *drop, const struct sl_event *event) {
  const struct sl_event_tag *tag = event->payload;
  struct made *made = tag->device < DEVICES_MAX && drop->devices[tag->device].map
                          ? sl_block_map_find(drop->devices[tag->device].map, tag->address)
                          : NULL;
  if (!made)
    return;
  made->tag_ns = event->time_ns;
  made->tag = *tag;
}

static int put_blocks(struct drop *drop, uint64_t at_ns, uint32_t id) {
  struct device *device = &drop->devices[id];
  size_t count = 0;
  struct sl_block *blocks = sl_block_map_blocks(device->map, &count);
  if (!blocks && count)
    return -ENOMEM;
  const struct sl_event_dropped_allocator gap = {
      .device = id, .from = device->from, .until = device->next, .blocks = (uint32_t)count};
  int r = sl_dropped_put(&drop->out, at_ns, SL_EVENT_dropped_allocator, &gap, sizeof gap);
  for (size_t i = 0; i < count && r == 0; i++) {
    const struct sl_block *block = &blocks[i];
    const struct made *made = block->state == SL_BLOCK_ALLOCATED ? block->user : NULL;
    const struct sl_event_kept_block kept = {.address = block->address,
                                             .bytes = block->bytes,
                                             .requested_bytes = block->requested_bytes,
                                             .alloc_ns = made ? made->alloc_ns : 0,
                                             .sequence = made ? made->sequence : 0,
                                             .tid = made ? made->tid : 0,
                                             .step = made ? made->step : NO_STEP,
                                             .device = id,
                                             .place = (uint16_t)block->place,
                                             .state = (uint8_t)block->state,
                                             .starts_segment = block->starts_segment};
    r = sl_dropped_put(&drop->out, at_ns, SL_EVENT_kept_block, &kept, sizeof kept);
  }
  free(blocks);
  return r;
}

static int put_tags(struct drop *drop, uint64_t at_ns, uint32_t id) {
  size_t count = 0;
  struct sl_block *blocks = sl_block_map_blocks(drop->devices[id].map, &count);
  int r = !blocks && count ? -ENOMEM : 0;
  for (size_t i = 0; i < count && r == 0; i++) {
    const struct made *made = blocks[i].state == SL_BLOCK_ALLOCATED ? blocks[i].user : NULL;
    if (made && made->tag_ns >= drop->from_ns) /* earlier ones are still in the log */
      r = sl_dropped_put(&drop->out, at_ns, SL_EVENT_tag, &made->tag, sizeof made->tag);
  }
  free(blocks);
  return r;
}

static int put_segments(struct drop *drop, uint64_t at_ns) {
  const struct sl_segments *segments = sl_log_segments(drop->log);
  size_t old_count;
  const struct sl_event_dropped_segments *old = sl_log_dropped_segments(drop->log, &old_count);
  int r = 0;
  for (size_t i = 0, next; i < segments->count && r == 0; i = next) { /* by thread, then sequence */
    const uint32_t thread = segments->entries[i].thread;
    struct sl_event_dropped_segments range = {.thread = thread, .from = UINT32_MAX};
    for (next = i; next < segments->count && segments->entries[next].thread == thread; next++) {
      const struct sl_segment_entry *entry = &segments->entries[next];
      if (entry->frame_at == SL_NOT_THERE ||
          !drop->options->drops(drop->options->context, segments->sealed[entry->file].name))
        continue;
      range.from = entry->sequence < range.from ? entry->sequence : range.from;
      range.until = entry->sequence + 1;
    }
    for (size_t o = 0; o < old_count; o++)
      if (old[o].thread == thread) {
        range.from = old[o].from < range.from ? old[o].from : range.from;
        range.until = old[o].until > range.until ? old[o].until : range.until;
      }
    if (range.until)
      r = sl_dropped_put(&drop->out, at_ns, SL_EVENT_dropped_segments, &range, sizeof range);
  }
  return r;
}

static int put_calls(void *context, const struct sl_event_kept_calls *calls) {
  struct drop *drop = context;
  return sl_dropped_put(&drop->out, drop->at_ns, SL_EVENT_kept_calls, calls, sizeof *calls);
}

/* until_ns: time of the first event that stays. */
static int finish(struct drop *drop, uint64_t until_ns) {
  const uint64_t at_ns = until_ns - 1;
  const struct sl_event_dropped dropped = {drop->from_ns, until_ns, drop->events, drop->first_step, drop->last_step};
  drop->at_ns = at_ns;
  drop->out = (struct sl_dropped_file){.start_ns = drop->from_ns, .base_ns = drop->from_ns};
  int r = sl_rare_put(&drop->rare, &drop->out);
  if (r == 0)
    r = put_segments(drop, at_ns);
  if (r == 0)
    r = sl_call_counts_each(drop->calls, put_calls, drop);
  for (uint32_t id = 0; id < DEVICES_MAX && r == 0; id++)
    if (drop->devices[id].map)
      r = put_blocks(drop, at_ns, id);
  if (r == 0)
    r = sl_kept_ranges_put(&drop->ranges, &drop->out, at_ns);
  if (r == 0)
    r = sl_dropped_put(&drop->out, at_ns, SL_EVENT_dropped, &dropped, sizeof dropped);
  for (uint32_t id = 0; id < DEVICES_MAX && r == 0; id++) {
    if (drop->devices[id].map)
      r = put_tags(drop, at_ns, id);
    if (r == 0 && drop->devices[id].sampled)
      r = sl_dropped_put(&drop->out, at_ns, SL_EVENT_device_sample, &drop->devices[id].sample,
                         sizeof drop->devices[id].sample);
  }
  const struct sl_segments *segments = sl_log_segments(drop->log);
  return r < 0 ? r : sl_dropped_write(&drop->out, segments->directory, segments->process_key);
}

/* ---- reading up to there ---- */

static void gap_begins(struct drop *drop, uint64_t time_ns) {
  drop->from_ns = time_ns;
  drop->events = 0;
  drop->first_step = 1;
  drop->last_step = 0;
  sl_rare_clear(&drop->rare);
  for (uint32_t id = 0; id < DEVICES_MAX; id++)
    drop->devices[id].from = drop->devices[id].next;
}

/* Of a step, as the companion tells it. */
static bool is_step(const struct drop *drop, const struct sl_event *event, uint32_t *step) {
  const struct sl_event_range_start *start = event->payload;
  if (event->type != SL_EVENT_range_start || !drop->shardledger_domain || start->domain != drop->shardledger_domain ||
      start->category != SL_KIND_step)
    return false;
  *step = (uint32_t)start->value;
  return true;
}

static void jump_begin(struct drop *drop) {
  if (drop->jumping)
    return;
  drop->jumping = true;
  sl_kept_ranges_clear(&drop->ranges);
  drop->step = NO_STEP;
}

static int take(struct drop *drop, const struct sl_event *event) {
  const void *payload = event->payload;
  switch (event->type) {
  case SL_EVENT_nvtx_domain: {
    const struct sl_event_nvtx_domain *e = payload;
    if (strcmp(sl_log_string(drop->log, e->name), "shardledger") == 0)
      drop->shardledger_domain = (uint16_t)e->id;
    return 0;
  }
  case SL_EVENT_allocator_place: {
    const struct sl_event_allocator_place *e = payload;
    if (e->id < PLACES_MAX && e->device < DEVICES_MAX)
      drop->place_device[e->id] = (uint8_t)e->device;
    return 0;
  }
  case SL_EVENT_allocator_restore: {
    const struct sl_event_allocator_restore *e = payload;
    struct device *device = device_of(drop, e->device);
    if (device) {
      device->restored = true;
      device->restored_sequence = device->next = device->from = e->sequence;
    }
    return 0;
  }
  case SL_EVENT_allocator_existing: {
    const struct sl_event_allocator_existing *e = payload;
    const struct made made = {.step = NO_STEP};
    return block_restore(drop, e->device, e->address, e->bytes, e->requested_bytes, e->state, e->place,
                         e->starts_segment, &made);
  }
  case SL_EVENT_dropped_allocator: {
    const struct sl_event_dropped_allocator *e = payload;
    jump_begin(drop);
    if (e->device >= DEVICES_MAX)
      return 0;
    blocks_free(&drop->devices[e->device]);
    drop->devices[e->device].next = e->until;
    drop->devices[e->device].from = e->from;
    return device_of(drop, e->device) ? 0 : -ENOMEM;
  }
  case SL_EVENT_kept_block: {
    const struct sl_event_kept_block *e = payload;
    const struct made made = {.alloc_ns = e->alloc_ns, .sequence = e->sequence, .tid = e->tid, .step = e->step};
    return block_restore(drop, e->device, e->address, e->bytes, e->requested_bytes, e->state, e->place,
                         e->starts_segment, &made);
  }
  case SL_EVENT_kept_range: jump_begin(drop); return sl_kept_ranges_event(&drop->ranges, event);
  case SL_EVENT_dropped: {
    const struct sl_event_dropped *e = payload;
    jump_begin(drop);
    drop->jumping = false;
    drop->events = e->events;
    drop->first_step = e->first_step;
    drop->last_step = e->last_step;
    return 0;
  }
  case SL_EVENT_allocator: return event->salvaged ? 0 : on_allocator(drop, event);
  case SL_EVENT_tag: on_tag(drop, event); return 0;
  case SL_EVENT_range_end:
    if (((const struct sl_event_range_end *)payload)->id == drop->step_range)
      drop->step = NO_STEP;
    return sl_kept_ranges_event(&drop->ranges, event);
  case SL_EVENT_device_sample: {
    const struct sl_event_device_sample *e = payload;
    if (e->device < DEVICES_MAX) {
      drop->devices[e->device].sample = *e;
      drop->devices[e->device].sampled = true;
    }
    return 0;
  }
  default: return sl_kept_ranges_event(&drop->ranges, event);
  }
}

/* Of a kernel or copy that ran before the gap, and was told within it. */
static bool is_of_head(const struct drop *drop, const struct sl_event *event) {
  return sl_event_is_of_device(event->type) && *(const uint64_t *)event->payload < drop->from_ns;
}

/* Of the place of an allocator event. */
static uint8_t place_device(const struct drop *drop, const struct sl_event *event) {
  return event->type == SL_EVENT_allocator
             ? drop->place_device[((const struct sl_event_allocator *)event->payload)->place]
             : 0;
}

/* 1: the event is the first one that stays, and was not taken. */
static int take_in_order(struct drop *drop, const struct sl_event *event) {
  bool keep;
  if (event->thread == 0) { /* definitions, which stay */
    int r = sl_call_counts_event(drop->calls, event, &keep);
    return r < 0 ? r : take(drop, event);
  }
  uint32_t step = NO_STEP;
  if (event->time_ns >= drop->options->until_ns)
    return -EAGAIN;
  const bool begins_step = is_step(drop, event, &step), alone = event->time_ns > drop->last_ns;
  if (alone && !event->salvaged && event->time_ns >= drop->options->target_ns && (begins_step || !drop->saw_step))
    return 1;
  if (!drop->from_is_fixed && event->time_ns > drop->options->head_ns) {
    if (!drop->from_ns)
      gap_begins(drop, event->time_ns);
    drop->from_is_fixed = true;
  }
  if (begins_step && !drop->from_is_fixed && alone)
    gap_begins(drop, event->time_ns);
  drop->last_ns = event->time_ns;
  if (begins_step) {
    drop->saw_step = true;
    drop->step = step;
    drop->step_range = ((const struct sl_event_range_start *)event->payload)->id;
    if (drop->first_step > drop->last_step)
      drop->first_step = step;
    drop->last_step = step;
  }
  int r = sl_call_counts_event(drop->calls, event, &keep);
  if (r == 0)
    r = take(drop, event);
  if (r == 0 && drop->from_ns && event->time_ns >= drop->from_ns) {
    drop->events += !event->salvaged;
    if (keep || sl_is_rare(event) || is_of_head(drop, event))
      r = sl_rare_add(&drop->rare, event, place_device(drop, event));
  }
  return r;
}

/* Reads up to the first event that stays, and writes what goes on from there. */
static int read_and_write(struct drop *drop, struct sl_error *error) {
  struct sl_event event;
  int r = 0;
  while ((r = sl_log_next(drop->log, &event, error)) > 0) {
    r = take_in_order(drop, &event);
    if (r > 0)
      break;
    if (r < 0)
      return r == -EAGAIN
                 ? sl_error_set(error, r, "no step has begun since")
                 : sl_error_set(error, r, "cannot find out what goes on from the part to be dropped: %s", strerror(-r));
  }
  if (r <= 0)
    return r < 0 ? r : sl_error_set(error, -EAGAIN, "no step has begun since");
  struct sl_log_counts counts;
  sl_log_counts(drop->log, &counts);
  if (counts.damaged_segments) /* then what is there at this instant is not known */
    return sl_error_set(error, -EBADMSG, "a part of it can't be read");
  if (!drop->from_ns)
    gap_begins(drop, event.time_ns);
  r = finish(drop, event.time_ns);
  return r < 0 ? sl_error_set(error, r, "cannot write " SL_DROPPED_NAME ": %s", strerror(-r)) : 0;
}

static void drop_free(struct drop *drop) {
  for (uint32_t id = 0; id < DEVICES_MAX; id++)
    blocks_free(&drop->devices[id]);
  sl_kept_ranges_clear(&drop->ranges);
  sl_rare_clear(&drop->rare);
  sl_call_counts_free(drop->calls);
  sl_dropped_free(&drop->out);
  free(drop);
}

int sl_log_drop(struct sl_log *log, const struct sl_log_drop_options *options, struct sl_error *error) {
  const char *backend = sl_log_info(log, "allocator_backend");
  if (backend && strcmp(backend, "native") != 0)
    return sl_error_set(error, -ENOTSUP, "that works with PyTorch's own caching allocator only, and this is %s",
                        backend);
  struct drop *drop = calloc(1, sizeof *drop);
  if (!drop)
    return sl_no_memory(error);
  drop->options = options;
  drop->log = log;
  drop->step = NO_STEP;
  drop->first_step = 1;
  memset(drop->place_device, 0xff, sizeof drop->place_device);
  sl_allocator_config_parse(sl_log_info(log, "allocator_config"), &drop->config);
  drop->from_ns = sl_log_dropped_from(log);
  drop->from_is_fixed = drop->from_ns != 0;
  drop->calls = sl_call_counts_new(log);
  int r = drop->calls ? read_and_write(drop, error) : sl_no_memory(error);
  drop_free(drop);
  return r;
}
