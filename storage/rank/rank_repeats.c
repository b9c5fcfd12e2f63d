/*
 * Training repeats itself. The rows of a period that did what an earlier one did (rank_pattern.c) are left out, and its
 * row in `period` says which one speaks for it.
 *
 * A period's rows wait until the next one has ended: the last step of a log is kept whatever it did, and only then it
 * is known which of its allocations go on. So three periods' rows are in memory at most.
 *
 * Always kept are the first steps and what is around them, a period unlike the latest kept ones, the last step and what
 * follows it; what outlives the step after its own; everything of the driver; losses.
 *
 * An allocation or phase that reaches into the next period is kept if either is, so that whatever was alive in a kept
 * period is there.
 */
#include "rank_builder.h"
#include "storage/grow.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  FIRST_STEPS = 10,     /* kept in any case */
  KNOWN_PATTERNS = 128, /* of the latest kept periods: evaluations, accumulation and the like alternate */
  DEVICE_BEHIND = 8,    /* periods that the device may be behind the host: four steps */
  TOTALS_WAIT = 128,    /* periods for which totals of collectives wait for late device times before they are written */
};

struct known { /* a kept period that others may repeat */
  struct sl_period_pattern pattern;
  uint64_t period;
  uint64_t peak_phase;
  uint32_t peak_module;
};

struct ended {
  uint64_t end_ns, last_collective;
  int64_t step; /* -1: it is none */
  bool waits, left_out;
};

struct sl_rank_repeats {
  bool keep_all;
  uint64_t steps;                     /* that have ended */
  struct known known[KNOWN_PATTERNS]; /* the latest first */
  int known_count;
  struct ended *ended; /* owned */
  size_t count;
  struct sl_collective_totals *totals; /* owned */
};

struct sl_rank_repeats *sl_rank_repeats_new(void) {
  struct sl_rank_repeats *repeats = calloc(1, sizeof *repeats);
  if (!repeats)
    return NULL;
  repeats->totals = sl_collective_totals_new();
  return repeats->totals ? repeats : sl_rank_repeats_free(repeats);
}

struct sl_rank_repeats *sl_rank_repeats_free(struct sl_rank_repeats *repeats) {
  if (!repeats)
    return NULL;
  repeats->totals = sl_collective_totals_free(repeats->totals);
  free(repeats->ended);
  free(repeats);
  return NULL;
}

void sl_rank_repeats_keep_all(struct sl_rank_repeats *repeats) {
  repeats->keep_all = true;
}

/* ---- where rows go ---- */

bool sl_rank_keeps_next(const struct sl_rank_repeats *repeats) {
  return repeats->keep_all || repeats->steps < FIRST_STEPS;
}

static bool is_kept_anyway(const struct sl_rank_builder *b, const struct sl_rank_period *p) {
  return p->kept || b->repeats->keep_all;
}

void sl_rank_hold(struct sl_rank_builder *b) {
  sl_ledger_writer_hold(b->writer, is_kept_anyway(b, b->closing) ? NULL : &b->closing->rows);
}

void sl_rank_release(struct sl_rank_builder *b) {
  sl_ledger_writer_hold(b->writer, NULL);
}

/*
 * What began after this goes where the closing period's rows go: in that period, or in those right before it that are
 * left out, of a step and of what follows or precedes it.
 */
static uint64_t reach_of(const struct sl_rank_builder *b) {
  return !b->last.left_out          ? b->closing->began_at
         : !b->before_last.left_out ? b->last.began_at
                                    : b->before_last.began_at;
}

bool sl_rank_hold_since(struct sl_rank_builder *b, uint64_t begun_at) {
  const bool goes_with_period = begun_at > reach_of(b);
  sl_ledger_writer_hold(b->writer, NULL);
  if (goes_with_period)
    sl_rank_hold(b);
  return goes_with_period;
}

/* The first closed period that did not end before this, by one of its two marks; count: none of them. */
static size_t first_not(bool (*ended_before)(const struct ended *, uint64_t), const struct sl_rank_repeats *repeats,
                        uint64_t mark) {
  size_t low = 0, high = repeats->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ended_before(&repeats->ended[middle], mark))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool before_time(const struct ended *ended, uint64_t at_ns) {
  return ended->end_ns < at_ns;
}

static bool before_collective(const struct ended *ended, uint64_t id) {
  return ended->last_collective < id;
}

/* The device runs behind: what a kept step launched runs in its time and in that of the next ones. */
static bool has_device_rows(const struct sl_rank_repeats *repeats, size_t period) {
  for (size_t i = 0; i <= DEVICE_BEHIND && i <= period; i++)
    if (!repeats->ended[period - i].left_out)
      return true;
  return false;
}

bool sl_rank_hold_device(struct sl_rank_builder *b, uint64_t at_ns) {
  const struct sl_rank_repeats *repeats = b->repeats;
  const size_t period = first_not(before_time, repeats, at_ns);
  if (period < repeats->count && !repeats->ended[period].waits)
    return has_device_rows(repeats, period);
  struct sl_rank_period *p = period < repeats->count                              ? &b->last
                             : b->outside_waits && at_ns <= b->outside.row.end_ns ? &b->outside
                                                                                  : &b->current;
  sl_ledger_writer_hold(b->writer, is_kept_anyway(b, p) ? NULL : &p->device_rows);
  return true;
}

int sl_rank_on_collective(void *context, const struct sl_collective_row *row, struct sl_error *error) {
  struct sl_rank_builder *b = context;
  struct sl_rank_repeats *repeats = b->repeats;
  size_t period = first_not(before_collective, repeats, row->id);
  struct sl_rank_period *p = &b->last;
  if (period == repeats->count) {
    p = b->outside_waits && row->id <= b->outside.last_collective ? &b->outside : &b->current;
    period = p->row.period;
  }
  const struct ended *ended = period < repeats->count ? &repeats->ended[period] : NULL;
  const bool left_out = ended && ended->left_out, waits = ended ? ended->waits : !is_kept_anyway(b, p);
  int r = 0;
  if (waits || left_out)
    r = sl_collective_totals_add(repeats->totals, period, row, error);
  if (r < 0 || left_out)
    return r;
  sl_ledger_writer_hold(b->writer, waits ? &p->rows : NULL);
  r = sl_write_collective_row(b->writer, row, error);
  sl_ledger_writer_hold(b->writer, NULL);
  return r;
}

/* ---- what is known of earlier periods ---- */

static const struct known *known_find(const struct sl_rank_repeats *repeats, const struct sl_period_pattern *pattern) {
  for (int i = 0; i < repeats->known_count; i++)
    if (memcmp(&repeats->known[i].pattern, pattern, sizeof *pattern) == 0)
      return &repeats->known[i];
  return NULL;
}

/* The period goes to the front; it takes the place of one with the same pattern, else of the oldest. */
static void known_add(struct sl_rank_repeats *repeats, const struct known *period) {
  int place = 0;
  while (place < repeats->known_count &&
         memcmp(&repeats->known[place].pattern, &period->pattern, sizeof period->pattern))
    place++;
  if (place == repeats->known_count && repeats->known_count < KNOWN_PATTERNS)
    repeats->known_count++;
  if (place == KNOWN_PATTERNS)
    place--;
  memmove(repeats->known + 1, repeats->known, (size_t)place * sizeof *repeats->known);
  repeats->known[0] = *period;
}

/* ---- the last period's fate ---- */

struct needed { /* a phase of the period that is left out, and rows that are not speak of it */
  uint64_t id;
  bool always; /* else only if the period after it is kept */
  UT_hash_handle hh;
};

static int needed_add(struct needed **all, uint64_t id, bool always) {
  struct needed *needed;
  if (!id)
    return 0;
  HASH_FIND(hh, *all, &id, sizeof id, needed);
  if (!needed) {
    needed = calloc(1, sizeof *needed);
    if (!needed)
      return -ENOMEM;
    needed->id = id;
    SL_HASH_ADD(*all, id, needed);
    if (!needed)
      return -ENOMEM;
  }
  needed->always |= always;
  return 0;
}

/* Phases of allocations that go on: from the innermost outwards, since each row stands before those within it. */
static int needed_close(struct needed **all, const struct sl_rows *rows) {
  struct phase_ids {
    uint64_t id, parent;
  } *phases = NULL;
  size_t count = 0;
  const struct sl_row *row;
  int r = 0;
  for (size_t at = 0; (row = sl_rows_next(rows, &at));) {
    struct phase_ids ids;
    if (!sl_row_is_phase(row, &ids.id, &ids.parent))
      continue;
    struct phase_ids *grown = sl_list_grow(phases, count, sizeof *phases);
    if (!grown) {
      r = -ENOMEM;
      goto finish;
    }
    phases = grown;
    phases[count++] = ids;
  }
  while (count-- > 0 && r == 0) {
    struct needed *needed;
    HASH_FIND(hh, *all, &phases[count].id, sizeof needed->id, needed);
    if (needed)
      r = needed_add(all, phases[count].parent, needed->always);
  }
finish:
  free(phases);
  return r;
}

/* Phases that went on into the closing period, whose rows are still to come: they stand in others. */
static int needed_by_phases(struct needed **all, struct sl_rank_builder *b) {
  const uint64_t reach = reach_of(b);
  int r = 0;
  for (const struct sl_phase *phase = sl_phases_latest(b->phases); phase && phase->start_at > reach && r == 0;
       phase = phase->previous)
    if (phase->start_at <= b->closing->began_at && phase->parent &&
        (!phase->end_at || phase->end_at > b->closing->began_at))
      r = needed_add(all, phase->parent->id, phase->needed || !phase->end_at);
  return r;
}

/* The same for allocations. What is not complete by now outlives the closing period, and the step after it. */
static int needed_by_allocations(struct needed **all, struct sl_rank_builder *b) {
  const uint64_t reach = reach_of(b);
  int r = 0;
  for (size_t i = b->allocation_count; i-- > 0 && r == 0;) {
    const struct sl_allocation *a = b->allocations[i];
    if (a->alloc_at > reach && a->alloc_at <= b->closing->began_at)
      r = needed_add(all, a->phase_id, !a->complete_at);
    if (r == 0 && a->free_at > reach && a->free_at <= b->closing->began_at)
      r = needed_add(all, a->free_phase_id, true);
  }
  return r;
}

/* A row of the last period goes with the one that is closed now. */
static int closing_row(struct sl_rank_builder *b, const struct sl_row *row) {
  return is_kept_anyway(b, b->closing) ? sl_ledger_writer_put_row(b->writer, row, b->error)
                                       : sl_rows_add(&b->closing->rows, row);
}

/* Drops the last period's rows, but for phases that others speak of. */
static int last_leave_out(struct sl_rank_builder *b) {
  struct needed *all = NULL, *needed, *next;
  const struct sl_row *row;
  uint64_t id, parent;
  int r = needed_by_phases(&all, b);
  if (r == 0)
    r = needed_by_allocations(&all, b);
  if (r == 0 && all)
    r = needed_close(&all, &b->last.rows);
  for (size_t at = 0; r == 0 && all && (row = sl_rows_next(&b->last.rows, &at));) {
    if (!sl_row_is_phase(row, &id, &parent))
      continue;
    HASH_FIND(hh, all, &id, sizeof id, needed);
    if (needed && needed->always)
      r = sl_ledger_writer_put_row(b->writer, row, b->error);
    else if (needed)
      r = closing_row(b, row);
  }
  HASH_ITER(hh, all, needed, next) {
    HASH_DEL(all, needed);
    free(needed);
  }
  sl_rows_clear(&b->last.rows);
  return r == -ENOMEM ? sl_no_memory(b->error) : r;
}

/* keep: whatever it repeats. */
static int last_settle(struct sl_rank_builder *b, bool keep) {
  struct sl_rank_repeats *repeats = b->repeats;
  struct sl_rank_period *last = &b->last;
  if (!last->waits)
    return 0;
  const size_t period = last->row.period;
  struct ended *ended = &repeats->ended[period];
  last->waits = ended->waits = false;
  ended->left_out = !keep;
  int r = 0;
  if (has_device_rows(repeats, period))
    r = sl_ledger_writer_put(b->writer, &last->device_rows, b->error);
  sl_rows_clear(&last->device_rows);
  if (keep) {
    sl_collective_totals_forget(repeats->totals, period);
    last->row.same_as = -1;
    if (r == 0)
      r = sl_ledger_writer_put(b->writer, &last->rows, b->error);
  } else if (r == 0) {
    last->row.peak_phase = last->same_peak_phase;
    last->row.peak_module = last->same_peak_module;
    last->left_out = true;
    r = last_leave_out(b);
  }
  return r < 0 ? r : sl_write_period(b->writer, &last->row, b->error);
}

/* ---- a period ends ---- */

static struct ended *ended_add(struct sl_rank_builder *b, const struct sl_rank_period *p) {
  struct sl_rank_repeats *repeats = b->repeats;
  struct ended *grown = sl_list_grow(repeats->ended, repeats->count, sizeof *grown);
  if (!grown)
    return NULL;
  repeats->ended = grown;
  grown[repeats->count] = (struct ended){.end_ns = p->row.end_ns,
                                         .last_collective = p->last_collective,
                                         .step = p->row.kind == SL_PERIOD_step ? p->row.step : -1,
                                         .waits = p->waits};
  return &grown[repeats->count];
}

int sl_rank_repeat_decide(struct sl_rank_builder *b, struct sl_rank_period *p) {
  struct sl_rank_repeats *repeats = b->repeats;
  struct known period = {.period = p->row.period, .peak_phase = p->row.peak_phase, .peak_module = p->row.peak_module};
  const struct known *same = NULL;
  p->row.same_as = -1;
  if (p->pattern) {
    sl_rank_pattern_take(b, p, &period.pattern);
    same = is_kept_anyway(b, p) ? NULL : known_find(repeats, &period.pattern);
  }
  p->waits = same != NULL;
  if (same) {
    p->row.same_as = (int64_t)same->period;
    p->same_peak_phase = same->peak_phase;
    p->same_peak_module = same->peak_module;
  } else if (p->pattern) {
    known_add(repeats, &period);
  }
  int r = last_settle(b, false);
  return r < 0 || p->waits ? r : sl_write_period(b->writer, &p->row, b->error);
}

/* The step of a period, or that which it is before. */
static int64_t step_of(void *context, size_t period) {
  const struct sl_rank_repeats *repeats = context;
  while (repeats->ended[period].step < 0 && period + 1 < repeats->count)
    period++;
  return repeats->ended[period].step;
}

int sl_rank_repeat_end(struct sl_rank_builder *b, struct sl_rank_period *p) {
  struct sl_rank_repeats *repeats = b->repeats;
  if (!ended_add(b, p))
    return sl_no_memory(b->error);
  const size_t period = repeats->count++;
  repeats->steps += p->row.kind == SL_PERIOD_step;
  const struct sl_rank_period spare = b->last;
  int r = 0;
  if (!p->waits) {
    r = sl_ledger_writer_put(b->writer, &p->rows, b->error);
    if (r == 0)
      r = sl_ledger_writer_put(b->writer, &p->device_rows, b->error);
    sl_collective_totals_forget(repeats->totals, period);
  }
  b->before_last.began_at = b->last.began_at;
  b->before_last.left_out = b->last.left_out;
  b->last = *p;
  b->last.pattern = NULL;
  p->rows = spare.rows;
  p->device_rows = spare.device_rows;
  if (r == 0 && period > TOTALS_WAIT)
    r = sl_collective_totals_write(repeats->totals, period - TOTALS_WAIT, step_of, repeats, b->writer, b->error);
  return r;
}

int sl_rank_repeats_flush(struct sl_rank_builder *b) {
  int r = last_settle(b, true);
  if (r == 0)
    r = sl_ledger_writer_put(b->writer, &b->current.rows, b->error);
  return r < 0 ? r : sl_ledger_writer_put(b->writer, &b->current.device_rows, b->error);
}

int sl_rank_repeats_last(struct sl_rank_builder *b) {
  int r = sl_rank_repeats_flush(b);
  b->repeats->keep_all = true;
  return r;
}

int sl_rank_repeats_finish(struct sl_rank_builder *b) {
  struct sl_rank_repeats *repeats = b->repeats;
  return sl_collective_totals_write(repeats->totals, repeats->count, step_of, repeats, b->writer, b->error);
}
