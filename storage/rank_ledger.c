/*
 * A step is decided when it ends: only then is it known what outlived what. So allocations, frees, tags and module
 * states of the step are kept as items, and at its end every allocation gets its category, the sweep turns the items
 * into sums, and what is finished is written and forgotten. What happens before the first step is decided with it.
 */
#include "rank_ledger.h"

#include "../plugin/events.h"
#include "attribution.h"
#include "block_map.h"
#include "collectives.h"
#include "device_balance.h"
#include "driver_segments.h"
#include "memory_owners.h"
#include "module_states.h"
#include "refusals.h"
#include "tracker_label.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum {
  MAX_DEVICES = 64,
  MAX_PLACES = 65536,
  PROGRESS_EVENTS = 1 << 16,
  CUDA_OUT_OF_MEMORY = 2, /* CUresult */
};

struct place { /* an allocator_place event */
  uint32_t device;
  uint64_t stream, pool_owner, pool_id;
};

struct restored { /* an allocator_restore event */
  bool begun;
  uint32_t sequence; /* of the first allocator event that is not part of it */
  uint32_t missing;  /* blocks that did not come yet */
};

struct positions { /* in the event sequence, increasing */
  uint64_t *at;
  size_t count, capacity;
};

struct peak_entry { /* highest point of a (module, phase kind) in the step, over its calls */
  uint64_t key;     /* module << 8 | kind */
  struct sl_sample sample;
  struct sl_own_bytes own;
  UT_hash_handle hh;
};

struct builder {
  struct sl_log *log;
  struct sl_ledger_writer *writer;
  struct sl_error *error;
  struct sl_phases *phases;
  struct sl_sweep *sweep;
  struct sl_driver_segments *segments;
  struct sl_collectives *collectives;
  struct sl_device_balance *balance;
  struct sl_refusals *refusals;
  int r; /* first failure inside a callback */

  uint64_t at; /* position in the event sequence */
  uint64_t now_ns;

  struct sl_allocator_config config;
  struct sl_block_map *maps[MAX_DEVICES];
  uint32_t next_sequence[MAX_DEVICES];               /* of allocator events */
  struct sl_block_totals private_pools[MAX_DEVICES]; /* of CUDA graphs and MemPools, part of the maps' totals */
  struct sl_event_device devices[MAX_DEVICES];
  struct place *places;
  int device; /* the rank's own: that of its first allocator event; -1 before */
  uint64_t replay_unknown;
  struct restored restored[MAX_DEVICES];
  bool restoring; /* until the definitions end */
  uint64_t restored_allocations;
  struct { /* the one that is being put together */
    uint32_t device;
    uint64_t address, bytes, stream, at_ns;
  } restored_segment;

  struct sl_allocation **allocations; /* alive, or made in this step */
  size_t allocation_count, allocation_capacity;
  uint64_t next_allocation;

  struct sl_item *items;
  size_t item_count, item_capacity;
  struct positions optimizer_starts, backward_starts;
  bool gradients_tagged;
  struct sl_module_states *states;

  char *user_categories[SL_CATEGORY_limit];
  int category_count;

  /* the step in progress */
  struct sl_step_row step;
  uint64_t peak_at;
  struct peak_entry *peaks;
};

static const char *category_name(const struct builder *b, int category) {
  return category < SL_CATEGORY_built_in ? sl_categories[category].name : b->user_categories[category];
}

/* Number of a tag's category, known or new. */
static int category_number(struct builder *b, const char *name) {
  int number = sl_category_find(name);
  if (number >= 0)
    return number;
  for (number = SL_CATEGORY_built_in; number < b->category_count; number++)
    if (strcmp(b->user_categories[number], name) == 0)
      return number;
  if (b->category_count == SL_CATEGORY_limit || !*name)
    return SL_CATEGORY_other;
  b->user_categories[b->category_count] = strdup(name);
  return b->user_categories[b->category_count] ? b->category_count++ : SL_CATEGORY_other;
}

/* The rules' own categories come first, since their numbers say so. */
static int categories_of_rules(struct builder *b, const struct sl_user_rules *rules) {
  size_t count;
  const char *const *names = sl_user_rules_own_categories(rules, &count);
  for (size_t i = 0; i < count; i++) {
    b->user_categories[b->category_count] = strdup(names[i]);
    if (!b->user_categories[b->category_count])
      return -ENOMEM;
    b->category_count++;
  }
  return 0;
}

/* ---- growing lists ---- */

static void *list_grow(struct builder *b, void *list, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity)
    return list;
  size_t grown_capacity = *capacity ? 2 * *capacity : 1024;
  void *grown = realloc(list, grown_capacity * size);
  if (!grown) {
    b->r = sl_error_set(b->error, -ENOMEM, "out of memory");
    return NULL;
  }
  *capacity = grown_capacity;
  return grown;
}

static struct sl_item *item_add(struct builder *b, enum sl_item_type type) {
  void *grown = list_grow(b, b->items, b->item_count, &b->item_capacity, sizeof *b->items);
  if (!grown)
    return NULL;
  b->items = grown;
  struct sl_item *item = &b->items[b->item_count++];
  *item = (struct sl_item){.type = type, .at_ns = b->now_ns};
  return item;
}

static void position_add(struct builder *b, struct positions *positions) {
  void *grown = list_grow(b, positions->at, positions->count, &positions->capacity, sizeof *positions->at);
  if (!grown)
    return;
  positions->at = grown;
  positions->at[positions->count++] = b->at;
}

/* ---- module states ---- */

static size_t state_item_add(void *context, const struct sl_item *state) {
  struct builder *b = context;
  struct sl_item *item = item_add(b, state->type);
  if (!item)
    return SIZE_MAX;
  uint64_t at_ns = item->at_ns;
  *item = *state;
  item->at_ns = at_ns;
  return b->item_count - 1;
}

static void state_item_withdraw(void *context, size_t index) {
  struct builder *b = context;
  if (index < b->item_count)
    b->items[index].type = SL_ITEM_none;
}

/* Phases whose highest point is worth a row. */
static bool has_peak(const struct sl_phase *phase) {
  switch (phase->kind) {
  case SL_KIND_step:
  case SL_KIND_optimizer_step: return true;
  case SL_KIND_forward:
  case SL_KIND_eval:
  case SL_KIND_recompute:
  case SL_KIND_backward: return phase->module != 0;
  default: return false;
  }
}

static void totals_max(struct sl_block_totals *peak, const struct sl_block_totals *now) {
  if (now->requested_bytes > peak->requested_bytes)
    peak->requested_bytes = now->requested_bytes;
  if (now->active_bytes > peak->active_bytes)
    peak->active_bytes = now->active_bytes;
  if (now->reserved_bytes > peak->reserved_bytes)
    peak->reserved_bytes = now->reserved_bytes;
  if (now->allocated_bytes > peak->allocated_bytes)
    peak->allocated_bytes = now->allocated_bytes;
}

static struct sl_block_totals totals_now(const struct builder *b) {
  struct sl_block_totals none = {0};
  return b->device >= 0 && b->maps[b->device] ? *sl_block_map_totals(b->maps[b->device]) : none;
}

/* Peaks count from here, of a step or of the time between two: what is alive now is the lowest bound. */
static void step_watch(struct builder *b) {
  b->step.peak = totals_now(b);
  b->step.peak_ns = b->now_ns;
  b->step.peak_phase = 0;
  b->step.peak_module = 0;
  b->step.peak_device_bytes = 0;
  b->step.checked = -1;
  b->peak_at = b->at;
}

static void phase_opened(void *context, struct sl_phase *phase) {
  struct builder *b = context;
  if (phase->kind == SL_KIND_step) {
    b->step.step = phase->step;
    b->step.start_ns = phase->start_ns;
    b->step.before = b->step.peak; /* of the time since the step before */
    sl_module_states_step_begins(b->states);
    step_watch(b);
  }
  if (phase->kind == SL_KIND_optimizer_step)
    position_add(b, &b->optimizer_starts);
  if (phase->kind == SL_KIND_backward && !phase->module)
    position_add(b, &b->backward_starts);
  sl_module_states_opened(b->states, phase);
  if (has_peak(phase)) {
    struct sl_item *item = item_add(b, SL_ITEM_open);
    if (item)
      item->phase = phase;
  }
}

static int step_finish(struct builder *b, const struct sl_phase *step);

static void phase_closed(void *context, struct sl_phase *phase) {
  struct builder *b = context;
  sl_module_states_closed(b->states, phase);
  if (has_peak(phase)) {
    struct sl_item *item = item_add(b, SL_ITEM_close);
    if (item)
      item->phase = phase;
  }
  if (phase->kind == SL_KIND_step && b->r == 0)
    b->r = step_finish(b, phase);
}

/* ---- the sweep's results ---- */

static int sweep_snapshot(void *context, const struct sl_item *item, const struct sl_sample *sample) {
  struct builder *b = context;
  int r = 0;
  for (int c = 0; c < b->category_count && r == 0 && b->step.step >= 0; c++)
    if (sample->category_bytes[c] || sample->tracker_bytes[c])
      r = sl_write_snapshot(b->writer, b->step.step, item->module, item->call_index, item->state, item->at_ns,
                            category_name(b, c), sample->category_bytes[c], sample->tracker_bytes[c], b->error);
  return r;
}

static uint32_t sweep_parent(void *context, uint32_t module) {
  const struct builder *b = context;
  const struct sl_module_info *info = sl_phases_module(b->phases, module);
  return info ? info->parent : 0;
}

static int sweep_peak(void *context, const struct sl_phase *phase, const struct sl_sample *sample,
                      const struct sl_own_bytes *own) {
  struct builder *b = context;
  uint32_t module = phase->kind == SL_KIND_optimizer_step ? 0 : phase->module;
  uint64_t key = (uint64_t)module << 8 | (uint64_t)phase->kind;
  struct peak_entry *entry;
  HASH_FIND(hh, b->peaks, &key, sizeof key, entry);
  if (!entry) {
    entry = calloc(1, sizeof *entry);
    if (!entry)
      return sl_error_set(b->error, -ENOMEM, "out of memory");
    entry->key = key;
    HASH_ADD(hh, b->peaks, key, sizeof entry->key, entry);
  }
  if (sample->allocated_bytes > entry->sample.allocated_bytes || !entry->sample.at_ns)
    entry->sample = *sample;
  if (own->alone > entry->own.alone)
    entry->own.alone = own->alone;
  if (own->with_children > entry->own.with_children)
    entry->own.with_children = own->with_children;
  return 0;
}

static int peaks_write(struct builder *b) {
  int r = 0;
  struct peak_entry *entry, *next;
  HASH_ITER(hh, b->peaks, entry, next) {
    uint32_t module = (uint32_t)(entry->key >> 8);
    const char *phase = sl_kind_name((enum sl_kind)(entry->key & 0xff));
    if (r == 0 && b->step.step >= 0 && b->device >= 0)
      r = sl_write_peak(b->writer, b->step.step, module, phase, entry->sample.at_ns, entry->sample.allocated_bytes,
                        &entry->own, b->error);
    for (int c = 0; c < b->category_count && r == 0 && b->step.step >= 0; c++)
      if (entry->sample.category_bytes[c])
        r = sl_write_peak_category(b->writer, b->step.step, module, phase, category_name(b, c),
                                   entry->sample.category_bytes[c], b->error);
    HASH_DEL(b->peaks, entry);
    free(entry);
  }
  return r;
}

static int peak_owner_write(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  struct builder *b = context;
  return sl_write_peak_owner(b->writer, b->step.step, category_name(b, owner->category), owner->detail, owner->module,
                             owner->phase, owner->bytes, owner->allocations, error);
}

/* Everything alive at the step's highest point. */
static int owners_write(struct builder *b) {
  return sl_memory_owners(b->allocations, b->allocation_count, (uint32_t)b->device, b->peak_at, peak_owner_write, b,
                          b->error);
}

/* ---- requests that were refused ---- */

static int refusal_add(struct builder *b, const struct sl_event *event, uint32_t device, const char *source,
                       uint64_t requested_bytes, int64_t free_bytes) {
  struct sl_refusal refusal = {
      .at = b->at,
      .at_ns = event->time_ns,
      .thread = event->thread,
      .device = device,
      .source = source,
      .row = {.requested_bytes = requested_bytes,
              .free_bytes = free_bytes,
              .place = sl_segment_place_of(sl_phases_current(b->phases, event->thread))},
  };
  if (device < MAX_DEVICES && b->maps[device]) {
    refusal.row.recorded = true;
    refusal.row.totals = *sl_block_map_totals(b->maps[device]);
    refusal.row.free_blocks = sl_block_map_free_blocks(b->maps[device]);
  }
  return sl_refusals_add(b->refusals, &refusal, b->error);
}

/* PyTorch's allocator retries by itself and tells how that ended; of all others only the driver's word is known. */
static int on_driver_failure(struct builder *b, const struct sl_event *event) {
  const struct sl_event_driver_failure *failure = event->payload;
  const char *owner = sl_log_string(b->log, failure->owner);
  if (failure->result != CUDA_OUT_OF_MEMORY || (b->device >= 0 && strncmp(owner, "libc10_cuda", 11) == 0))
    return 0;
  return refusal_add(b, event, failure->device, owner, failure->bytes, -1);
}

struct refusal_context {
  struct builder *b;
  uint64_t at_ns;
};

static int oom_owner_write(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  const struct refusal_context *refusal = context;
  return sl_write_oom_owner(refusal->b->writer, refusal->at_ns, category_name(refusal->b, owner->category),
                            owner->detail, owner->module, owner->phase, owner->bytes, owner->allocations, error);
}

static int refusals_settle(struct builder *b) {
  size_t count;
  const struct sl_refusal *refusals = sl_refusals_list(b->refusals, &count);
  int r = 0;
  for (size_t i = 0; i < count && r == 0; i++) {
    struct refusal_context context = {b, refusals[i].at_ns};
    r = sl_write_oom(b->writer, refusals[i].at_ns, refusals[i].device, refusals[i].source, &refusals[i].row, b->error);
    if (r == 0)
      r = sl_memory_owners(b->allocations, b->allocation_count, refusals[i].device, refusals[i].at, oom_owner_write,
                           &context, b->error);
  }
  sl_refusals_clear(b->refusals);
  return r;
}

/* ---- the whole device ---- */

static uint64_t workspace_bytes(void *context, uint32_t device, uint64_t at) {
  const struct builder *b = context;
  uint64_t bytes = 0;
  for (size_t i = 0; i < b->allocation_count; i++) {
    const struct sl_allocation *a = b->allocations[i];
    const struct place *place = &b->places[a->place];
    if (a->rule == SL_RULE_cublas_workspace && a->device == device && a->alloc_at <= at &&
        (!a->free_at || a->free_at > at) && !place->pool_owner && !place->pool_id)
      bytes += a->bytes;
  }
  return bytes;
}

static int device_sample_take(struct builder *b, const struct sl_event *event, uint32_t device, uint64_t total_bytes,
                              uint64_t used_bytes) {
  struct sl_allocator_memory allocator = {0};
  if (device < MAX_DEVICES && b->maps[device])
    allocator = (struct sl_allocator_memory){*sl_block_map_totals(b->maps[device]), b->private_pools[device]};
  if ((int)device == b->device && used_bytes > b->step.peak_device_bytes)
    b->step.peak_device_bytes = used_bytes;
  return sl_device_balance_sample(b->balance, device, b->at, event->time_ns, total_bytes, used_bytes, &allocator,
                                  b->error);
}

static int on_device_sample(struct builder *b, const struct sl_event *event) {
  const struct sl_event_device_sample *sample = event->payload;
  return device_sample_take(b, event, sample->device, sample->total_bytes, sample->total_bytes - sample->free_bytes);
}

/* PyTorch asked the driver for the free bytes when it gave up: a sample like any other. */
static int on_out_of_memory(struct builder *b, const struct sl_event *event, uint32_t device) {
  const struct sl_event_allocator *e = event->payload;
  uint64_t total_bytes = b->devices[device].total_bytes;
  int r = refusal_add(b, event, device, "allocator", e->bytes, (int64_t)e->address);
  if (r == 0 && total_bytes >= e->address && total_bytes)
    r = device_sample_take(b, event, device, total_bytes, total_bytes - e->address);
  return r;
}

static int on_gpu_module(struct builder *b, const struct sl_event *event) {
  const struct sl_event_gpu_module *code = event->payload;
  struct sl_segment_place place = sl_segment_place_of(sl_phases_current(b->phases, event->thread));
  sl_device_balance_event(b->balance, event);
  return sl_write_gpu_code(b->writer, code->device, event->time_ns, code->loaded, code->bytes, &place, b->error);
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

/* ---- the end of a step ---- */

static int allocation_write(struct builder *b, const struct sl_allocation *a) {
  const struct place *place = &b->places[a->place];
  char pool[48] = "";
  if (place->pool_owner || place->pool_id)
    snprintf(pool, sizeof pool, "%llu.%llu", (unsigned long long)place->pool_owner, (unsigned long long)place->pool_id);
  return sl_write_allocation(b->writer, a, place->stream, pool, category_name(b, a->category), b->error);
}

/* Writes and forgets what is freed for good; the rest goes on into the next step. all: the log has ended. */
static int allocations_settle(struct builder *b, bool all) {
  size_t kept = 0;
  int r = 0;
  for (size_t i = 0; i < b->allocation_count; i++) {
    struct sl_allocation *a = b->allocations[i];
    a->phase = a->free_phase = NULL;
    if (r == 0 && (all || a->complete_ns)) {
      r = allocation_write(b, a);
      free(a);
    } else {
      b->allocations[kept++] = a;
    }
  }
  b->allocation_count = kept;
  return r;
}

static int phases_settle(struct builder *b, bool all) {
  int r = 0;
  for (struct sl_phase *phase = sl_phases_list(b->phases); phase && r == 0; phase = phase->next)
    if (!phase->written && (phase->end_at || all)) {
      r = sl_write_phase(b->writer, phase, b->error);
      phase->written = true;
    }
  sl_phases_prune(b->phases);
  return r;
}

/* Decides, sums and writes what happened since the last step's end. step NULL: the log ended outside of a step. */
static int step_finish(struct builder *b, const struct sl_phase *step) {
  struct sl_step_facts facts = {
      .step = step ? step->step : -1,
      .optimizer_starts = b->optimizer_starts.at,
      .optimizer_start_count = b->optimizer_starts.count,
      .backward_starts = b->backward_starts.at,
      .backward_start_count = b->backward_starts.count,
      .gradients_tagged = b->gradients_tagged,
      .cut_off = step && !step->end_at,
  };
  enum sl_tracker tracker = sl_module_states_saw_fsdp(b->states) ? SL_TRACKER_fsdp : SL_TRACKER_module;
  sl_tracker_find_scratch(b->items, b->item_count);
  for (size_t i = 0; i < b->allocation_count; i++)
    if (!b->allocations[i]->decided) {
      sl_attribute(b->allocations[i], &facts);
      sl_tracker_label(b->allocations[i], tracker, b->phases);
      sl_attribute_by_user(b->allocations[i], b->phases);
    }
  b->step.step = facts.step;
  b->step.end_ns = b->now_ns;
  b->step.end = totals_now(b);
  if (b->device >= 0 && b->maps[b->device])
    b->step.end_free = sl_block_map_free_blocks(b->maps[b->device]);
  int r = sl_sweep_run(b->sweep, b->items, b->item_count);
  if (r < 0 && !b->error->text[0])
    sl_error_set(b->error, r, "the step could not be summed up: %s", strerror(-r));
  if (r == 0)
    r = peaks_write(b);
  b->step.recorded = b->device >= 0;
  if (r == 0 && step && b->step.recorded)
    r = owners_write(b);
  if (r == 0 && step)
    r = sl_write_step(b->writer, &b->step, b->error);
  if (r == 0)
    r = sl_device_balance_settle(b->balance, workspace_bytes, b, b->error);
  if (r == 0)
    r = refusals_settle(b);
  for (size_t i = 0; i < b->allocation_count && step; i++)
    if (!b->allocations[i]->free_at) {
      b->allocations[i]->last_step = step->step;
      if (sl_tracker_loses_sight(b->allocations[i], &facts))
        sl_sweep_unlabel(b->sweep, b->allocations[i]);
    }
  if (r == 0)
    r = allocations_settle(b, false);
  if (r == 0)
    r = phases_settle(b, false);
  b->item_count = 0;
  b->optimizer_starts.count = b->backward_starts.count = 0;
  b->gradients_tagged = false;
  sl_module_states_step_ended(b->states);
  b->step.step = -1;
  step_watch(b);
  return r;
}

/* ---- events ---- */

static struct sl_block_map *map_of(struct builder *b, uint32_t device) {
  if (!b->maps[device] && !(b->maps[device] = sl_block_map_new(&b->config)))
    b->r = sl_error_set(b->error, -ENOMEM, "out of memory");
  return b->maps[device];
}

/* Keeps a new allocation, whose block is the one that its map handed out last. NULL: b->r says why. */
static struct sl_allocation *allocation_add(struct builder *b, const struct sl_event *event,
                                            const struct sl_allocation *made) {
  void *grown = list_grow(b, b->allocations, b->allocation_count, &b->allocation_capacity, sizeof *b->allocations);
  struct sl_allocation *a = grown ? malloc(sizeof *a) : NULL;
  if (!a) {
    b->r = sl_error_set(b->error, -ENOMEM, "out of memory");
    return NULL;
  }
  *a = *made;
  a->id = ++b->next_allocation;
  a->thread = event->thread;
  a->tid = event->tid;
  a->alloc_at = b->at;
  a->alloc_ns = event->time_ns;
  a->tag_category = -1;
  a->last_step = -1;
  b->allocations = grown;
  b->allocations[b->allocation_count++] = a;
  sl_block_map_set_user(b->maps[a->device], a);
  return a;
}

static int allocation_begins(struct builder *b, struct sl_allocation *a) {
  struct sl_item *item = (int)a->device == b->device ? item_add(b, SL_ITEM_alloc) : NULL;
  if (item)
    item->allocation = a;
  return b->r;
}

static int on_allocator_alloc(struct builder *b, const struct sl_event *event, const struct sl_event_allocator *e,
                              uint32_t device, uint64_t block_bytes) {
  const struct sl_allocation made = {
      .address = e->address,
      .bytes = block_bytes,
      .requested_bytes = e->bytes,
      .place = e->place,
      .device = device,
      .step = sl_phases_step(b->phases),
      .phase = sl_phases_current(b->phases, event->thread),
  };
  struct sl_allocation *a = allocation_add(b, event, &made);
  if (!a)
    return b->r;
  if ((int)device == b->device)
    sl_module_states_allocated(b->states, a->phase);
  return allocation_begins(b, a);
}

static int on_allocator_free(struct builder *b, const struct sl_event *event, struct sl_allocation *a, int action) {
  if (action == SL_FREE_COMPLETED) {
    a->complete_ns = event->time_ns;
    return 0;
  }
  a->free_at = b->at;
  a->free_ns = event->time_ns;
  a->free_phase = sl_phases_current(b->phases, event->thread);
  a->free_phase_id = a->free_phase ? a->free_phase->id : 0;
  if ((int)a->device != b->device)
    return 0;
  struct sl_item *item = item_add(b, SL_ITEM_free);
  if (!item)
    return b->r;
  item->allocation = a;
  return 0;
}

/* A new highest point of the step, made by an allocation of this thread. */
static void peak_update(struct builder *b, const struct sl_event *event, const struct sl_block_totals *now) {
  if (now->allocated_bytes > b->step.peak.allocated_bytes) {
    const struct sl_phase *phase = sl_phases_current(b->phases, event->thread);
    while (phase && phase->kind == SL_KIND_user && phase->parent)
      phase = phase->parent; /* a user's range says less than what stands around it */
    b->step.peak_ns = event->time_ns;
    b->step.peak_phase = phase ? phase->id : 0;
    b->step.peak_module = sl_phase_module(phase);
    b->peak_at = b->at;
  }
  totals_max(&b->step.peak, now);
}

static int on_allocator(struct builder *b, const struct sl_event *event) {
  const struct sl_event_allocator *e = event->payload;
  const struct place *place = &b->places[e->place];
  uint32_t device = place->device;
  if (device >= MAX_DEVICES) {
    b->replay_unknown++;
    return 0;
  }
  if (!map_of(b, device))
    return b->r;
  if (b->restored[device].begun && (int32_t)(e->sequence - b->restored[device].sequence) < 0)
    return 0;                                              /* what it did is part of the snapshot */
  if (b->device < 0 && e->action != SL_ALLOCATOR_SNAPSHOT) /* PyTorch puts every device's snapshot down to device 0 */
    b->device = (int)device;
  b->next_sequence[device] = e->sequence + 1;
  struct sl_block_change change;
  int r = sl_block_map_apply(b->maps[device], e->action, e->address, e->bytes, e->place, &change);
  if (r < 0)
    return sl_error_set(b->error, r, "out of memory");
  b->replay_unknown += change.unknown;
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
    r = sl_driver_segments_allocator_add(b->segments, device, e->address, e->bytes, place->stream, event->time_ns,
                                         e->action == SL_SEGMENT_MAP ? "segment_map" : "segment_alloc",
                                         sl_phases_current(b->phases, event->thread), b->error);
    break;
  case SL_SEGMENT_FREE:
  case SL_SEGMENT_UNMAP:
    r = sl_driver_segments_allocator_remove(b->segments, e->address, event->time_ns, b->error);
    break;
  case SL_OUT_OF_MEMORY: r = on_out_of_memory(b, event, device); break;
  default: break;
  }
  if ((int)device == b->device)
    peak_update(b, event, now);
  return r < 0 ? r : b->r;
}

/* ---- what was there before recording began ---- */

static int on_allocator_restore(struct builder *b, const struct sl_event_allocator_restore *e) {
  if (e->device >= MAX_DEVICES || b->restored[e->device].begun) {
    b->replay_unknown++;
    return 0;
  }
  b->restored[e->device] = (struct restored){.begun = true, .sequence = e->sequence, .missing = e->blocks};
  b->next_sequence[e->device] = e->sequence;
  sl_device_balance_late(b->balance, e->device);
  return map_of(b, e->device) ? 0 : b->r;
}

static int restored_segment_end(struct builder *b) {
  if (!b->restored_segment.bytes)
    return 0;
  int r = sl_driver_segments_allocator_add(b->segments, b->restored_segment.device, b->restored_segment.address,
                                           b->restored_segment.bytes, b->restored_segment.stream,
                                           b->restored_segment.at_ns, "before_attach", NULL, b->error);
  b->restored_segment.bytes = 0;
  return r;
}

static int on_allocator_existing(struct builder *b, const struct sl_event *event) {
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
  const struct place *place = &b->places[e->place];
  if (place->pool_owner || place->pool_id) {
    struct sl_block_totals *pools = &b->private_pools[e->device];
    pools->reserved_bytes += e->bytes;
    pools->active_bytes += e->state == SL_BLOCK_FREE ? 0 : e->bytes;
    pools->allocated_bytes += e->state == SL_BLOCK_ALLOCATED ? e->bytes : 0;
  }
  if (e->starts_segment || !b->restored_segment.bytes) {
    r = restored_segment_end(b);
    b->restored_segment.device = e->device;
    b->restored_segment.address = e->address;
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
  return allocation_add(b, event, &made) ? 0 : b->r;
}

/* The definitions have ended: what was restored is there, and the rank's device is the one that holds most of it. */
static int restore_finish(struct builder *b) {
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
    r = allocation_begins(b, b->allocations[i]);
  step_watch(b);
  return r;
}

static int on_tag(struct builder *b, const struct sl_event *event) {
  const struct sl_event_tag *tag = event->payload;
  if (tag->device >= MAX_DEVICES || !b->maps[tag->device])
    return 0;
  struct sl_allocation *a = sl_block_map_find(b->maps[tag->device], tag->address);
  if (!a)
    return 0; /* memory from elsewhere: another allocator, or from before recording */
  a->tag_category = category_number(b, sl_log_string(b->log, tag->category));
  a->tag_module = tag->module;
  a->tag_step = sl_phases_step(b->phases);
  a->tag_name = sl_log_string(b->log, tag->name);
  if (a->tag_category == SL_CATEGORY_gradient || a->tag_category == SL_CATEGORY_sharded_grad)
    b->gradients_tagged = true;
  if (!a->decided)
    return 0;
  a->category = a->tracker_label = a->tag_category;
  a->tracker_later = -1;
  a->tracker_bucket = false;
  a->rule = SL_RULE_tag;
  if (a->tag_module)
    a->module = a->tag_module;
  struct sl_item *item = (int)a->device == b->device ? item_add(b, SL_ITEM_retag) : NULL;
  if (item)
    item->allocation = a;
  return b->r;
}

static void on_allocator_stats(struct builder *b, const struct sl_event *event) {
  const struct sl_event_allocator_stats *stats = event->payload;
  if ((int)stats->device != b->device || stats->sequence != b->next_sequence[b->device])
    return; /* not at an instant that can be compared */
  struct sl_block_totals now = totals_now(b);
  bool same = stats->requested_bytes == now.requested_bytes && stats->allocated_bytes == now.allocated_bytes &&
              stats->active_bytes == now.active_bytes && stats->reserved_bytes == now.reserved_bytes;
  b->step.checked = same && b->step.checked != 0;
}

/* ---- buffers of collectives ---- */

static bool is_alive(const struct sl_allocation *a) {
  return !a->free_at;
}

/* From the newest: buffers are mostly fresh. */
static uint64_t allocation_containing(void *context, uint64_t address) {
  const struct builder *b = context;
  const struct sl_allocation *a = NULL;
  for (int i = 0; i < MAX_DEVICES && !a; i++)
    a = b->maps[i] ? sl_block_map_find(b->maps[i], address) : NULL;
  for (size_t i = b->allocation_count; i-- > 0 && !a;)
    if (is_alive(b->allocations[i]) && address >= b->allocations[i]->address &&
        address - b->allocations[i]->address < b->allocations[i]->bytes)
      a = b->allocations[i];
  return a ? a->id : 0;
}

static uint64_t allocation_sized(void *context, const struct sl_phase *phase, uint64_t bytes, uint64_t factor) {
  const struct builder *b = context;
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

static int on_event(struct builder *b, const struct sl_event *event) {
  const void *payload = event->payload;
  int r = sl_collectives_event(b->collectives, event, b->error);
  if (r < 0)
    return r;
  switch (event->type) {
  case SL_EVENT_allocator: return on_allocator(b, event);
  case SL_EVENT_allocator_place: {
    const struct sl_event_allocator_place *e = payload;
    if (e->id < MAX_PLACES)
      b->places[e->id] = (struct place){e->device, e->stream, e->pool_owner, e->pool_id};
    return 0;
  }
  case SL_EVENT_allocator_restore: return on_allocator_restore(b, payload);
  case SL_EVENT_allocator_existing: return on_allocator_existing(b, event);
  case SL_EVENT_allocator_stats: on_allocator_stats(b, event); return 0;
  case SL_EVENT_tag: return on_tag(b, event);
  case SL_EVENT_device_sample: return on_device_sample(b, event);
  case SL_EVENT_driver_allocation: {
    const struct sl_event_driver_allocation *e = payload;
    sl_refusals_saved(b->refusals, event->thread, sl_log_string(b->log, e->owner), e->bytes);
    return sl_driver_segments_add(b->segments, event, sl_phases_current(b->phases, event->thread), b->error);
  }
  case SL_EVENT_driver_failure: return on_driver_failure(b, event);
  case SL_EVENT_gpu_module: return on_gpu_module(b, event);
  case SL_EVENT_process_memory: sl_device_balance_event(b->balance, event); return 0;
  case SL_EVENT_context: {
    const struct sl_event_context *e = payload;
    return sl_write_context(b->writer, e->device, e->context, event->time_ns, e->created, b->error);
  }
  case SL_EVENT_driver_free: return sl_driver_segments_remove(b->segments, event, b->error);
  case SL_EVENT_kernel: {
    const struct sl_event_kernel *kernel = payload;
    return sl_write_kernel(b->writer, kernel, sl_log_string(b->log, kernel->name), b->error);
  }
  case SL_EVENT_memory_copy: return sl_write_memcpy(b->writer, payload, b->error);
  case SL_EVENT_memory_set: return sl_write_memset(b->writer, payload, b->error);
  case SL_EVENT_gap: {
    const struct sl_event_gap *gap = payload;
    return sl_write_gap(b->writer, event->time_ns, sl_log_string(b->log, gap->source), gap->lost,
                        sl_log_string(b->log, gap->reason), b->error);
  }
  case SL_EVENT_source_state: {
    const struct sl_event_source_state *state = payload;
    return sl_write_source(b->writer, sl_log_string(b->log, state->source), sl_log_string(b->log, state->state),
                           sl_log_string(b->log, state->reason), event->time_ns, b->error);
  }
  default:
    if (sl_phases_event(b->phases, event, b->at) < 0)
      return sl_error_set(b->error, -ENOMEM, "out of memory");
    return b->r;
  }
}

/* ---- the rank as a whole ---- */

static int64_t info_number(const struct sl_log *log, const char *key) {
  const char *text = sl_log_info(log, key);
  return text && *text ? strtoll(text, NULL, 10) : -1;
}

static int rank_write(struct builder *b, uint64_t start_ns, uint64_t end_ns, bool clean_exit,
                      const struct sl_event_device *device) {
  struct sl_log_counts counts;
  sl_log_counts(b->log, &counts);
  int r = 0;
  if (b->replay_unknown)
    r = sl_write_gap(b->writer, b->now_ns, "replay", b->replay_unknown,
                     "allocator events that speak of memory from before recording, or contradict the replay", b->error);
  if (r == 0 && sl_phases_unbalanced(b->phases))
    r = sl_write_gap(b->writer, b->now_ns, "ranges", sl_phases_unbalanced(b->phases),
                     "range ends without their start (recording began inside of them, or the program is unbalanced)",
                     b->error);

  struct sl_rank_row row = {
      .world_size = info_number(b->log, "world_size"),
      .local_rank = info_number(b->log, "local_rank"),
      .pid = info_number(b->log, "pid"),
      .device = b->device >= 0 ? b->device : info_number(b->log, "device"),
      .host = sl_log_info(b->log, "host"),
      .device_name = device->total_bytes ? sl_log_string(b->log, device->name) : NULL,
      .device_uuid = device->total_bytes ? sl_log_string(b->log, device->uuid) : NULL,
      .device_bytes = device->total_bytes,
      .torch_version = sl_log_info(b->log, "torch_version"),
      .nccl_version = sl_log_info(b->log, "nccl_version"),
      .cuda_version = sl_log_info(b->log, "cuda_version"),
      .allocator_backend = sl_log_info(b->log, "allocator_backend"),
      .allocator_config = sl_log_info(b->log, "allocator_config"),
      .fidelity = sl_log_info(b->log, "fidelity"),
      .start_ns = start_ns,
      .end_ns = end_ns,
      .events = counts.events,
      .events_lost = counts.lost + b->replay_unknown,
      .restored_allocations = b->restored_allocations,
      .clean_exit = clean_exit,
  };
  uint32_t module_count;
  const struct sl_module_info *modules = sl_phases_modules(b->phases, &module_count);
  for (uint32_t i = 0; i < module_count && r == 0; i++)
    r = sl_write_module(b->writer, &modules[i], b->error);
  return r < 0 ? r : sl_write_rank(b->writer, &row, b->error);
}

static void builder_free(struct builder *b) {
  for (int i = 0; i < MAX_DEVICES; i++)
    b->maps[i] = sl_block_map_free(b->maps[i]);
  for (size_t i = 0; i < b->allocation_count; i++)
    free(b->allocations[i]);
  for (int i = SL_CATEGORY_built_in; i < b->category_count; i++)
    free(b->user_categories[i]);
  struct peak_entry *peak, *next_peak;
  HASH_ITER(hh, b->peaks, peak, next_peak) {
    HASH_DEL(b->peaks, peak);
    free(peak);
  }
  free(b->allocations);
  free(b->items);
  free(b->optimizer_starts.at);
  free(b->backward_starts.at);
  free(b->places);
  b->phases = sl_phases_free(b->phases);
  b->states = sl_module_states_free(b->states);
  b->sweep = sl_sweep_free(b->sweep);
  b->segments = sl_driver_segments_free(b->segments);
  b->collectives = sl_collectives_free(b->collectives);
  b->balance = sl_device_balance_free(b->balance);
  b->refusals = sl_refusals_free(b->refusals);
}

int sl_rank_ledger_build(struct sl_log *log, struct sl_ledger_writer *writer, const struct sl_ledger_options *options,
                         uint64_t done, uint64_t total, struct sl_error *error) {
  struct builder b = {
      .log = log,
      .writer = writer,
      .error = error,
      .device = -1,
      .restoring = true,
      .category_count = SL_CATEGORY_built_in,
  };
  struct sl_phase_listener phase_listener = {&b, phase_opened, phase_closed};
  struct sl_sweep_listener sweep_listener = {&b, sweep_snapshot, sweep_peak, sweep_parent};
  struct sl_event event;
  uint64_t start_ns = 0, end_ns = 0;
  bool clean_exit = false;
  int r = 0;
  sl_allocator_config_parse(sl_log_info(log, "allocator_config"), &b.config);
  b.step.step = -1;
  b.step.checked = -1;
  b.places = calloc(MAX_PLACES, sizeof *b.places);
  b.phases = sl_phases_new(log, &phase_listener);
  b.sweep = sl_sweep_new(&sweep_listener);
  struct sl_states_sink states_sink = {&b, state_item_add, state_item_withdraw};
  b.states = b.phases ? sl_module_states_new(b.phases, &states_sink) : NULL;
  b.segments = sl_driver_segments_new(log, writer);
  b.balance = sl_device_balance_new(writer, b.segments);
  b.refusals = sl_refusals_new();
  const struct sl_user_rules *rules = options ? options->rules : NULL;
  struct sl_collective_host host = {&b, allocation_containing, allocation_sized};
  b.collectives = b.phases ? sl_collectives_new(log, writer, b.phases, &host) : NULL;
  if (!b.places || !b.phases || !b.states || !b.sweep || !b.segments || !b.collectives || !b.balance || !b.refusals) {
    r = sl_error_set(error, -ENOMEM, "out of memory");
    goto finish;
  }
  if (categories_of_rules(&b, rules) < 0 || sl_phases_use_rules(b.phases, rules) < 0) {
    r = sl_error_set(error, -ENOMEM, "out of memory");
    goto finish;
  }
  while ((r = sl_log_next(log, &event, error)) > 0) {
    b.at++;
    /* Definitions are read first, whenever they were made: they say nothing about the time. */
    if (event.thread != 0 && event.time_ns > b.now_ns)
      b.now_ns = event.time_ns;
    if (!start_ns || event.time_ns < start_ns)
      start_ns = event.time_ns;
    if (event.time_ns > end_ns)
      end_ns = event.time_ns;
    if (event.type == SL_EVENT_process_end)
      clean_exit = true;
    if (event.type == SL_EVENT_device) {
      const struct sl_event_device *device = event.payload;
      if (device->id < MAX_DEVICES)
        b.devices[device->id] = *device;
    }
    if (b.restoring && event.thread != 0)
      r = restore_finish(&b);
    if (r >= 0)
      r = on_event(&b, &event);
    if (r < 0)
      goto finish;
    if (options && options->progress && b.at % PROGRESS_EVENTS == 0)
      options->progress(options->progress_context, done + sl_log_bytes_read(log), total);
  }
  if (r == 0 && b.restoring)
    r = restore_finish(&b);
  if (r < 0)
    goto finish;
  {
    /* A step that was cut off is a step all the same: its peak is what an OOM is about. */
    struct sl_phase *open_step = NULL;
    for (struct sl_phase *p = sl_phases_list(b.phases); p; p = p->next)
      if (p->kind == SL_KIND_step && !p->end_at)
        open_step = p;
    r = step_finish(&b, open_step);
  }
  if (r == 0)
    r = allocations_settle(&b, true);
  if (r == 0)
    r = phases_settle(&b, true);
  if (r == 0)
    r = sl_driver_segments_finish(b.segments, error);
  if (r == 0)
    r = sl_collectives_finish(b.collectives, error);
  if (r == 0)
    r = rank_write(&b, start_ns, end_ns, clean_exit, &b.devices[b.device >= 0 ? b.device : 0]);
finish:
  builder_free(&b);
  return r;
}
