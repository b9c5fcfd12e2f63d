/*
 * A step is decided when it ends: only then is it known what outlived what. So allocations, frees, tags and module
 * states of the step are kept as items, and at its end every allocation gets its category, the sweep turns the items
 * into sums, and what is finished is written and forgotten. What happens before the first step is decided with it.
 */
#include "rank_builder.h"
#include "storage/tables/ledger_tables.h"
#include "storage/tracker/tracker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sl_rank_category_name(const struct sl_rank_builder *b, int category) {
  return category < SL_CATEGORY_built_in ? sl_categories[category].name : b->user_categories[category];
}

void *sl_rank_list_grow(struct sl_rank_builder *b, void *list, size_t count, size_t *capacity, size_t size) {
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

struct sl_item *sl_rank_item_add(struct sl_rank_builder *b, enum sl_item_type type) {
  void *grown = sl_rank_list_grow(b, b->items, b->item_count, &b->item_capacity, sizeof *b->items);
  if (!grown)
    return NULL;
  b->items = grown;
  struct sl_item *item = &b->items[b->item_count++];
  *item = (struct sl_item){.type = type, .at_ns = b->now_ns};
  return item;
}

static void position_add(struct sl_rank_builder *b, struct positions *positions) {
  void *grown = sl_rank_list_grow(b, positions->at, positions->count, &positions->capacity, sizeof *positions->at);
  if (!grown)
    return;
  positions->at = grown;
  positions->at[positions->count++] = b->at;
}

size_t sl_rank_state_item_add(void *context, const struct sl_item *state) {
  struct sl_rank_builder *b = context;
  struct sl_item *item = sl_rank_item_add(b, state->type);
  if (!item)
    return SIZE_MAX;
  uint64_t at_ns = item->at_ns;
  *item = *state;
  item->at_ns = at_ns;
  return b->item_count - 1;
}

void sl_rank_state_item_withdraw(void *context, size_t index) {
  struct sl_rank_builder *b = context;
  if (index < b->item_count)
    b->items[index].type = SL_ITEM_none;
}

void sl_rank_state_item_fail(void *context) {
  struct sl_rank_builder *b = context;
  b->r = sl_error_set(b->error, -ENOMEM, "out of memory");
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

void sl_rank_totals_max(struct sl_block_totals *peak, const struct sl_block_totals *now) {
  if (now->requested_bytes > peak->requested_bytes)
    peak->requested_bytes = now->requested_bytes;
  if (now->active_bytes > peak->active_bytes)
    peak->active_bytes = now->active_bytes;
  if (now->reserved_bytes > peak->reserved_bytes)
    peak->reserved_bytes = now->reserved_bytes;
  if (now->allocated_bytes > peak->allocated_bytes)
    peak->allocated_bytes = now->allocated_bytes;
}

struct sl_block_totals sl_rank_totals_now(const struct sl_rank_builder *b) {
  struct sl_block_totals none = {0};
  return b->device >= 0 && b->maps[b->device] ? *sl_block_map_totals(b->maps[b->device]) : none;
}

/* Peaks count from here, of a step or of the time between two: what is alive now is the lowest bound. */
void sl_rank_step_watch(struct sl_rank_builder *b) {
  b->step.peak = sl_rank_totals_now(b);
  b->step.peak_ns = b->now_ns;
  b->step.peak_phase = 0;
  b->step.peak_module = 0;
  b->step.peak_device_bytes = b->device_used_bytes; /* what the step begins with */
  b->step.checked = -1;
  b->peak_at = b->at;
}

void sl_rank_phase_opened(void *context, struct sl_phase *phase) {
  struct sl_rank_builder *b = context;
  if (phase->kind == SL_KIND_step) {
    b->step.step = phase->step;
    b->step.recorded_step = phase->recorded_step;
    b->step.start_ns = phase->start_ns;
    b->step.before = b->step.peak; /* of the time since the step before */
    sl_module_states_step_begins(b->states);
    sl_rank_step_watch(b);
  }
  if (phase->kind == SL_KIND_optimizer_step)
    position_add(b, &b->optimizer_starts);
  if (phase->kind == SL_KIND_backward && !phase->module)
    position_add(b, &b->backward_starts);
  sl_module_states_opened(b->states, phase);
  sl_rank_pattern_opened(b, phase);
  if (has_peak(phase)) {
    struct sl_item *item = sl_rank_item_add(b, SL_ITEM_open);
    if (item)
      item->phase = phase;
  }
}

/* An item that keeps the place at which a reshard ended. */
static struct sl_item *reshard_item_add(struct sl_rank_builder *b) {
  void *grown = sl_rank_list_grow(b, b->reshards, b->reshard_count, &b->reshard_capacity, sizeof *b->reshards);
  struct sl_item *item = grown ? sl_rank_item_add(b, SL_ITEM_none) : NULL;
  if (grown)
    b->reshards = grown;
  if (item)
    b->reshards[b->reshard_count++] = (struct reshard){.at = b->at, .item = b->item_count - 1};
  return item;
}

/* A backward that its unit's reshard ended is closed later, when no reduce has followed: its peaks end where it did. */
static struct sl_item *close_item_of(struct sl_rank_builder *b, const struct sl_phase *phase) {
  size_t low = 0, high = phase->end_at < b->at ? b->reshard_count : 0;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (b->reshards[middle].at < phase->end_at)
      low = middle + 1;
    else
      high = middle;
  }
  if (phase->end_at < b->at && low < b->reshard_count && b->reshards[low].at == phase->end_at) {
    struct sl_item *item = &b->items[b->reshards[low].item];
    if (item->type == SL_ITEM_none)
      return item;
  }
  return sl_rank_item_add(b, SL_ITEM_close);
}

void sl_rank_phase_closed(void *context, struct sl_phase *phase) {
  struct sl_rank_builder *b = context;
  sl_module_states_closed(b->states, phase);
  sl_rank_pattern_closed(b, phase);
  struct sl_item *item = NULL;
  if (has_peak(phase) && (item = close_item_of(b, phase)))
    item->type = SL_ITEM_close;
  else if (phase->point == SL_POINT_post_backward_reshard)
    item = reshard_item_add(b);
  if (item)
    item->phase = phase;
  if (phase->kind == SL_KIND_step && b->r == 0)
    b->r = sl_rank_step_finish(b, phase);
}

int sl_rank_sweep_snapshot(void *context, const struct sl_item *item, const struct sl_sample *sample) {
  struct sl_rank_builder *b = context;
  const uint64_t *tracker_bytes = sl_tracker_next(b->tracker);
  int r = 0;
  for (int c = 0; c < b->category_count && r == 0 && b->step.step >= 0; c++)
    if (sample->category_bytes[c] || tracker_bytes[c]) {
      sl_rank_pattern_snapshot(b, item, c, sample->category_bytes[c], tracker_bytes[c]);
      const struct sl_snapshot_cells cells = {
          .step = b->step.step,
          .module_id = item->module,
          .call_index = item->call_index,
          .state = sl_state_name(item->state),
          .at_ns = (int64_t)sample->at_ns,
          .category = sl_rank_category_name(b, c),
          .bytes = (int64_t)sample->category_bytes[c],
          .tracker_bytes = (int64_t)tracker_bytes[c],
      };
      r = sl_put_snapshot(b->writer, &cells, b->error);
    }
  return r;
}

uint32_t sl_rank_sweep_parent(void *context, uint32_t module) {
  const struct sl_rank_builder *b = context;
  const struct sl_module_info *info = sl_phases_module(b->phases, module);
  return info ? info->parent : 0;
}

int sl_rank_sweep_peak(void *context, const struct sl_phase *phase, const struct sl_sample *sample,
                       const struct sl_own_bytes *own) {
  struct sl_rank_builder *b = context;
  if (phase->step < 0)
    return 0; /* of the time between steps, which is none of the next one's */
  uint32_t module = phase->kind == SL_KIND_optimizer_step ? 0 : phase->module;
  uint64_t key = (uint64_t)module << 8 | (uint64_t)phase->kind;
  struct peak_entry *entry;
  HASH_FIND(hh, b->peaks, &key, sizeof key, entry);
  if (!entry) {
    entry = calloc(1, sizeof *entry);
    if (!entry)
      return sl_error_set(b->error, -ENOMEM, "out of memory");
    entry->key = key;
    SL_HASH_ADD(b->peaks, key, entry);
    if (!entry)
      return sl_error_set(b->error, -ENOMEM, "out of memory");
  }
  if (sample->allocated_bytes > entry->sample.allocated_bytes || !entry->sample.at_ns)
    entry->sample = *sample;
  if (own->alone > entry->own.alone)
    entry->own.alone = own->alone;
  if (own->with_children > entry->own.with_children)
    entry->own.with_children = own->with_children;
  return 0;
}

static int peaks_write(struct sl_rank_builder *b) {
  int r = 0;
  struct peak_entry *entry, *next;
  HASH_ITER(hh, b->peaks, entry, next) {
    uint32_t module = (uint32_t)(entry->key >> 8);
    const char *phase = sl_kind_name((enum sl_kind)(entry->key & 0xff));
    sl_rank_pattern_peak(b, entry->key, &entry->sample, &entry->own);
    if (r == 0 && b->step.step >= 0 && b->device >= 0)
      r = sl_put_peak(b->writer,
                      &(struct sl_peak_cells){
                          .step = b->step.step,
                          .module_id = module,
                          .phase = phase,
                          .at_ns = (int64_t)entry->sample.at_ns,
                          .allocated_bytes = (int64_t)entry->sample.allocated_bytes,
                          .own_bytes = module ? (int64_t)entry->own.alone : SL_NONE,
                          .own_with_children_bytes = module ? (int64_t)entry->own.with_children : SL_NONE,
                      },
                      b->error);
    for (int c = 0; c < b->category_count && r == 0 && b->step.step >= 0; c++)
      if (entry->sample.category_bytes[c])
        r = sl_write_peak_category(b->writer,
                                   &(struct sl_peak_category_cells){
                                       .step = b->step.step,
                                       .module_id = module,
                                       .phase = phase,
                                       .category = sl_rank_category_name(b, c),
                                       .bytes = (int64_t)entry->sample.category_bytes[c],
                                   },
                                   b->error);
    HASH_DEL(b->peaks, entry);
    free(entry);
  }
  return r;
}

static int peak_owner_write(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  struct sl_rank_builder *b = context;
  sl_rank_pattern_owner(b, owner);
  const struct sl_peak_owner_cells cells = {
      .step = b->step.step,
      .category = sl_rank_category_name(b, owner->category),
      .detail = owner->detail,
      .module_id = owner->module,
      .phase = owner->phase,
      .bytes = (int64_t)owner->bytes,
      .allocations = (int64_t)owner->allocations,
  };
  return sl_put_peak_owner(b->writer, &cells, error);
}

/* Everything alive at the step's highest point. */
static int owners_write(struct sl_rank_builder *b) {
  return sl_memory_owners(b->allocations, b->allocation_count, (uint32_t)b->device, b->peak_at, peak_owner_write, b,
                          b->error);
}

struct refusal_context {
  struct sl_rank_builder *b;
  uint64_t at_ns;
};

static int oom_owner_write(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  const struct refusal_context *refusal = context;
  const struct sl_oom_owner_cells cells = {
      .at_ns = (int64_t)refusal->at_ns,
      .category = sl_rank_category_name(refusal->b, owner->category),
      .detail = owner->detail,
      .module_id = owner->module,
      .phase = owner->phase,
      .bytes = (int64_t)owner->bytes,
      .allocations = (int64_t)owner->allocations,
  };
  return sl_put_oom_owner(refusal->b->writer, &cells, error);
}

/*
 * Who held the memory is written of so many refusals only, since each looks at all that is alive: a program that
 * catches its errors and tries again may be refused any number of times.
 */
enum { REFUSALS_WITH_OWNERS = 64 }; /* the first ones of a step, of the time before it, and the last ones of both */

static int refusals_settle(struct sl_rank_builder *b, const struct sl_phase *step) {
  size_t count, before = 0;
  const struct sl_refusal *refusals = sl_refusals_list(b->refusals, &count);
  int r = 0;
  while (step && before < count && refusals[before].at < step->start_at)
    before++;
  for (size_t i = 0; i < count && r == 0; i++) {
    const size_t nth = i < before ? i : i - before;
    struct refusal_context context = {b, refusals[i].at_ns};
    r = sl_write_oom(b->writer, refusals[i].at_ns, refusals[i].device, refusals[i].source, &refusals[i].row, b->error);
    if (r == 0 && (nth < REFUSALS_WITH_OWNERS || count - i <= REFUSALS_WITH_OWNERS))
      r = sl_memory_owners(b->allocations, b->allocation_count, refusals[i].device, refusals[i].at, oom_owner_write,
                           &context, b->error);
  }
  sl_refusals_clear(b->refusals);
  for (int i = 0; count && i < MAX_DEVICES; i++)
    if (b->maps[i])
      sl_block_map_forget_free(b->maps[i]);
  return r;
}

/* Rows that are kept in any case speak of it. */
static void phase_need(struct sl_phase *phase) {
  for (; phase && !phase->needed; phase = phase->parent)
    phase->needed = true;
}

static int allocation_write(struct sl_rank_builder *b, const struct sl_allocation *a) {
  struct place *place = &b->places[a->place];
  if ((place->pool_owner || place->pool_id) && !place->pool &&
      asprintf(&place->pool, "%llu.%llu", (unsigned long long)place->pool_owner, (unsigned long long)place->pool_id) <
          0) {
    place->pool = NULL;
    return sl_error_set(b->error, -ENOMEM, "out of memory");
  }
  if (!sl_rank_hold_since(b, a->alloc_at))
    phase_need(a->free_phase);
  return sl_write_allocation(b->writer, a, place->stream, place->pool, sl_rank_category_name(b, a->category), b->error);
}

/* Writes and forgets what is freed for good; the rest goes on into the next step. all: the log has ended. */
int sl_rank_allocations_settle(struct sl_rank_builder *b, bool all) {
  size_t kept = 0;
  int r = 0;
  for (size_t i = 0; i < b->allocation_count; i++) {
    struct sl_allocation *a = b->allocations[i];
    if (r == 0 && (all || a->complete_ns)) {
      r = allocation_write(b, a);
      sl_sweep_forget(b->sweep, a);
      sl_tracker_forget(b->tracker, a);
      free(a);
    } else {
      a->phase = a->free_phase = NULL;
      b->allocations[kept++] = a;
    }
  }
  b->allocation_count = kept;
  for (size_t i = kept; i-- > 0 && b->allocations[i]->alloc_at > b->current.began_at;)
    b->allocations[i]->number = (uint32_t)(kept - i);
  sl_rank_release(b);
  return r;
}

static int phase_write(struct sl_rank_builder *b, const struct sl_phase *phase) {
  if (phase->needed)
    sl_rank_release(b);
  else
    sl_rank_hold_since(b, phase->start_at);
  return sl_write_phase(b->writer, phase, b->error);
}

int sl_rank_phases_settle(struct sl_rank_builder *b, bool all) {
  struct sl_phase **closed;
  size_t count;
  int r = 0;
  if (all) {
    for (const struct sl_phase *phase = sl_phases_list(b->phases); phase && r == 0; phase = phase->next)
      r = phase_write(b, phase);
  } else if (sl_phases_closed(b->phases, &closed, &count) < 0) {
    r = sl_error_set(b->error, -ENOMEM, "out of memory");
  } else {
    for (size_t i = 0; i < count && r == 0; i++)
      r = phase_write(b, closed[i]);
  }
  sl_rank_release(b);
  sl_phases_prune(b->phases);
  return r;
}

struct sl_step_facts sl_rank_step_facts(struct sl_rank_builder *b, int64_t step, bool cut_off) {
  return (struct sl_step_facts){
      .step = step,
      .optimizer_starts = b->optimizer_starts.at,
      .optimizer_start_count = b->optimizer_starts.count,
      .backward_starts = b->backward_starts.at,
      .backward_start_count = b->backward_starts.count,
      .gradients_tagged = b->gradients_tagged,
      .workspaces = sl_log_info(b->log, "cublas_workspaces") ? NULL : &b->workspaces,
      .cut_off = cut_off,
  };
}

/* Decides, sums and writes what happened since the last step's end. step NULL: the log ended outside of a step. */
int sl_rank_step_finish(struct sl_rank_builder *b, const struct sl_phase *step) {
  const struct sl_step_facts facts = sl_rank_step_facts(b, step ? step->step : -1, step && !step->end_at);
  enum sl_tracker_kind tracker = sl_module_states_saw_fsdp(b->states) ? SL_TRACKER_fsdp : SL_TRACKER_module;
  size_t decided = b->allocation_count; /* so many have been until now: the newest have not */
  while (decided && !b->allocations[decided - 1]->decided)
    decided--;
  for (size_t i = decided; i < b->allocation_count; i++)
    sl_attribute(b->allocations[i], &facts);
  int r = sl_tracker_run(b->tracker, tracker, b->items, b->item_count);
  for (size_t i = decided; i < b->allocation_count; i++)
    sl_attribute_by_user(b->allocations[i], b->phases);
  b->step.step = facts.step;
  b->step.recorded_step = step ? step->recorded_step : 0;
  b->step.end_ns = b->now_ns;
  b->step.end = sl_rank_totals_now(b);
  if (b->device >= 0 && b->maps[b->device])
    b->step.end_free = sl_block_map_free_blocks(b->maps[b->device]);
  if (r == 0 && !step)
    r = b->jumps ? sl_rank_periods_flush(b) : sl_rank_periods_last(b);
  if (r == 0)
    sl_rank_hold(b);
  if (r == 0)
    r = sl_sweep_run(b->sweep, b->items, b->item_count);
  if (r < 0 && !b->error->text[0])
    sl_error_set(b->error, r, "the step could not be summed up: %s", strerror(-r));
  if (r == 0)
    r = peaks_write(b);
  b->step.recorded = b->device >= 0;
  b->step.drivers_pool = b->drivers_pool;
  if (r == 0 && step && b->step.recorded)
    r = owners_write(b);
  sl_rank_release(b);
  if (r == 0 && step)
    r = sl_rank_period_decide(b);
  if (r == 0)
    r = sl_rank_balance_settle(b);
  if (r == 0)
    r = refusals_settle(b, step);
  for (size_t i = 0; i < b->allocation_count && step; i++)
    if (!b->allocations[i]->free_at)
      b->allocations[i]->last_step = step->step;
  if (step)
    sl_tracker_step_ended(b->tracker, b->allocations, b->allocation_count, &facts);
  if (r == 0)
    r = sl_rank_allocations_settle(b, false);
  if (r == 0)
    r = sl_rank_phases_settle(b, false);
  if (r == 0 && step)
    r = sl_rank_period_end(b);
  b->item_count = b->reshard_count = 0;
  b->optimizer_starts.count = b->backward_starts.count = 0;
  b->gradients_tagged = false;
  sl_module_states_step_ended(b->states);
  b->step.step = -1;
  sl_rank_step_watch(b);
  return r;
}
