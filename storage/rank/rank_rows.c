/*
 * What is written of a period when it is closed: its snapshots and peaks, who held the highest one, requests that were
 * refused, and the allocations and phases that ended in it.
 */
#include "rank_builder.h"
#include "storage/grow.h"
#include "storage/tables/ledger_tables.h"
#include "storage/tracker/tracker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sl_rank_category_name(const struct sl_rank_builder *b, int category) {
  return category < SL_CATEGORY_built_in ? sl_categories[category].name : b->user_categories[category];
}

int sl_rank_sweep_snapshot(void *context, const struct sl_item *item, const struct sl_sample *sample) {
  struct sl_rank_builder *b = context;
  const struct sl_period_row *row = &b->closing->row;
  const uint64_t *tracker_bytes = sl_tracker_next(b->tracker);
  int r = 0;
  for (int c = 0; c < b->category_count && r == 0 && row->kind == SL_PERIOD_step; c++)
    if (sample->category_bytes[c] || tracker_bytes[c]) {
      sl_rank_pattern_snapshot(b, item, c, sample->category_bytes[c], tracker_bytes[c]);
      const struct sl_snapshot_cells cells = {
          .step = row->step,
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
  const bool in_step = b->closing->row.kind == SL_PERIOD_step;
  if (phase != &b->whole && b->closing->row.kind != SL_PERIOD_cut && (phase->step >= 0) != in_step)
    return 0; /* it reaches into this period, and is another one's */
  uint32_t module = phase->kind == SL_KIND_optimizer_step ? 0 : phase->module;
  uint64_t key = (uint64_t)module << 8 | (uint64_t)phase->kind;
  struct peak_entry *entry;
  HASH_FIND(hh, b->peaks, &key, sizeof key, entry);
  if (!entry) {
    entry = calloc(1, sizeof *entry);
    if (!entry)
      return sl_no_memory(b->error);
    entry->key = key;
    SL_HASH_ADD(b->peaks, key, entry);
    if (!entry)
      return sl_no_memory(b->error);
  }
  if (sample->allocated_bytes > entry->sample.allocated_bytes || !entry->sample.at_ns)
    entry->sample = *sample;
  if (own->alone > entry->own.alone)
    entry->own.alone = own->alone;
  if (own->with_children > entry->own.with_children)
    entry->own.with_children = own->with_children;
  return 0;
}

/* NULL outside of steps. */
static int64_t step_or_none(const struct sl_period_row *row) {
  return row->kind == SL_PERIOD_step ? row->step : SL_NONE;
}

static int peak_write(struct sl_rank_builder *b, const struct peak_entry *entry) {
  const struct sl_period_row *row = &b->closing->row;
  const uint32_t module = (uint32_t)(entry->key >> 8);
  const char *phase = entry->key ? sl_kind_name((enum sl_kind)(entry->key & 0xff)) : sl_period_word(row->kind);
  const struct sl_peak_cells cells = {
      .period = (int64_t)row->period,
      .step = step_or_none(row),
      .module_id = module,
      .phase = phase,
      .at_ns = (int64_t)entry->sample.at_ns,
      .allocated_bytes = (int64_t)entry->sample.allocated_bytes,
      .own_bytes = module ? (int64_t)entry->own.alone : SL_NONE,
      .own_with_children_bytes = module ? (int64_t)entry->own.with_children : SL_NONE,
  };
  int r = sl_put_peak(b->writer, &cells, b->error);
  for (int c = 0; c < b->category_count && r == 0; c++)
    if (entry->sample.category_bytes[c])
      r = sl_write_peak_category(b->writer,
                                 &(struct sl_peak_category_cells){
                                     .period = cells.period,
                                     .step = cells.step,
                                     .module_id = module,
                                     .phase = phase,
                                     .category = sl_rank_category_name(b, c),
                                     .bytes = (int64_t)entry->sample.category_bytes[c],
                                 },
                                 !entry->key, b->error);
  return r;
}

int sl_rank_peaks_write(struct sl_rank_builder *b) {
  int r = 0;
  struct peak_entry *entry, *next;
  HASH_ITER(hh, b->peaks, entry, next) {
    sl_rank_pattern_peak(b, entry->key, &entry->sample, &entry->own);
    if (r == 0 && b->device >= 0)
      r = peak_write(b, entry);
    HASH_DEL(b->peaks, entry);
    free(entry);
  }
  return r;
}

static int owner_write(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  struct sl_rank_builder *b = context;
  const struct sl_period_row *row = &b->closing->row;
  sl_rank_pattern_owner(b, owner);
  const struct sl_peak_owner_cells cells = {
      .period = (int64_t)row->period,
      .step = step_or_none(row),
      .category = sl_rank_category_name(b, owner->category),
      .detail = owner->detail,
      .module_id = owner->module,
      .phase = owner->phase,
      .bytes = (int64_t)owner->bytes,
      .allocations = (int64_t)owner->allocations,
  };
  return sl_put_peak_owner(b->writer, &cells, error);
}

static void owners_forget(struct sl_rank_period *p) {
  free(p->owners);
  p->owners = NULL;
  p->owner_count = 0;
}

/* Everything alive at the period's highest point. */
int sl_rank_owners_write(struct sl_rank_builder *b) {
  struct sl_rank_period *p = b->closing;
  const bool is_noted = p->peak_at <= p->decided_at && p->owners;
  int r = 0;
  for (size_t i = 0; i < p->owner_count && is_noted && r == 0; i++)
    r = owner_write(b, &p->owners[i], b->error);
  owners_forget(p);
  return is_noted || r < 0 ? r
                           : sl_memory_owners(b->allocations, b->allocation_count, (uint32_t)b->device, p->peak_at,
                                              owner_write, b, b->error);
}

static int owner_note(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  struct sl_rank_period *p = context;
  struct sl_memory_owner *grown = sl_list_grow(p->owners, p->owner_count, sizeof *grown);
  if (!grown)
    return sl_no_memory(error);
  p->owners = grown;
  p->owners[p->owner_count++] = *owner;
  return 0;
}

int sl_rank_owners_note(struct sl_rank_builder *b) {
  owners_forget(b->closing);
  return sl_memory_owners(b->allocations, b->allocation_count, (uint32_t)b->device, b->closing->peak_at, owner_note,
                          b->closing, b->error);
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

int sl_rank_refusals_settle(struct sl_rank_builder *b) {
  size_t count, before = 0;
  const struct sl_refusal *refusals = sl_refusals_list(b->refusals, &count);
  int r = 0;
  while (b->outside_waits && before < count && refusals[before].at <= b->outside.ended_at)
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

int sl_rank_pool_name(struct sl_rank_builder *b, uint32_t number, const char **out) {
  struct place *place = &b->places[number];
  if ((place->pool_owner || place->pool_id) && !place->pool &&
      asprintf(&place->pool, "%llu.%llu", (unsigned long long)place->pool_owner, (unsigned long long)place->pool_id) <
          0) {
    place->pool = NULL;
    return sl_no_memory(b->error);
  }
  if (place->pool && number >= b->named_places)
    b->named_places = number + 1;
  *out = place->pool;
  return 0;
}

static int allocation_write(struct sl_rank_builder *b, const struct sl_allocation *a) {
  const char *pool;
  int r = sl_rank_pool_name(b, a->place, &pool);
  if (r < 0)
    return r;
  if (!sl_rank_hold_since(b, a->alloc_at))
    phase_need(a->free_phase);
  return sl_write_allocation(b->writer, a, b->places[a->place].stream, pool, sl_rank_category_name(b, a->category),
                             b->error);
}

/* Writes what is freed for good and leaves it behind allocation_count; the rest goes on. UINT64_MAX: the log has ended,
 * and everything with it.
 */
int sl_rank_allocations_settle(struct sl_rank_builder *b, uint64_t until) {
  size_t kept = 0;
  int r = 0;
  for (size_t i = 0; i < b->allocation_count; i++) {
    struct sl_allocation *a = b->allocations[i];
    if (r == 0 && (until == UINT64_MAX || (a->complete_at && a->complete_at <= until))) {
      r = allocation_write(b, a);
      sl_sweep_forget(b->sweep, a);
      sl_tracker_forget(b->tracker, a);
    } else {
      b->allocations[i] = b->allocations[kept];
      b->allocations[kept++] = a;
    }
  }
  b->allocation_count = kept;
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

int sl_rank_phases_settle(struct sl_rank_builder *b, uint64_t until) {
  struct sl_phase **closed;
  size_t count;
  int r = 0;
  if (until == UINT64_MAX) {
    for (const struct sl_phase *phase = sl_phases_list(b->phases); phase && r == 0; phase = phase->next)
      r = phase_write(b, phase);
  } else if (sl_phases_closed(b->phases, &closed, &count) < 0) {
    r = sl_no_memory(b->error);
  } else {
    for (size_t i = 0; i < count && r == 0; i++)
      if (closed[i]->end_at > b->settled_at && closed[i]->end_at <= until)
        r = phase_write(b, closed[i]);
    b->settled_at = until > b->settled_at ? until : b->settled_at;
  }
  sl_rank_release(b);
  return r;
}
