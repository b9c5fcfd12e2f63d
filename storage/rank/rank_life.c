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

enum { PIECE_ITEMS = 1 << 20 }; /* some 300 MiB with their allocations */

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

/* Peaks count from here on: what is alive now is the lowest bound. */
void sl_rank_period_watch(struct sl_rank_builder *b) {
  struct sl_period_row *row = &b->current.row;
  row->peak = sl_rank_totals_now(b);
  row->peak_ns = b->now_ns;
  row->peak_phase = 0;
  row->peak_module = 0;
  row->peak_device_bytes = b->device_used_bytes; /* what the period begins with */
  row->checked = -1;
  b->current.peak_at = b->at;
}

void sl_rank_period_begin(struct sl_rank_builder *b, enum sl_period_kind kind, int64_t step, uint64_t after) {
  struct sl_rank_period *p = &b->current;
  const struct sl_rows rows = p->rows, device_rows = p->device_rows; /* empty */
  struct sl_rank_pattern *pattern = p->pattern;
  *p = (struct sl_rank_period){
      .rows = rows,
      .device_rows = device_rows,
      .pattern = pattern,
      .row = {.period = b->next_period++,
              .kind = kind,
              .step = step,
              .same_as = -1,
              .start_ns = b->now_ns,
              .first_allocator_event = b->device < 0 ? 1 : b->allocator_events[b->device] + 1},
      .began_at = after,
      .decided_at = after,
      .first_allocation = b->next_allocation + 1,
      .first_item = b->item_count,
      .kept = sl_rank_keeps_next(b->repeats),
  };
  sl_rank_watch(b, &b->whole);
  sl_rank_period_watch(b);
}

/* ---- what runs in a period outside of steps ---- */

/* Ranges that libraries open by themselves say nothing of what the program does. */
static bool is_of_library(const char *name) {
  static const char *const prefixes[] = {"gloo:", "nccl:", "enumerate(DataLoader)", "Optimizer.",
                                         "DistributedDataParallel."};
  for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
      return true;
  return false;
}

static const char *name_of(const struct sl_phase *phase) {
  switch (phase->kind) {
  case SL_KIND_eval: return "evaluation";
  case SL_KIND_load:
  case SL_KIND_save:
  case SL_KIND_generate: return phase->name;
  case SL_KIND_user: return is_of_library(phase->name) ? NULL : phase->name;
  default: return NULL;
  }
}

static bool is_named_in(const struct sl_rank_period *p, const struct sl_phase *phase) {
  return phase->start_at > p->began_at && name_of(phase);
}

static bool lies_within(const struct sl_phase *inner, const struct sl_phase *phase) {
  while (inner && inner != phase)
    inner = inner->parent;
  return inner;
}

/*
 * The outermost phases of the period that have a name count with their time. One inside of another counts as long as
 * that one goes on, since it may outlast the period.
 */
static void name_count(struct sl_rank_period *p, const struct sl_phase *phase, uint64_t end_ns, uint64_t at) {
  const struct sl_phase *within = NULL;
  bool is_part = false;
  for (const struct sl_phase *around = phase->parent; around; around = around->parent)
    if (is_named_in(p, around)) {
      within = within ? within : around;
      is_part |= around->end_at != 0;
    }
  size_t kept = 0;
  for (size_t i = 0; i < p->name_count; i++)
    if (!lies_within(p->names[i].within, phase))
      p->names[kept++] = p->names[i];
  p->name_count = kept;
  if (is_part)
    return;
  size_t i = 0;
  while (i < p->name_count && (p->names[i].within != within || strcmp(p->names[i].name, name_of(phase)) != 0))
    i++;
  if (i == SL_PERIOD_NAMES)
    return;
  if (i == p->name_count)
    p->names[p->name_count++] = (struct sl_period_name){.name = name_of(phase), .within = within};
  p->names[i].ns += end_ns > phase->start_ns ? end_ns - phase->start_ns : 0;
  p->names[i].at = at;
}

/* That with the longest time in sum, of equal ones the later one. */
static void name_choose(struct sl_rank_period *p) {
  uint64_t longest = 0, latest = 0;
  p->row.name = NULL;
  for (size_t i = 0; i < p->name_count; i++) {
    uint64_t ns = 0, at = 0;
    for (size_t j = 0; j < p->name_count; j++)
      if (strcmp(p->names[j].name, p->names[i].name) == 0) {
        ns += p->names[j].ns;
        at = p->names[j].at > at ? p->names[j].at : at;
      }
    if (!p->row.name || ns > longest || (ns == longest && at > latest)) {
      longest = ns;
      latest = at;
      p->row.name = p->names[i].name;
    }
  }
}

void sl_rank_period_names(struct sl_rank_builder *b, const struct sl_phase *phase) {
  if (b->current.row.kind == SL_PERIOD_step || !is_named_in(&b->current, phase))
    return;
  name_count(&b->current, phase, phase->end_ns, b->at);
  name_choose(&b->current);
}

/* The log has ended: so has what went on. */
static void open_names_count(struct sl_rank_builder *b) {
  for (const struct sl_phase *phase = sl_phases_list(b->phases); phase; phase = phase->next) {
    const struct sl_phase *around = phase->parent;
    while (around && !is_named_in(&b->current, around))
      around = around->parent;
    if (!phase->end_at && !around && is_named_in(&b->current, phase))
      name_count(&b->current, phase, b->now_ns, UINT64_MAX);
  }
  name_choose(&b->current);
}

/* ---- their ends ---- */

/* Takes the figures of the period that ends here, after which nothing is added to it. */
static void period_end(struct sl_rank_builder *b, struct sl_rank_period *p, uint64_t at) {
  p->ended_at = at > p->began_at ? at : p->began_at; /* a step may begin at the event that ends the one before */
  p->end_item = b->item_count;
  p->last_collective = sl_collectives_last_id(b->collectives);
  p->row.end_ns = b->now_ns;
  if (!p->row.period) { /* begins with the first event, which was not known then */
    p->row.start_ns = b->start_ns;
    if (p->decided_at == p->began_at && p->first_item < b->item_count)
      b->items[p->first_item].at_ns = b->start_ns;
  }
  if (p->row.end_ns < p->row.start_ns) /* of a log with definitions alone */
    p->row.end_ns = p->row.start_ns;
  p->row.end = sl_rank_totals_now(b);
  if (b->device >= 0 && b->maps[b->device])
    p->row.end_free = sl_block_map_free_blocks(b->maps[b->device]);
  p->row.recorded = b->device >= 0;
  p->row.drivers_pool = b->drivers_pool;
}

/* ---- deciding ---- */

struct sl_step_facts sl_rank_step_facts(struct sl_rank_builder *b, bool cut_off) {
  return (struct sl_step_facts){
      .step = b->current.row.kind == SL_PERIOD_step ? b->current.row.step : -1,
      .optimizer_starts = b->optimizer_starts.at,
      .optimizer_start_count = b->optimizer_starts.count,
      .backward_starts = b->backward_starts.at,
      .backward_start_count = b->backward_starts.count,
      .modules_known = b->companion,
      .gradients_tagged = b->gradients_tagged,
      .workspaces = sl_log_info(b->log, "cublas_workspaces") ? NULL : &b->workspaces,
      .cut_off = cut_off,
  };
}

/* Everything that is not decided gets its category, with what is known now. */
static int decide(struct sl_rank_builder *b, const struct sl_step_facts *facts) {
  const enum sl_tracker_kind kind = sl_module_states_saw_fsdp(b->states) ? SL_TRACKER_fsdp : SL_TRACKER_module;
  size_t decided = b->allocation_count; /* so many have been until now: the newest have not */
  while (decided && !b->allocations[decided - 1]->decided)
    decided--;
  for (size_t i = decided; i < b->allocation_count; i++)
    sl_attribute(b->allocations[i], facts);
  if (sl_tracker_run(b->tracker, kind, b->items, b->item_count) < 0)
    return sl_no_memory(b->error);
  for (size_t i = decided; i < b->allocation_count; i++)
    sl_attribute_by_user(b->allocations[i], b->phases);
  int r = sl_sweep_retag(b->sweep, b->items, b->item_count);
  if (r < 0)
    return sl_no_memory(b->error);
  r = sl_rank_balance_settle(b);
  return r < 0 ? r : sl_rank_refusals_settle(b);
}

static int period_sweep(struct sl_rank_builder *b, struct sl_rank_period *p) {
  b->closing = p;
  int r = sl_sweep_run(b->sweep, b->items + p->first_item, p->end_item - p->first_item);
  if (r < 0 && !b->error->text[0])
    sl_error_set(b->error, r, "the period could not be summed up: %s", strerror(-r));
  return r;
}

/* Writes what is decided of a period, and begins none: the builder has no current one until somebody does. */
static int period_close(struct sl_rank_builder *b, struct sl_rank_period *p) {
  b->closing = p;
  sl_rank_hold(b);
  int r = period_sweep(b, p);
  if (r == 0)
    r = sl_rank_peaks_write(b);
  if (r == 0 && p->row.recorded)
    r = sl_rank_owners_write(b);
  sl_rank_release(b);
  if (r == 0)
    r = sl_rank_repeat_decide(b, p);
  if (r == 0)
    r = sl_rank_allocations_settle(b, p->ended_at);
  if (r == 0)
    r = sl_rank_phases_settle(b, p->ended_at);
  if (r == 0)
    r = sl_rank_repeat_end(b, p);
  b->closing = NULL;
  return r;
}

static int outside_close(struct sl_rank_builder *b) {
  if (!b->outside_waits)
    return 0;
  b->outside_waits = false;
  return period_close(b, &b->outside);
}

/* What is alive at the end of a step has lasted until then. */
static void step_outlived(struct sl_rank_builder *b, const struct sl_step_facts *facts) {
  for (size_t i = 0; i < b->allocation_count; i++)
    if (!b->allocations[i]->free_at)
      b->allocations[i]->last_step = facts->step;
  sl_tracker_step_ended(b->tracker, b->allocations, b->allocation_count, facts);
}

/* Their phases go; what is alive is known by its number from here on. */
static void allocations_go_on(struct sl_rank_builder *b) {
  const size_t count = b->allocation_count;
  for (size_t i = 0; i < count; i++)
    b->allocations[i]->phase = b->allocations[i]->free_phase = NULL;
  for (size_t i = count; i-- > 0 && b->allocations[i]->alloc_at > b->cycle_began_at;)
    b->allocations[i]->number = (uint32_t)(count - i);
  sl_phases_prune(b->phases);
}

/* Closes what there is: the step that ends here, and what was before it. */
static int cycle_close(struct sl_rank_builder *b, const struct sl_step_facts *facts) {
  int r = decide(b, facts);
  if (r == 0)
    r = outside_close(b);
  if (r == 0)
    r = period_close(b, &b->current);
  if (facts->step >= 0)
    step_outlived(b, facts);
  allocations_go_on(b);
  b->item_count = b->reshard_count = 0;
  b->optimizer_starts.count = b->backward_starts.count = 0;
  b->gradients_tagged = false;
  sl_module_states_step_ended(b->states);
  b->last_cycle_began_at = b->cycle_began_at;
  b->cycle_began_at = b->at;
  return r;
}

int sl_rank_step_begins(struct sl_rank_builder *b, const struct sl_phase *step) {
  struct sl_rank_period *outside = &b->outside;
  const struct sl_rank_period spare = *outside;
  period_end(b, &b->current, step->start_at - 1);
  *outside = b->current;
  b->outside_waits = true;
  b->current = spare; /* its rows are empty, and its pattern is one that has been taken */
  sl_rank_period_begin(b, SL_PERIOD_step, step->step, step->start_at - 1);
  b->current.row.recorded_step = step->recorded_step;
  b->has_steps = true;
  sl_module_states_step_begins(b->states);
  return b->r;
}

int sl_rank_step_ends(struct sl_rank_builder *b, const struct sl_phase *step) {
  const int64_t number = step->step;
  const struct sl_step_facts facts = sl_rank_step_facts(b, !step->end_at);
  period_end(b, &b->current, b->at);
  int r = cycle_close(b, &facts);
  sl_rank_period_begin(b, SL_PERIOD_between, number, b->at);
  return r < 0 ? r : b->r;
}

int sl_rank_period_cut(struct sl_rank_builder *b) {
  const int64_t step = b->current.row.step;
  struct sl_step_facts facts = sl_rank_step_facts(b, false);
  facts.step = -1;
  b->current.row.kind = SL_PERIOD_cut;
  b->current.kept = true;
  period_end(b, &b->current, b->at);
  int r = sl_rank_repeats_flush(b);
  if (r == 0)
    r = cycle_close(b, &facts);
  sl_rank_period_begin(b, step >= 0 ? SL_PERIOD_between : SL_PERIOD_setup, step, b->at);
  return r;
}

int sl_rank_life_end(struct sl_rank_builder *b) {
  const bool in_step =
      b->current.row.kind == SL_PERIOD_step; /* a step that was cut off: its peak is what an OOM is about */
  const struct sl_step_facts facts = sl_rank_step_facts(b, in_step);
  if (!in_step) {
    b->current.row.kind = b->has_steps ? SL_PERIOD_end : SL_PERIOD_whole;
    open_names_count(b);
  }
  b->current.kept = b->current.kept || !in_step;
  period_end(b, &b->current, b->at);
  int r = in_step ? 0 : sl_rank_repeats_last(b); /* the last step is kept whatever it did */
  if (r == 0)
    r = cycle_close(b, &facts);
  if (r == 0)
    r = sl_rank_repeats_last(b);
  b->closing = &b->current; /* everything that is left is kept */
  if (r == 0)
    r = sl_rank_allocations_settle(b, UINT64_MAX);
  if (r == 0)
    r = sl_rank_phases_settle(b, UINT64_MAX);
  b->closing = NULL;
  return r;
}

/* ---- periods that go on and on ---- */

int sl_rank_period_piece(struct sl_rank_builder *b) {
  struct sl_rank_period *p = &b->current;
  if (p->row.kind == SL_PERIOD_step || b->item_count - p->first_item < PIECE_ITEMS)
    return 0;
  const struct sl_step_facts facts = sl_rank_step_facts(b, true);
  p->kept = true;
  p->end_item = b->item_count;
  int r = decide(b, &facts);
  if (r == 0)
    r = sl_rank_repeats_flush(b);
  if (r == 0)
    r = period_sweep(b, p);
  if (r == 0 && p->peak_at > p->decided_at)
    r = sl_rank_owners_note(b);
  sl_rank_pattern_decisions(b, p);
  if (r == 0)
    r = sl_rank_allocations_settle(b, b->at);
  if (r == 0)
    r = sl_rank_phases_settle(b, b->at);
  allocations_go_on(b);
  b->closing = NULL;
  p->first_item = 0;
  p->decided_at = b->at;
  sl_rank_items_restart(b);
  return r < 0 ? r : b->r;
}
