/* What PyTorch's allocator did, what was there before recording began, and what tags say of it. */
#include "rank_builder.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Backward runs on threads of its own. Which one it was the history does not say: a number that no thread has. */
static uint32_t thread_of_past(struct sl_phase *phase) {
  return sl_phase_enclosing(phase, SL_KIND_backward) ? UINT32_MAX : UINT32_MAX - 1;
}

struct sl_allocation *sl_rank_allocation_add(struct sl_rank_builder *b, const struct sl_event *event,
                                             const struct sl_allocation *made) {
  struct sl_allocation *a = sl_rank_allocations_add(&b->allocations, made);
  if (!a)
    return NULL;
  a->period = b->life.current.row.period;
  a->thread = event->past ? thread_of_past(a->phase) : event->thread;
  a->tid = event->tid;
  a->alloc_at = b->clock.at;
  a->alloc_ns = event->time_ns;
  sl_block_map_set_user(b->memory.devices[a->device].map, a);
  return a;
}

static int item_add(struct sl_rank_builder *b, enum sl_item_type type, struct sl_allocation *a) {
  if ((int)a->device != b->memory.device || b->figures_only)
    return 0;
  return sl_or_no_memory(sl_rank_items_allocation(&b->items, type, a, b->clock.now_ns), b->error);
}

int sl_rank_allocation_begins(struct sl_rank_builder *b, struct sl_allocation *a) {
  return item_add(b, SL_ITEM_alloc, a);
}

int sl_rank_allocation_ends(struct sl_rank_builder *b, struct sl_allocation *a) {
  return item_add(b, SL_ITEM_free, a);
}

/* It is made where the program is now: what came before it is known. */
static int allocation_made(struct sl_rank_builder *b, struct sl_allocation *a) {
  int r = 0;
  if ((int)a->device == b->memory.device && !b->figures_only)
    r = sl_or_no_memory(sl_module_states_allocated(b->states, a->phase, a->requested_bytes), b->error);
  return r < 0 ? r : sl_rank_allocation_begins(b, a);
}

/* An event, and what its thread was doing. */
struct occasion {
  const struct sl_event *event;
  struct sl_phase *phase;
  bool placed;
};

static int on_allocator_alloc(struct sl_rank_builder *b, const struct occasion *on, uint32_t device,
                              uint64_t block_bytes) {
  const struct sl_event_allocator *e = on->event->payload;
  const struct sl_allocation made = {
      .address = e->address,
      .bytes = block_bytes,
      .requested_bytes = e->bytes,
      .place = e->place,
      .device = device,
      .sequence = e->sequence,
      .alloc_event = b->memory.devices[device].events,
      .step = sl_phases_step(b->phases),
      .phase = on->phase,
      .unplaced = !on->placed,
  };
  struct sl_allocation *a = sl_rank_allocation_add(b, on->event, &made);
  if (!a)
    return sl_no_memory(b->error);
  sl_rank_sites_allocation(&b->sites, a, on->phase);
  return allocation_made(b, a);
}

static int on_allocator_free(struct sl_rank_builder *b, const struct occasion *on, struct sl_allocation *a,
                             int action) {
  const uint64_t number = b->memory.drivers_pool ? 0 : b->memory.devices[a->device].events;
  if (action == SL_FREE_COMPLETED) {
    a->complete_event = number;
    a->complete_ns = on->event->time_ns;
    a->complete_at = b->clock.at;
    return 0;
  }
  a->free_at = b->clock.at;
  a->free_event = number;
  a->free_ns = on->event->time_ns;
  a->free_phase = on->phase;
  a->free_phase_id = on->phase ? on->phase->id : 0;
  return sl_rank_allocation_ends(b, a);
}

static void pattern_add(struct sl_rank_builder *b, const struct occasion *on, int action, uint32_t place,
                        uint64_t bytes, uint64_t block_bytes, const struct sl_allocation *ended) {
  const struct sl_pattern_allocation what = {
      .action = action,
      .place = place,
      .bytes = bytes,
      .block_bytes = block_bytes,
      .ended = ended,
      .phase = on->phase,
      .recent_since = b->life.last_cycle_began_at,
      .first_allocation = b->life.current.first_allocation,
  };
  sl_rank_pattern_allocator(b->life.current.pattern, &what);
}

/* The rank's device may have a new highest point, made by this thread. */
static void peak_update(struct sl_rank_builder *b, const struct occasion *on) {
  const struct sl_block_totals *now = sl_block_map_totals(b->memory.devices[b->memory.device].map);
  sl_rank_period_peak(&b->life.current, now, on->phase, b->clock.at, on->event->time_ns);
}

/* Only the driver's side of it: the blocks are told as a whole. */
static int on_segment(struct sl_rank_builder *b, const struct sl_event *event, uint32_t device) {
  const struct sl_event_allocator *e = event->payload;
  if (e->action == SL_SEGMENT_ALLOC || e->action == SL_SEGMENT_MAP)
    return sl_driver_segments_allocator_add(
        b->segments, device, e->address, e->bytes, sl_rank_memory_place(&b->memory, e->place)->stream, event->time_ns,
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
      .event = (int64_t)b->memory.devices[device].events,
      .action = action,
      .address = (int64_t)address,
      .bytes = (int64_t)bytes,
      .stream = (int64_t)sl_rank_memory_place(&b->memory, place)->stream,
      .at_ns = (int64_t)at_ns,
  };
  if (sl_rank_memory_pool(&b->memory, place, &cells.pool) < 0)
    return sl_no_memory(b->error);
  return sl_put_allocator_segment(b->writer, &cells, b->error);
}

/* What the replay made of it. */
static int on_change(struct sl_rank_builder *b, const struct occasion *on, uint32_t device,
                     const struct sl_block_change *change) {
  const struct sl_event *event = on->event;
  const struct sl_event_allocator *e = event->payload;
  switch (e->action) {
  case SL_ALLOC: return change->unknown || b->figures_only ? 0 : on_allocator_alloc(b, on, device, change->block_bytes);
  case SL_FREE_REQUESTED:
  case SL_FREE_COMPLETED: return change->user ? on_allocator_free(b, on, change->user, e->action) : 0;
  case SL_SEGMENT_ALLOC:
  case SL_SEGMENT_MAP:
  case SL_SEGMENT_FREE:
  case SL_SEGMENT_UNMAP: return on_segment(b, event, device);
  case SL_OUT_OF_MEMORY: return sl_rank_on_out_of_memory(b, event, device);
  default: return 0;
  }
}

/* Of what is no allocation that is known by itself, and no highest point, nobody asks where it was made or freed. */
static bool only_sums_move(const struct sl_rank_builder *b, int action, const struct sl_block_change *change) {
  if (change->user || (action != SL_ALLOC && action != SL_FREE_REQUESTED && action != SL_FREE_COMPLETED))
    return false;
  return !sl_rank_period_rises(&b->life.current, sl_block_map_totals(b->memory.devices[b->memory.device].map));
}

int sl_rank_on_allocator(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_allocator *e = event->payload;
  struct sl_rank_memory *memory = &b->memory;
  const uint32_t device = sl_rank_memory_place(memory, e->place)->device;
  if (device >= SL_DEVICES_MAX) {
    memory->unknown++;
    return 0;
  }
  if (event->salvaged)
    return on_segment(b, event, device);
  if (!sl_rank_memory_map(memory, device))
    return sl_no_memory(b->error);
  const struct sl_device_memory *known = &memory->devices[device];
  if (known->restored && (int32_t)(e->sequence - known->restored_sequence) < 0)
    return 0;                                                   /* what it did is part of the snapshot */
  if (memory->device < 0 && e->action != SL_ALLOCATOR_SNAPSHOT) /* PyTorch puts every device's down to device 0 */
    memory->device = (int)device;
  memory->devices[device].events++;
  struct sl_block_change change;
  int r = sl_or_no_memory(sl_rank_memory_apply(memory, e, &change), b->error);
  if (r < 0)
    return r;
  if (b->figures_only && only_sums_move(b, e->action, &change))
    return 0;
  struct occasion on = {.event = event};
  on.placed = sl_rank_phase_find(b, event, &on.phase);
  pattern_add(b, &on, e->action, e->place, e->bytes, change.block_bytes, change.user);
  r = on_change(b, &on, device, &change);
  if (r == 0 && segment_word(e->action))
    r = segment_note(b, segment_word(e->action), device, e->place, e->action == SL_OUT_OF_MEMORY ? 0 : e->address,
                     e->bytes, event->time_ns);
  if (r == 0)
    r = sl_retries_allocator(b->retries, event, device, b->error);
  if ((int)device == memory->device)
    peak_update(b, &on);
  return r;
}

/*
 * cudaMallocAsync: PyTorch asks the driver for every tensor, and has no trace. torch.cuda.memory_stats counts what was
 * asked for, so each is a block of its own, without rounding; what the driver's pool reserves is not told by its calls.
 */
int sl_rank_on_driver_allocation(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_driver_allocation *e = event->payload;
  struct sl_rank_memory *memory = &b->memory;
  if (!memory->drivers_pool || e->device >= SL_DEVICES_MAX)
    return 0;
  const bool from_pool = strstr(sl_log_string(b->log, e->api), "Async") != NULL;
  if (from_pool == memory->uncached || strncmp(sl_log_string(b->log, e->owner), "libc10_cuda", 11) != 0)
    return 0;
  struct sl_block_map *map = sl_rank_memory_map(memory, e->device);
  if (!map)
    return sl_no_memory(b->error);
  if (memory->device < 0)
    memory->device = (int)e->device;
  int place = sl_rank_memory_place_of(memory, e->device, e->stream);
  int r = place < 0 ? place : sl_block_map_restore(map, e->address, e->bytes, e->bytes, SL_BLOCK_ALLOCATED, 0, true);
  if (r == -ENOMEM)
    return sl_no_memory(b->error);
  if (r < 0) {
    memory->unknown++;
    return 0;
  }
  const struct occasion on = {.event = event, .phase = sl_rank_phase_of(b, event), .placed = true};
  const struct sl_allocation made = {
      .address = e->address,
      .bytes = e->bytes,
      .requested_bytes = e->bytes,
      .place = (uint32_t)place,
      .device = e->device,
      .step = sl_phases_step(b->phases),
      .phase = on.phase,
  };
  struct sl_allocation *a = sl_rank_allocation_add(b, event, &made);
  if (!a)
    return sl_no_memory(b->error);
  pattern_add(b, &on, SL_ALLOC, a->place, a->bytes, a->bytes, NULL);
  if ((int)e->device == memory->device)
    peak_update(b, &on);
  return allocation_made(b, a);
}

int sl_rank_on_driver_free(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_driver_free *e = event->payload;
  uint32_t device;
  struct sl_allocation *a = b->memory.drivers_pool ? sl_rank_memory_find(&b->memory, e->address, &device) : NULL;
  if (!a)
    return 0; /* another library's */
  static const int actions[] = {SL_FREE_REQUESTED, SL_FREE_COMPLETED, SL_SEGMENT_FREE};
  struct sl_block_map *map = b->memory.devices[device].map;
  struct sl_block_change change;
  for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
    if (sl_block_map_apply(map, actions[i], e->address, a->bytes, 0, &change) < 0)
      return sl_no_memory(b->error);
  const struct occasion on = {.event = event, .phase = sl_rank_phase_of(b, event), .placed = true};
  pattern_add(b, &on, SL_FREE_COMPLETED, a->place, a->bytes, a->bytes, a);
  a->complete_ns = event->time_ns;
  a->complete_at = b->clock.at;
  return on_allocator_free(b, &on, a, SL_FREE_REQUESTED);
}

int sl_rank_on_allocator_restore(struct sl_rank_builder *b, const struct sl_event_allocator_restore *e) {
  if (e->device >= SL_DEVICES_MAX || b->memory.devices[e->device].restored) {
    b->memory.unknown++;
    return 0;
  }
  struct sl_device_memory *known = &b->memory.devices[e->device];
  known->restored = true;
  known->restored_sequence = known->next_sequence = e->sequence;
  known->missing = e->blocks;
  sl_device_balance_late(b->balance, e->device);
  return sl_rank_memory_map(&b->memory, e->device) ? 0 : sl_no_memory(b->error);
}

static int restored_segment_end(struct sl_rank_builder *b) {
  struct sl_rank_restore *restore = &b->restore;
  if (!restore->segment.bytes)
    return 0;
  int r = sl_driver_segments_allocator_add(b->segments, restore->segment.device, restore->segment.address,
                                           restore->segment.bytes, restore->segment.stream, restore->segment.at_ns,
                                           "before_attach", NULL, b->error);
  if (r == 0)
    r = segment_note(b, "existing", restore->segment.device, restore->segment.place, restore->segment.address,
                     restore->segment.bytes, restore->segment.at_ns);
  restore->segment.bytes = 0;
  return r;
}

int sl_rank_on_allocator_existing(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_allocator_existing *e = event->payload;
  struct sl_device_memory *known = e->device < SL_DEVICES_MAX ? &b->memory.devices[e->device] : NULL;
  if (!known || !known->missing) {
    b->memory.unknown++;
    return 0;
  }
  const struct sl_known_block block = {
      .device = e->device,
      .place = e->place,
      .address = e->address,
      .bytes = e->bytes,
      .requested_bytes = e->requested_bytes,
      .state = e->state,
      .starts_segment = e->starts_segment,
  };
  int r = sl_rank_memory_restore(&b->memory, &block);
  if (r == -ENOMEM)
    return sl_no_memory(b->error);
  if (r < 0)
    return 0; /* it stays missing */
  known->missing--;
  if (e->starts_segment || !b->restore.segment.bytes) {
    r = restored_segment_end(b);
    b->restore.segment.device = e->device;
    b->restore.segment.address = e->address;
    b->restore.segment.place = e->place;
    b->restore.segment.stream = sl_rank_memory_place(&b->memory, e->place)->stream;
    b->restore.segment.at_ns = event->time_ns;
  }
  b->restore.segment.bytes += e->bytes;
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
  b->restore.allocations++;
  return sl_rank_allocation_add(b, event, &made) ? 0 : sl_no_memory(b->error);
}

void sl_rank_on_existing_site(struct sl_rank_builder *b, const struct sl_event_existing_site *e) {
  struct sl_block_map *map = e->device < SL_DEVICES_MAX ? b->memory.devices[e->device].map : NULL;
  struct sl_allocation *a = map ? sl_block_map_find(map, e->address) : NULL;
  if (a && a->restored && !b->figures_only)
    sl_rank_sites_existing(&b->sites, a, e->site);
}

/* The definitions have ended: what was restored is there, and the rank's device is the one that holds most of it. */
int sl_rank_restore_finish(struct sl_rank_builder *b) {
  struct sl_rank_allocations *all = &b->allocations;
  struct sl_period_row *row = &b->life.current.row;
  uint64_t most = 0;
  b->restore.goes_on = false;
  for (int i = 0; i < SL_DEVICES_MAX; i++) {
    const struct sl_device_memory *known = &b->memory.devices[i];
    b->memory.unknown += known->missing;
    uint64_t bytes = known->restored ? sl_block_map_totals(known->map)->reserved_bytes : 0;
    if (bytes > most) {
      most = bytes;
      b->memory.device = i;
    }
  }
  int r = restored_segment_end(b);
  for (size_t i = 0; i < all->count && r == 0; i++)
    r = sl_rank_allocation_begins(b, all->list[i]);
  sl_rank_watch(b);
  for (size_t i = 0; i < all->count; i++) /* known since their snapshot only */
    if (all->list[i]->alloc_ns > row->peak_ns)
      row->peak_ns = all->list[i]->alloc_ns;
  return r;
}

static int retagged(struct sl_rank_builder *b, struct sl_allocation *a) {
  if ((int)a->device != b->memory.device || b->figures_only)
    return 0;
  struct sl_item *item = sl_rank_items_add(&b->items, SL_ITEM_retag, b->clock.now_ns);
  if (!item)
    return sl_no_memory(b->error);
  item->allocation = a;
  item->aside = sl_phases_is_aside(b->phases, a->module);
  return 0;
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
  if (tag->device >= SL_DEVICES_MAX || !b->memory.devices[tag->device].map)
    return 0;
  struct sl_allocation *a = sl_block_map_find(b->memory.devices[tag->device].map, tag->address);
  if (!a)
    return 0; /* memory from elsewhere: another allocator, or from before recording */
  const char *category = sl_log_string(b->log, tag->category);
  if (strcmp(category, sl_rules[SL_RULE_cublas_workspace].name) == 0)
    return workspace_found(b, a);
  const int number = sl_category_number(&b->categories, category);
  if (number < 0)
    return sl_no_memory(b->error);
  a->tag_category = number;
  if (tag->module)
    a->tag_module = tag->module; /* without one it may be the user's, of a tensor whose module is known */
  a->tag_step = sl_phases_step(b->phases);
  a->tag_name = sl_log_string(b->log, tag->name);
  if (a->tag_category == SL_CATEGORY_gradient || a->tag_category == SL_CATEGORY_sharded_grad)
    b->steps.gradients_tagged = true;
  if (!a->decided)
    return 0;
  a->category = a->tag_category;
  a->rule = SL_RULE_tag;
  if (a->tag_module)
    a->module = a->tag_module;
  return retagged(b, a);
}

bool sl_block_totals_are(const struct sl_block_totals *now, const struct sl_event_allocator_stats *stats) {
  return stats->requested_bytes == now->requested_bytes && stats->allocated_bytes == now->allocated_bytes &&
         stats->active_bytes == now->active_bytes && stats->reserved_bytes == now->reserved_bytes;
}

void sl_rank_on_allocator_stats(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_allocator_stats *stats = event->payload;
  const int device = b->memory.device;
  int *checked = &b->life.current.row.checked;
  if (device < 0 || stats->device != (uint32_t)device || stats->sequence != b->memory.devices[device].next_sequence)
    return; /* not at an instant that can be compared */
  const struct sl_block_totals now = sl_rank_memory_now(&b->memory);
  *checked = sl_block_totals_are(&now, stats) && *checked != 0;
}

uint64_t sl_rank_allocation_containing(void *context, uint64_t address) {
  const struct sl_rank_builder *b = context;
  uint32_t device;
  const struct sl_allocation *a = sl_rank_memory_find(&b->memory, address, &device);
  if (!a)
    a = sl_rank_allocations_holding(&b->allocations, address);
  /* What a snapshot showed later says nothing about who was at that address before. */
  return a && !(a->restored && a->alloc_ns > b->clock.now_ns) ? a->id : 0;
}

uint64_t sl_rank_allocation_sized(void *context, const struct sl_phase *phase, uint64_t bytes, uint64_t factor) {
  const struct sl_rank_builder *b = context;
  return sl_rank_allocations_sized(&b->allocations, phase, bytes, factor);
}
