/*
 * What is written of a period when it is closed: its snapshots and peaks, who held the highest one, requests that were
 * refused, and the allocations and phases that ended in it.
 */
#include "rank_builder.h"
#include "storage/tables/ledger_tables.h"
#include "storage/tracker/tracker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sl_rank_sweep_snapshot(void *context, const struct sl_item *item, const struct sl_sample *sample) {
  struct sl_rank_builder *b = context;
  struct sl_rank_period *p = b->closing;
  const struct sl_period_row *row = &p->row;
  const uint64_t *tracker_bytes = sl_tracker_next(b->tracker);
  int r = 0;
  for (int c = 0; c < b->categories.count && r == 0 && row->kind == SL_PERIOD_step; c++)
    if (sample->category_bytes[c] || tracker_bytes[c]) {
      sl_rank_pattern_snapshot(p->pattern, item, c, sample->category_bytes[c], tracker_bytes[c]);
      const struct sl_snapshot_cells cells = {
          .step = row->step,
          .module_id = item->module,
          .call_index = item->call_index,
          .state = sl_state_name(item->state),
          .at_ns = (int64_t)sample->at_ns,
          .category = sl_category_name(&b->categories, c),
          .bytes = (int64_t)sample->category_bytes[c],
          .tracker_bytes = (int64_t)tracker_bytes[c],
      };
      r = sl_put_snapshot_to(b->writer, sl_rank_rows_of(b->repeats, p), &cells, b->error);
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
  if (phase != &b->items.whole && b->closing->row.kind != SL_PERIOD_cut && (phase->step >= 0) != in_step)
    return 0; /* it reaches into this period, and is another one's */
  uint32_t module = phase->kind == SL_KIND_optimizer_step ? 0 : phase->module;
  uint64_t key = (uint64_t)module << 8 | (uint64_t)phase->kind;
  struct sl_peak_entry *entry;
  SL_HASH_FIND_OR_ADD(b->peaks, key, key, entry);
  if (!entry)
    return sl_no_memory(b->error);
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

static int peak_write(struct sl_rank_builder *b, struct sl_rank_period *p, const struct sl_peak_entry *entry) {
  const struct sl_period_row *row = &p->row;
  struct sl_rows *to = sl_rank_rows_of(b->repeats, p);
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
  int r = sl_put_peak_to(b->writer, to, &cells, b->error);
  for (int c = 0; c < b->categories.count && r == 0; c++)
    if (entry->sample.category_bytes[c])
      r = sl_write_peak_category(b->writer, to,
                                 &(struct sl_peak_category_cells){
                                     .period = cells.period,
                                     .step = cells.step,
                                     .module_id = module,
                                     .phase = phase,
                                     .category = sl_category_name(&b->categories, c),
                                     .bytes = (int64_t)entry->sample.category_bytes[c],
                                 },
                                 !entry->key, b->error);
  return r;
}

int sl_rank_peaks_write(struct sl_rank_builder *b, struct sl_rank_period *p) {
  int r = 0;
  struct sl_peak_entry *entry, *next;
  HASH_ITER(hh, b->peaks, entry, next) {
    sl_rank_pattern_peak(p->pattern, entry->key, &entry->sample, &entry->own);
    if (r == 0 && b->memory.device >= 0)
      r = peak_write(b, p, entry);
    HASH_DEL(b->peaks, entry);
    free(entry);
  }
  return r;
}

struct owner_context {
  struct sl_rank_builder *b;
  struct sl_rank_period *p;
};

static int site_write(const struct owner_context *of, const struct sl_memory_owner *owner) {
  const struct sl_period_row *row = &of->p->row;
  const struct sl_peak_site_cells cells = {
      .period = (int64_t)row->period,
      .step = step_or_none(row),
      .site_id = owner->site,
      .category = sl_category_name(&of->b->categories, owner->category),
      .module_id = owner->module,
      .bytes = (int64_t)owner->bytes,
      .allocations = (int64_t)owner->allocations,
  };
  return sl_put_peak_site_to(of->b->writer, sl_rank_rows_of(of->b->repeats, of->p), &cells, of->b->error);
}

static int owner_write(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  const struct owner_context *of = context;
  struct sl_rank_builder *b = of->b;
  const struct sl_period_row *row = &of->p->row;
  if (owner->by == SL_OWNERS_BY_site)
    return site_write(of, owner);
  sl_rank_pattern_owner(of->p->pattern, owner);
  const struct sl_peak_owner_cells cells = {
      .period = (int64_t)row->period,
      .step = step_or_none(row),
      .category = sl_category_name(&b->categories, owner->category),
      .detail = owner->detail,
      .module_id = owner->module,
      .phase = owner->phase,
      .bytes = (int64_t)owner->bytes,
      .allocations = (int64_t)owner->allocations,
  };
  return sl_put_peak_owner_to(b->writer, sl_rank_rows_of(b->repeats, of->p), &cells, error);
}

/* Those that are alive at a position, by phase, and by site where the log has sites. */
static int owners_ask(struct sl_rank_builder *b, uint32_t device, uint64_t at, sl_owner_listener *listener,
                      void *context) {
  int r = 0;
  for (int by = SL_OWNERS_BY_phase; by <= (b->sites.any ? SL_OWNERS_BY_site : SL_OWNERS_BY_phase) && r == 0; by++)
    r = sl_memory_owners(b->allocations.list, b->allocations.count, device, at, (enum sl_owners_by)by, listener,
                         context, b->error);
  return r;
}

/* Everything alive at the period's highest point. */
int sl_rank_owners_write(struct sl_rank_builder *b, struct sl_rank_period *p) {
  struct owner_context context = {b, p};
  const bool is_noted = p->peak_at <= p->decided_at && p->owners;
  int r = 0;
  for (size_t i = 0; i < p->owner_count && is_noted && r == 0; i++)
    r = owner_write(&context, &p->owners[i], b->error);
  sl_rank_period_owners_clear(p);
  return is_noted || r < 0 ? r : owners_ask(b, (uint32_t)b->memory.device, p->peak_at, owner_write, &context);
}

static int owner_note(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  return sl_or_no_memory(sl_rank_period_owner_add(context, owner), error);
}

int sl_rank_owners_note(struct sl_rank_builder *b, struct sl_rank_period *p) {
  sl_rank_period_owners_clear(p);
  return owners_ask(b, (uint32_t)b->memory.device, p->peak_at, owner_note, p);
}

struct refusal_context {
  struct sl_rank_builder *b;
  uint64_t at_ns;
};

static int oom_site_write(const struct refusal_context *refusal, const struct sl_memory_owner *owner) {
  const struct sl_oom_site_cells cells = {
      .at_ns = (int64_t)refusal->at_ns,
      .site_id = owner->site,
      .category = sl_category_name(&refusal->b->categories, owner->category),
      .module_id = owner->module,
      .bytes = (int64_t)owner->bytes,
      .allocations = (int64_t)owner->allocations,
  };
  return sl_put_oom_site(refusal->b->writer, &cells, refusal->b->error);
}

static int oom_owner_write(void *context, const struct sl_memory_owner *owner, struct sl_error *error) {
  const struct refusal_context *refusal = context;
  if (owner->by == SL_OWNERS_BY_site)
    return oom_site_write(refusal, owner);
  const struct sl_oom_owner_cells cells = {
      .at_ns = (int64_t)refusal->at_ns,
      .category = sl_category_name(&refusal->b->categories, owner->category),
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

int sl_rank_refusals_write(struct sl_rank_builder *b) {
  size_t count, before = 0;
  const struct sl_refusal *refusals = sl_refusals_list(b->refusals, &count);
  int r = 0;
  while (b->life.outside_waits && before < count && refusals[before].at <= b->life.outside.ended_at)
    before++;
  for (size_t i = 0; i < count && r == 0; i++) {
    const size_t nth = i < before ? i : i - before;
    struct refusal_context context = {b, refusals[i].at_ns};
    r = sl_write_oom(b->writer, refusals[i].at_ns, refusals[i].device, refusals[i].source, &refusals[i].row, b->error);
    if (r == 0 && (nth < REFUSALS_WITH_OWNERS || count - i <= REFUSALS_WITH_OWNERS))
      r = owners_ask(b, refusals[i].device, refusals[i].at, oom_owner_write, &context);
  }
  sl_refusals_clear(b->refusals);
  for (int i = 0; count && i < SL_DEVICES_MAX; i++)
    if (b->memory.devices[i].map)
      sl_block_map_forget_free(b->memory.devices[i].map);
  return r;
}

/* Rows that are kept in any case speak of it. */
static void phase_need(struct sl_phase *phase) {
  for (; phase && !phase->needed; phase = phase->parent)
    phase->needed = true;
}

static int allocation_write(void *context, struct sl_allocation *a) {
  const struct owner_context *of = context;
  struct sl_rank_builder *b = of->b;
  struct sl_rows *to;
  const char *pool;
  if (sl_rank_memory_pool(&b->memory, a->place, &pool) < 0)
    return sl_no_memory(b->error);
  if (!sl_rank_rows_since(b->repeats, of->p, a->alloc_at, &to))
    phase_need(a->free_phase);
  sl_rank_uses_settle(b, a);
  int r = sl_write_allocation(b->writer, to, a, sl_rank_memory_place(&b->memory, a->place)->stream, pool,
                              sl_category_name(&b->categories, a->category), b->error);
  sl_sweep_forget(b->sweep, a);
  sl_tracker_forget(b->tracker, a);
  return r;
}

/* Writes what is freed for good; the rest goes on. UINT64_MAX: the log has ended, and everything with it. */
int sl_rank_allocations_write(struct sl_rank_builder *b, struct sl_rank_period *p, uint64_t until) {
  struct owner_context context = {b, p};
  return sl_rank_allocations_settle(&b->allocations, until, allocation_write, &context);
}

static int phase_write(struct sl_rank_builder *b, struct sl_rank_period *p, const struct sl_phase *phase) {
  struct sl_rows *to = sl_ledger_writer_rows(b->writer);
  if (!phase->needed)
    sl_rank_rows_since(b->repeats, p, phase->start_at, &to);
  return sl_write_phase(b->writer, to, phase, b->error);
}

int sl_rank_phases_write(struct sl_rank_builder *b, struct sl_rank_period *p, uint64_t until) {
  struct sl_phase **closed;
  size_t count;
  int r = 0;
  if (until == UINT64_MAX) {
    for (const struct sl_phase *phase = sl_phases_list(b->phases); phase && r == 0; phase = phase->next)
      r = phase_write(b, p, phase);
  } else if (sl_phases_closed(b->phases, &closed, &count) < 0) {
    r = sl_no_memory(b->error);
  } else {
    for (size_t i = 0; i < count && r == 0; i++)
      if (closed[i]->end_at > b->settled_at && closed[i]->end_at <= until)
        r = phase_write(b, p, closed[i]);
    b->settled_at = until > b->settled_at ? until : b->settled_at;
  }
  return r;
}
