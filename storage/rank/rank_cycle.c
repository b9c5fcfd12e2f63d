/*
 * A rank's life is cut without gaps into periods: setup, step, between, step, …, end. One is decided when the step in
 * it or after it ends, since only then it is known what outlived what, and what the companion's tags of that step say:
 * every allocation gets its category, the sweep turns the items into sums, and what is finished is written and
 * forgotten.
 *
 *   events ─►│ outside: setup or between │ current: step │ ─► both are closed, the one after the other
 *            └ its figures are taken where the step begins
 *
 * What is not in a step may go on for days. It is decided in pieces then, each with what is known at its end.
 */
#include "rank_builder.h"

#include "storage/tracker/tracker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  PIECE_ITEMS = 1 << 20, /* some 300 MiB with their allocations */
  PIECE_EVENTS = 1 << 16 /* where figures are all that is asked */
};

void sl_rank_watch(struct sl_rank_builder *b) {
  const struct sl_block_totals now = sl_rank_memory_now(&b->memory);
  sl_rank_period_watch(&b->life.current, &now, b->memory.used_bytes, b->clock.at, b->clock.now_ns);
}

int sl_rank_period_begin(struct sl_rank_builder *b, enum sl_period_kind kind, int64_t step, uint64_t after) {
  struct sl_rank_period *p = &b->life.current;
  const struct sl_rows rows = p->rows, device_rows = p->device_rows; /* empty */
  struct sl_rank_pattern *pattern = p->pattern;
  *p = (struct sl_rank_period){
      .rows = rows,
      .device_rows = device_rows,
      .pattern = pattern,
      .row = {.period = b->life.next_period++,
              .kind = kind,
              .step = step,
              .same_as = -1,
              .start_ns = b->clock.now_ns,
              .first_allocator_event = b->memory.device < 0 ? 1 : b->memory.devices[b->memory.device].events + 1},
      .began_at = after,
      .decided_at = after,
      .first_allocation = b->allocations.last_id + 1,
      .first_item = b->items.count,
      .kept = sl_rank_repeats_keeps_next(b->repeats),
  };
  sl_rank_watch(b);
  return sl_or_no_memory(sl_rank_items_watch(&b->items, b->clock.now_ns), b->error);
}

/* ---- their ends ---- */

/* Takes the figures of the period that ends here, after which nothing is added to it. */
static void period_end(struct sl_rank_builder *b, struct sl_rank_period *p, uint64_t at) {
  p->ended_at = at > p->began_at ? at : p->began_at; /* a step may begin at the event that ends the one before */
  p->end_item = b->items.count;
  p->last_collective = sl_collectives_last_id(b->collectives);
  p->row.end_ns = b->clock.now_ns;
  if (!p->row.period) { /* begins with the first event, which was not known then */
    p->row.start_ns = b->clock.start_ns;
    if (p->decided_at == p->began_at && p->first_item < b->items.count)
      b->items.list[p->first_item].at_ns = b->clock.start_ns;
  }
  if (p->row.end_ns < p->row.start_ns) /* of a log with definitions alone */
    p->row.end_ns = p->row.start_ns;
  const int device = b->memory.device;
  p->row.end = sl_rank_memory_now(&b->memory);
  if (device >= 0 && b->memory.devices[device].map)
    p->row.end_free = sl_block_map_free_blocks(b->memory.devices[device].map);
  p->row.recorded = device >= 0;
  p->row.drivers_pool = b->memory.drivers_pool;
}

/* ---- deciding ---- */

static struct sl_step_facts facts_of(struct sl_rank_builder *b, bool cut_off) {
  const struct sl_period_row *row = &b->life.current.row;
  return sl_rank_steps_facts(&b->steps, row->kind == SL_PERIOD_step ? row->step : -1, cut_off);
}

/* Everything that is not decided gets its category, with what is known now. */
static int decide(struct sl_rank_builder *b, const struct sl_step_facts *facts) {
  const enum sl_tracker_kind kind = sl_module_states_saw_fsdp(b->states) ? SL_TRACKER_fsdp : SL_TRACKER_module;
  const struct sl_rank_allocations *all = &b->allocations;
  const size_t decided = sl_rank_allocations_decided(all);
  for (size_t i = decided; i < all->count; i++)
    sl_attribute(all->list[i], facts);
  if (sl_tracker_run(b->tracker, kind, b->items.list, b->items.count) < 0)
    return sl_no_memory(b->error);
  for (size_t i = decided; i < all->count; i++)
    sl_attribute_by_user(all->list[i], b->phases);
  if (sl_sweep_retag(b->sweep, b->items.list, b->items.count) < 0)
    return sl_no_memory(b->error);
  int r = sl_rank_balance_settle(b);
  return r < 0 ? r : sl_rank_refusals_write(b);
}

static int period_sweep(struct sl_rank_builder *b, struct sl_rank_period *p) {
  b->closing = p;
  int r = sl_sweep_run(b->sweep, b->items.list + p->first_item, p->end_item - p->first_item);
  b->closing = NULL;
  if (r < 0 && !b->error->text[0])
    sl_error_set(b->error, r, "the period could not be summed up: %s", strerror(-r));
  return r;
}

/* Writes what is decided of a period, and begins none: the builder has no current one until somebody does. */
static int period_close(struct sl_rank_builder *b, struct sl_rank_period *p) {
  const bool whole = !b->figures_only;
  int r = whole ? period_sweep(b, p) : 0;
  if (r == 0 && whole)
    r = sl_rank_peaks_write(b, p);
  if (r == 0 && whole && p->row.recorded)
    r = sl_rank_owners_write(b, p);
  if (r == 0)
    r = sl_rank_repeats_decide(b->repeats, p, b->error);
  if (r == 0 && whole)
    r = sl_rank_allocations_write(b, p, p->ended_at);
  if (r == 0 && whole)
    r = sl_rank_phases_write(b, p, p->ended_at);
  return r < 0 ? r : sl_rank_repeats_end(b->repeats, p, b->error);
}

static int outside_close(struct sl_rank_builder *b) {
  if (!b->life.outside_waits)
    return 0;
  b->life.outside_waits = false;
  return period_close(b, &b->life.outside);
}

/* What is alive at the end of a step has lasted until then. */
static void step_outlived(struct sl_rank_builder *b, const struct sl_step_facts *facts) {
  sl_rank_allocations_outlive(&b->allocations, facts->step);
  sl_tracker_step_ended(b->tracker, b->allocations.list, b->allocations.count, facts);
}

/* Their phases go; what is alive is known by its number from here on. */
static void allocations_go_on(struct sl_rank_builder *b) {
  sl_rank_allocations_go_on(&b->allocations, b->life.cycle_began_at);
  sl_phases_prune(b->phases);
}

static int allocation_forget(void *context, struct sl_allocation *allocation) {
  (void)context;
  (void)allocation;
  return 0;
}

/* Where figures are all that is asked: nothing is decided, and what has ended is forgotten. */
static int figures_settle(struct sl_rank_builder *b) {
  int r = sl_rank_balance_settle(b);
  if (r == 0)
    r = sl_rank_refusals_write(b);
  return r < 0 ? r : sl_rank_allocations_settle(&b->allocations, b->clock.at, allocation_forget, NULL);
}

/* Closes what there is: the step that ends here, and what was before it. */
static int cycle_close(struct sl_rank_builder *b, const struct sl_step_facts *facts) {
  int r = b->figures_only ? figures_settle(b) : decide(b, facts);
  if (r == 0)
    r = outside_close(b);
  if (r == 0)
    r = period_close(b, &b->life.current);
  if (facts->step >= 0 && !b->figures_only)
    step_outlived(b, facts);
  allocations_go_on(b);
  sl_rank_items_clear(&b->items);
  sl_rank_steps_ended(&b->steps);
  sl_module_states_step_ended(b->states);
  b->life.last_cycle_began_at = b->life.cycle_began_at;
  b->life.cycle_began_at = b->clock.at;
  return r;
}

/* ---- steps ---- */

static int step_begins(struct sl_rank_builder *b, const struct sl_phase *step) {
  struct sl_rank_life *life = &b->life;
  const struct sl_rank_period spare = life->outside;
  period_end(b, &life->current, step->start_at - 1);
  life->outside = life->current;
  life->outside_waits = true;
  life->current = spare; /* its rows are empty, and its pattern is one that has been taken */
  int r = sl_rank_period_begin(b, SL_PERIOD_step, step->step, step->start_at - 1);
  life->current.row.recorded_step = step->recorded_step;
  life->has_steps = true;
  sl_module_states_step_begins(b->states);
  return r;
}

static int step_ends(struct sl_rank_builder *b, const struct sl_phase *step) {
  const int64_t number = step->step;
  const struct sl_step_facts facts = facts_of(b, !step->end_at);
  period_end(b, &b->life.current, b->clock.at);
  int r = cycle_close(b, &facts);
  int begun = sl_rank_period_begin(b, SL_PERIOD_between, number, b->clock.at);
  return r < 0 ? r : begun;
}

int sl_rank_phase_opened(void *context, struct sl_phase *phase) {
  struct sl_rank_builder *b = context;
  int r = phase->kind == SL_KIND_step ? step_begins(b, phase) : 0;
  if (r < 0)
    return r;
  if (b->figures_only)
    return 0;
  r = sl_rank_steps_opened(&b->steps, phase, b->clock.at);
  if (r == 0)
    r = sl_module_states_opened(b->states, phase);
  sl_rank_pattern_opened(b->life.current.pattern, phase);
  if (r == 0)
    r = sl_rank_items_opened(&b->items, phase, b->clock.now_ns);
  return sl_or_no_memory(r, b->error);
}

int sl_rank_phase_closed(void *context, struct sl_phase *phase) {
  struct sl_rank_builder *b = context;
  int r = b->figures_only ? 0 : sl_module_states_closed(b->states, phase);
  sl_rank_pattern_closed(b->life.current.pattern, phase);
  if (r == 0 && !b->figures_only)
    r = sl_rank_items_closed(&b->items, phase, b->clock.at, b->clock.now_ns);
  if (r < 0)
    return sl_no_memory(b->error);
  sl_rank_period_name(&b->life.current, phase, b->clock.at);
  return phase->kind == SL_KIND_step ? step_ends(b, phase) : 0;
}

/* ---- other ends ---- */

int sl_rank_period_cut(struct sl_rank_builder *b) {
  struct sl_rank_period *p = &b->life.current;
  const int64_t step = p->row.step;
  struct sl_step_facts facts = facts_of(b, false);
  facts.step = -1;
  p->row.kind = SL_PERIOD_cut;
  p->kept = true;
  period_end(b, p, b->clock.at);
  int r = sl_rank_repeats_flush(b->repeats, p, b->error);
  if (r == 0)
    r = cycle_close(b, &facts);
  int begun = sl_rank_period_begin(b, step >= 0 ? SL_PERIOD_between : SL_PERIOD_setup, step, b->clock.at);
  return r < 0 ? r : begun;
}

int sl_rank_life_end(struct sl_rank_builder *b) {
  struct sl_rank_period *p = &b->life.current;
  const bool in_step = p->row.kind == SL_PERIOD_step; /* that was cut off: its peak is what an OOM is about */
  const struct sl_step_facts facts = facts_of(b, in_step);
  if (!in_step) {
    p->row.kind = b->life.has_steps ? SL_PERIOD_end : SL_PERIOD_whole;
    sl_rank_period_names_end(p, b->phases, b->clock.now_ns);
  }
  p->kept = p->kept || !in_step;
  period_end(b, p, b->clock.at);
  int r = in_step ? 0 : sl_rank_repeats_last(b->repeats, p, b->error); /* the last step is kept whatever it did */
  if (r == 0)
    r = cycle_close(b, &facts);
  if (r == 0)
    r = sl_rank_repeats_last(b->repeats, p, b->error); /* everything that is left is kept */
  if (r == 0)
    r = sl_rank_allocations_write(b, p, UINT64_MAX);
  return r < 0 ? r : sl_rank_phases_write(b, p, UINT64_MAX);
}

/* ---- periods that go on and on ---- */

static int figures_piece(struct sl_rank_builder *b) {
  const int r = figures_settle(b);
  allocations_go_on(b);
  b->life.current.decided_at = b->clock.at;
  return r;
}

static int items_piece(struct sl_rank_builder *b) {
  struct sl_rank_period *p = &b->life.current;
  const struct sl_step_facts facts = facts_of(b, true);
  p->kept = true;
  p->end_item = b->items.count;
  int r = decide(b, &facts);
  if (r == 0)
    r = sl_rank_repeats_flush(b->repeats, p, b->error);
  if (r == 0)
    r = period_sweep(b, p);
  if (r == 0 && p->peak_at > p->decided_at)
    r = sl_rank_owners_note(b, p);
  sl_rank_pattern_decisions(p, &b->allocations);
  if (r == 0)
    r = sl_rank_allocations_write(b, p, b->clock.at);
  if (r == 0)
    r = sl_rank_phases_write(b, p, b->clock.at);
  allocations_go_on(b);
  p->first_item = 0;
  p->decided_at = b->clock.at;
  if (r == 0)
    r = sl_or_no_memory(sl_rank_items_restart(&b->items, b->phases, b->clock.now_ns), b->error);
  return r;
}

int sl_rank_period_piece(struct sl_rank_builder *b) {
  const struct sl_rank_period *p = &b->life.current;
  if (p->row.kind == SL_PERIOD_step)
    return 0;
  if (b->figures_only)
    return b->clock.at - p->decided_at < PIECE_EVENTS ? 0 : figures_piece(b);
  return b->items.count - p->first_item < PIECE_ITEMS ? 0 : items_piece(b);
}
