#include "rank_builder.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Number of a tag's category, known or new. */
static int category_number(struct sl_rank_builder *b, const char *name) {
  int number = sl_category_find(name);
  if (number >= 0)
    return number;
  for (number = SL_CATEGORY_built_in; number < b->category_count; number++)
    if (strcmp(b->user_categories[number], name) == 0)
      return number;
  if (b->category_count == SL_CATEGORY_limit || !*name)
    return SL_CATEGORY_other;
  b->user_categories[b->category_count] = strdup(name);
  if (b->user_categories[b->category_count])
    return b->category_count++;
  b->r = sl_no_memory(b->error);
  return SL_CATEGORY_other;
}

static void subtract(uint64_t *from, uint64_t bytes) {
  *from -= bytes < *from ? bytes : *from; /* more only where events are missing */
}

/* What private pools hold, kept apart from the replay, which needs no pools to be exact. */
static void private_pool_update(struct sl_block_totals *pools, int action, uint64_t segment_bytes,
                                uint64_t block_bytes) {
  switch (action) {
  case SL_SEGMENT_ALLOC:
  case SL_SEGMENT_MAP: pools->reserved_bytes += segment_bytes; break;
  case SL_SEGMENT_FREE:
  case SL_SEGMENT_UNMAP: subtract(&pools->reserved_bytes, segment_bytes); break;
  case SL_ALLOC:
    pools->allocated_bytes += block_bytes;
    pools->active_bytes += block_bytes;
    break;
  case SL_FREE_REQUESTED: subtract(&pools->allocated_bytes, block_bytes); break;
  case SL_FREE_COMPLETED: subtract(&pools->active_bytes, block_bytes); break;
  default: break;
  }
}

static struct sl_block_map *map_of(struct sl_rank_builder *b, uint32_t device) {
  if (!b->maps[device] && !(b->maps[device] = sl_block_map_new(&b->config)))
    b->r = sl_no_memory(b->error);
  return b->maps[device];
}

static bool phase_find(struct sl_rank_builder *b, const struct sl_event *event, struct sl_phase **out) {
  *out = event->past ? NULL : sl_phases_current(b->phases, event->thread);
  return event->past == SL_PAST_not || (event->past == SL_PAST_placed && sl_phases_current_of_any(b->phases, out));
}

struct sl_phase *sl_rank_phase_of(struct sl_rank_builder *b, const struct sl_event *event) {
  struct sl_phase *phase;
  phase_find(b, event, &phase);
  return phase;
}

/* Backward runs on threads of its own. Which one it was the history does not say: a number that no thread has. */
static uint32_t thread_of_past(struct sl_phase *phase) {
  return sl_phase_enclosing(phase, SL_KIND_backward) ? UINT32_MAX : UINT32_MAX - 1;
}

struct sl_allocation *sl_rank_allocation_add(struct sl_rank_builder *b, const struct sl_event *event,
                                             const struct sl_allocation *made) {
  void *grown =
      sl_rank_list_grow(b, b->allocations, b->allocation_count, &b->allocation_capacity, sizeof *b->allocations);
  if (grown) {
    b->allocations = grown;
    if (b->allocation_count == b->allocations_made)
      b->allocations_made += (b->allocations[b->allocation_count] = malloc(sizeof **b->allocations)) != NULL;
  }
  if (!grown || b->allocation_count == b->allocations_made) {
    b->r = sl_no_memory(b->error);
    return NULL;
  }
  struct sl_allocation *a = b->allocations[b->allocation_count++];
  *a = *made;
  a->id = ++b->next_allocation;
  a->period = b->current.row.period;
  a->thread = event->past ? thread_of_past(a->phase) : event->thread;
  a->tid = event->tid;
  a->alloc_at = b->at;
  a->alloc_ns = event->time_ns;
  a->tag_category = -1;
  a->last_step = -1;
  sl_block_map_set_user(b->maps[a->device], a);
  return a;
}

int sl_rank_allocation_begins(struct sl_rank_builder *b, struct sl_allocation *a) {
  struct sl_item *item = (int)a->device == b->device ? sl_rank_item_add(b, SL_ITEM_alloc) : NULL;
  if (item)
    item->allocation = a;
  return b->r;
}

static int on_allocator_alloc(struct sl_rank_builder *b, const struct sl_event *event,
                              const struct sl_event_allocator *e, uint32_t device, uint64_t block_bytes) {
  struct sl_phase *phase;
  const bool placed = phase_find(b, event, &phase);
  const struct sl_allocation made = {
      .address = e->address,
      .bytes = block_bytes,
      .requested_bytes = e->bytes,
      .place = e->place,
      .device = device,
      .alloc_event = b->allocator_events[device],
      .sequence = e->sequence,
      .step = sl_phases_step(b->phases),
      .phase = phase,
      .unplaced = !placed,
  };
  struct sl_allocation *a = sl_rank_allocation_add(b, event, &made);
  if (!a)
    return b->r;
  if ((int)device == b->device)
    sl_module_states_allocated(b->states, a->phase);
  return sl_rank_allocation_begins(b, a);
}

static int on_allocator_free(struct sl_rank_builder *b, const struct sl_event *event, struct sl_allocation *a,
                             int action) {
  const uint64_t number = b->drivers_pool ? 0 : b->allocator_events[a->device];
  if (action == SL_FREE_COMPLETED) {
    a->complete_event = number;
    a->complete_ns = event->time_ns;
    a->complete_at = b->at;
    return 0;
  }
  a->free_at = b->at;
  a->free_event = number;
  a->free_ns = event->time_ns;
  a->free_phase = sl_rank_phase_of(b, event);
  a->free_phase_id = a->free_phase ? a->free_phase->id : 0;
  if ((int)a->device != b->device)
    return 0;
  struct sl_item *item = sl_rank_item_add(b, SL_ITEM_free);
  if (!item)
    return b->r;
  item->allocation = a;
  return 0;
}

/* A new highest point of the step, made by an allocation of this thread. */
static void peak_update(struct sl_rank_builder *b, const struct sl_event *event, const struct sl_block_totals *now) {
  if (now->allocated_bytes > b->current.row.peak.allocated_bytes) {
    const struct sl_phase *phase = sl_rank_phase_of(b, event);
    while (phase && phase->kind == SL_KIND_user && phase->parent)
      phase = phase->parent; /* a user's range says less than what stands around it */
    b->current.row.peak_ns = event->time_ns;
    b->current.row.peak_phase = phase ? phase->id : 0;
    b->current.row.peak_module = sl_phase_module(phase);
    b->current.peak_at = b->at;
  }
  sl_rank_totals_max(&b->current.row.peak, now);
}

/* Only the driver's side of it: the blocks are told as a whole. */
static int on_segment(struct sl_rank_builder *b, const struct sl_event *event, uint32_t device) {
  const struct sl_event_allocator *e = event->payload;
  if (e->action == SL_SEGMENT_ALLOC || e->action == SL_SEGMENT_MAP)
    return sl_driver_segments_allocator_add(
        b->segments, device, e->address, e->bytes, b->places[e->place].stream, event->time_ns,
        e->action == SL_SEGMENT_MAP ? "segment_map" : "segment_alloc", sl_rank_phase_of(b, event), b->error);
  if (e->action == SL_SEGMENT_FREE || e->action == SL_SEGMENT_UNMAP)
    return sl_driver_segments_allocator_remove(b->segments, e->address, event->time_ns, b->error);
  return 0;
}

/* The allocator's own word on a segment, in its order. NULL: of something else. */
static const char *segment_word(int action) {
  switch (action) {
  case SL_SEGMENT_ALLOC: return "alloc";
  case SL_SEGMENT_FREE: return "free";
  case SL_SEGMENT_MAP: return "map";
  case SL_SEGMENT_UNMAP: return "unmap";
  case SL_OUT_OF_MEMORY: return "refused";
  default: return NULL;
  }
}

static int segment_note(struct sl_rank_builder *b, const char *action, uint32_t device, uint32_t place,
                        uint64_t address, uint64_t bytes, uint64_t at_ns) {
  struct sl_allocator_segment_cells cells = {
      .device = device,
      .event = (int64_t)b->allocator_events[device],
      .action = action,
      .address = (int64_t)address,
      .bytes = (int64_t)bytes,
      .stream = (int64_t)b->places[place].stream,
      .at_ns = (int64_t)at_ns,
  };
  int r = sl_rank_pool_name(b, place, &cells.pool);
  return r < 0 ? r : sl_put_allocator_segment(b->writer, &cells, b->error);
}

int sl_rank_on_allocator(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_allocator *e = event->payload;
  const struct place *place = &b->places[e->place];
  uint32_t device = place->device;
  if (device >= MAX_DEVICES) {
    b->replay_unknown++;
    return 0;
  }
  if (event->salvaged)
    return on_segment(b, event, device);
  if (!map_of(b, device))
    return b->r;
  if (b->restored[device].begun && (int32_t)(e->sequence - b->restored[device].sequence) < 0)
    return 0;                                              /* what it did is part of the snapshot */
  if (b->device < 0 && e->action != SL_ALLOCATOR_SNAPSHOT) /* PyTorch puts every device's snapshot down to device 0 */
    b->device = (int)device;
  b->next_sequence[device] = e->sequence + 1;
  b->allocator_events[device]++;
  struct sl_block_change change;
  int r = sl_block_map_apply(b->maps[device], e->action, e->address, e->bytes, e->place, &change);
  if (r < 0)
    return sl_error_set(b->error, r, "out of memory");
  b->replay_unknown += change.unknown;
  sl_rank_pattern_allocator(b, e->action, e->place, e->bytes, change.block_bytes, change.user, event);
  const struct sl_block_totals *now = sl_block_map_totals(b->maps[device]);
  if ((place->pool_owner || place->pool_id) && !change.unknown)
    private_pool_update(&b->private_pools[device], e->action, e->bytes, change.block_bytes);
  switch (e->action) {
  case SL_ALLOC:
    if (!change.unknown)
      r = on_allocator_alloc(b, event, e, device, change.block_bytes);
    break;
  case SL_FREE_REQUESTED:
  case SL_FREE_COMPLETED:
    if (change.user)
      r = on_allocator_free(b, event, change.user, e->action);
    break;
  case SL_SEGMENT_ALLOC:
  case SL_SEGMENT_MAP:
  case SL_SEGMENT_FREE:
  case SL_SEGMENT_UNMAP: r = on_segment(b, event, device); break;
  case SL_OUT_OF_MEMORY: r = sl_rank_on_out_of_memory(b, event, device); break;
  default: break;
  }
  if (r == 0 && segment_word(e->action))
    r = segment_note(b, segment_word(e->action), device, e->place, e->action == SL_OUT_OF_MEMORY ? 0 : e->address,
                     e->bytes, event->time_ns);
  if (r == 0)
    r = sl_retries_allocator(b->retries, event, device, b->error);
  if ((int)device == b->device)
    peak_update(b, event, now);
  return r < 0 ? r : b->r;
}

/* The place of a stream, in a log without the allocator's own places; -1: there are too many. */
static int place_of_stream(struct sl_rank_builder *b, uint32_t device, uint64_t stream) {
  for (int i = 0; i < b->stream_places; i++)
    if (b->places[i].device == device && b->places[i].stream == stream)
      return i;
  if (b->stream_places == MAX_PLACES)
    return -1;
  b->places[b->stream_places] = (struct place){.device = device, .stream = stream};
  return b->stream_places++;
}

/*
 * cudaMallocAsync: PyTorch asks the driver for every tensor, and has no trace. torch.cuda.memory_stats counts what was
 * asked for, so each is a block of its own, without rounding; what the driver's pool reserves is not told by its calls.
 */
int sl_rank_on_driver_allocation(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_driver_allocation *e = event->payload;
  bool from_pool = strstr(sl_log_string(b->log, e->api), "Async") != NULL;
  if (!b->drivers_pool || from_pool == b->uncached || e->device >= MAX_DEVICES ||
      strncmp(sl_log_string(b->log, e->owner), "libc10_cuda", 11) != 0)
    return 0;
  if (!map_of(b, e->device))
    return sl_no_memory(b->error);
  if (b->device < 0)
    b->device = (int)e->device;
  struct sl_block_map *map = b->maps[e->device];
  int place = place_of_stream(b, e->device, e->stream);
  int r = place < 0 ? -EINVAL : sl_block_map_restore(map, e->address, e->bytes, e->bytes, SL_BLOCK_ALLOCATED, 0, true);
  if (r == -ENOMEM)
    return sl_error_set(b->error, r, "out of memory");
  if (r < 0) {
    b->replay_unknown++;
    return 0;
  }
  struct sl_allocation made = {
      .address = e->address,
      .bytes = e->bytes,
      .requested_bytes = e->bytes,
      .place = (uint32_t)place,
      .device = e->device,
      .step = sl_phases_step(b->phases),
      .phase = sl_rank_phase_of(b, event),
  };
  struct sl_allocation *a = sl_rank_allocation_add(b, event, &made);
  if (!a)
    return b->r;
  sl_rank_pattern_allocator(b, SL_ALLOC, a->place, a->bytes, a->bytes, NULL, event);
  if ((int)e->device == b->device) {
    sl_module_states_allocated(b->states, a->phase);
    peak_update(b, event, sl_block_map_totals(map));
  }
  return sl_rank_allocation_begins(b, a);
}

int sl_rank_on_driver_free(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_driver_free *e = event->payload;
  struct sl_block_map *map = NULL;
  struct sl_allocation *a = NULL;
  for (int device = 0; b->drivers_pool && device < MAX_DEVICES && !a; device++)
    if ((map = b->maps[device]))
      a = sl_block_map_find(map, e->address);
  if (!a)
    return 0; /* another library's */
  static const int actions[] = {SL_FREE_REQUESTED, SL_FREE_COMPLETED, SL_SEGMENT_FREE};
  struct sl_block_change change;
  for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
    if (sl_block_map_apply(map, actions[i], e->address, a->bytes, 0, &change) < 0)
      return sl_no_memory(b->error);
  sl_rank_pattern_allocator(b, SL_FREE_COMPLETED, a->place, a->bytes, a->bytes, a, event);
  a->complete_ns = event->time_ns;
  a->complete_at = b->at;
  return on_allocator_free(b, event, a, SL_FREE_REQUESTED);
}

int sl_rank_on_allocator_restore(struct sl_rank_builder *b, const struct sl_event_allocator_restore *e) {
  if (e->device >= MAX_DEVICES || b->restored[e->device].begun) {
    b->replay_unknown++;
    return 0;
  }
  b->restored[e->device] = (struct restored){.begun = true, .sequence = e->sequence, .missing = e->blocks};
  b->next_sequence[e->device] = e->sequence;
  sl_device_balance_late(b->balance, e->device);
  return map_of(b, e->device) ? 0 : b->r;
}

static int restored_segment_end(struct sl_rank_builder *b) {
  if (!b->restored_segment.bytes)
    return 0;
  int r = sl_driver_segments_allocator_add(b->segments, b->restored_segment.device, b->restored_segment.address,
                                           b->restored_segment.bytes, b->restored_segment.stream,
                                           b->restored_segment.at_ns, "before_attach", NULL, b->error);
  if (r == 0)
    r = segment_note(b, "existing", b->restored_segment.device, b->restored_segment.place, b->restored_segment.address,
                     b->restored_segment.bytes, b->restored_segment.at_ns);
  b->restored_segment.bytes = 0;
  return r;
}

void sl_rank_private_pool_restore(struct sl_rank_builder *b, uint32_t device, uint32_t place, uint64_t bytes,
                                  int state) {
  struct sl_block_totals *pools = &b->private_pools[device];
  if (!b->places[place].pool_owner && !b->places[place].pool_id)
    return;
  pools->reserved_bytes += bytes;
  pools->active_bytes += state == SL_BLOCK_FREE ? 0 : bytes;
  pools->allocated_bytes += state == SL_BLOCK_ALLOCATED ? bytes : 0;
}

int sl_rank_on_allocator_existing(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_allocator_existing *e = event->payload;
  struct restored *restored = e->device < MAX_DEVICES ? &b->restored[e->device] : NULL;
  if (!restored || !restored->missing) {
    b->replay_unknown++;
    return 0;
  }
  int r = sl_block_map_restore(b->maps[e->device], e->address, e->bytes, e->requested_bytes, e->state, e->place,
                               e->starts_segment);
  if (r == -ENOMEM)
    return sl_error_set(b->error, r, "out of memory");
  if (r < 0)
    return 0; /* it stays missing */
  restored->missing--;
  sl_rank_private_pool_restore(b, e->device, e->place, e->bytes, e->state);
  if (e->starts_segment || !b->restored_segment.bytes) {
    r = restored_segment_end(b);
    b->restored_segment.device = e->device;
    b->restored_segment.address = e->address;
    b->restored_segment.place = e->place;
    b->restored_segment.stream = b->places[e->place].stream;
    b->restored_segment.at_ns = event->time_ns;
  }
  b->restored_segment.bytes += e->bytes;
  if (r < 0 || e->state != SL_BLOCK_ALLOCATED)
    return r;
  const struct sl_allocation made = {
      .address = e->address,
      .bytes = e->bytes,
      .requested_bytes = e->requested_bytes,
      .place = e->place,
      .device = e->device,
      .step = -1,
      .restored = true,
  };
  b->restored_allocations++;
  return sl_rank_allocation_add(b, event, &made) ? 0 : b->r;
}

/* The definitions have ended: what was restored is there, and the rank's device is the one that holds most of it. */
int sl_rank_restore_finish(struct sl_rank_builder *b) {
  uint64_t most = 0;
  b->restoring = false;
  for (int i = 0; i < MAX_DEVICES; i++) {
    b->replay_unknown += b->restored[i].missing;
    uint64_t bytes = b->restored[i].begun ? sl_block_map_totals(b->maps[i])->reserved_bytes : 0;
    if (bytes > most) {
      most = bytes;
      b->device = i;
    }
  }
  int r = restored_segment_end(b);
  for (size_t i = 0; i < b->allocation_count && r == 0; i++)
    r = sl_rank_allocation_begins(b, b->allocations[i]);
  sl_rank_period_watch(b);
  for (size_t i = 0; i < b->allocation_count; i++) /* known since their snapshot only */
    if (b->allocations[i]->alloc_ns > b->current.row.peak_ns)
      b->current.row.peak_ns = b->allocations[i]->alloc_ns;
  return r;
}

static int retagged(struct sl_rank_builder *b, struct sl_allocation *a) {
  struct sl_item *item = (int)a->device == b->device ? sl_rank_item_add(b, SL_ITEM_retag) : NULL;
  if (item) {
    item->allocation = a;
    item->aside = sl_phases_is_aside(b->phases, a->module);
  }
  return b->r;
}

/* PyTorch's own table of workspaces has it. */
static int workspace_found(struct sl_rank_builder *b, struct sl_allocation *a) {
  a->workspace = true;
  if (!a->decided || a->tag_category >= 0)
    return 0;
  a->category = sl_rules[SL_RULE_cublas_workspace].category;
  a->rule = SL_RULE_cublas_workspace;
  a->module = 0;
  return retagged(b, a);
}

int sl_rank_on_tag(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_tag *tag = event->payload;
  if (tag->device >= MAX_DEVICES || !b->maps[tag->device])
    return 0;
  struct sl_allocation *a = sl_block_map_find(b->maps[tag->device], tag->address);
  if (!a)
    return 0; /* memory from elsewhere: another allocator, or from before recording */
  const char *category = sl_log_string(b->log, tag->category);
  if (strcmp(category, sl_rules[SL_RULE_cublas_workspace].name) == 0)
    return workspace_found(b, a);
  a->tag_category = category_number(b, category);
  if (tag->module)
    a->tag_module = tag->module; /* without one it may be the user's, of a tensor whose module is known */
  a->tag_step = sl_phases_step(b->phases);
  a->tag_name = sl_log_string(b->log, tag->name);
  if (a->tag_category == SL_CATEGORY_gradient || a->tag_category == SL_CATEGORY_sharded_grad)
    b->gradients_tagged = true;
  if (!a->decided)
    return 0;
  a->category = a->tag_category;
  a->rule = SL_RULE_tag;
  if (a->tag_module)
    a->module = a->tag_module;
  return retagged(b, a);
}

void sl_rank_on_allocator_stats(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_allocator_stats *stats = event->payload;
  if (b->device < 0 || stats->device != (uint32_t)b->device || stats->sequence != b->next_sequence[b->device])
    return; /* not at an instant that can be compared */
  struct sl_block_totals now = sl_rank_totals_now(b);
  bool same = stats->requested_bytes == now.requested_bytes && stats->allocated_bytes == now.allocated_bytes &&
              stats->active_bytes == now.active_bytes && stats->reserved_bytes == now.reserved_bytes;
  b->current.row.checked = same && b->current.row.checked != 0;
}

static bool is_alive(const struct sl_allocation *a) {
  return !a->free_at;
}

/* From the newest: buffers are mostly fresh. */
uint64_t sl_rank_allocation_containing(void *context, uint64_t address) {
  const struct sl_rank_builder *b = context;
  const struct sl_allocation *a = NULL;
  for (int i = 0; i < MAX_DEVICES && !a; i++)
    a = b->maps[i] ? sl_block_map_find(b->maps[i], address) : NULL;
  for (size_t i = b->allocation_count; i-- > 0 && !a;)
    if (is_alive(b->allocations[i]) && address >= b->allocations[i]->address &&
        address - b->allocations[i]->address < b->allocations[i]->bytes)
      a = b->allocations[i];
  /* What a snapshot showed later says nothing about who was at that address before. */
  return a && !(a->restored && a->alloc_ns > b->now_ns) ? a->id : 0;
}

uint64_t sl_rank_allocation_sized(void *context, const struct sl_phase *phase, uint64_t bytes, uint64_t factor) {
  const struct sl_rank_builder *b = context;
  uint64_t found = 0;
  for (size_t i = b->allocation_count; i-- > 0 && b->allocations[i]->alloc_at > phase->start_at;) {
    const struct sl_allocation *a = b->allocations[i];
    uint64_t times = a->requested_bytes / bytes;
    if (a->phase != phase || !is_alive(a) || a->requested_bytes % bytes || (factor ? times != factor : times < 2))
      continue;
    if (found)
      return 0;
    found = a->id;
  }
  return found;
}
