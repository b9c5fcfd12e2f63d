/*
 * Training repeats itself. The rows of a step that did what an earlier one did (rank_pattern.c) are left out, and its
 * row in `step` says which step speaks for it.
 *
 * A period is a step and what came before it since the step before. Its rows wait until the next period has ended: the
 * last step of a log is kept whatever it did, and only then it is known which of its allocations go on. So two periods'
 * rows are in memory at most.
 *
 * Always kept are the first steps, a step unlike the latest kept ones, and the last step; what outlives the step after
 * its own; everything of the driver; losses.
 *
 * An allocation or phase that reaches into the next period is kept if either is, so that whatever was alive in a kept
 * step is there.
 */
#include "rank_builder.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  FIRST_STEPS = 10,    /* kept in any case */
  KNOWN_PATTERNS = 64, /* of the latest kept steps: evaluations, accumulation and the like alternate */
  DEVICE_BEHIND = 4,   /* steps that the device may be behind the host */
  TOTALS_WAIT = 64,    /* steps for which totals of collectives wait for late device times before they are written */
};

struct known { /* a kept step that others may repeat */
  struct sl_step_pattern pattern;
  int64_t step;
  uint64_t peak_phase;
  uint32_t peak_module;
};

struct ended {
  uint64_t end_ns, last_collective;
  int64_t step;
  bool waits, left_out;
};

struct sl_rank_periods {
  bool keep_all;
  struct known known[KNOWN_PATTERNS]; /* the latest first */
  int known_count;
  struct ended *ended; /* owned */
  size_t count, capacity;
  struct sl_collective_totals *totals; /* owned */
};

struct sl_rank_periods *sl_rank_periods_new(void) {
  struct sl_rank_periods *periods = calloc(1, sizeof *periods);
  if (!periods)
    return NULL;
  periods->totals = sl_collective_totals_new();
  return periods->totals ? periods : sl_rank_periods_free(periods);
}

struct sl_rank_periods *sl_rank_periods_free(struct sl_rank_periods *periods) {
  if (!periods)
    return NULL;
  periods->totals = sl_collective_totals_free(periods->totals);
  free(periods->ended);
  free(periods);
  return NULL;
}

void sl_rank_periods_keep_all(struct sl_rank_periods *periods) {
  periods->keep_all = true;
}

/* ---- where rows go ---- */

/* The period in progress is kept whatever happens in it. */
static bool kept_anyway(const struct sl_rank_periods *periods) {
  return periods->keep_all || periods->count < FIRST_STEPS;
}

static void hold_in(struct sl_rank_builder *b, struct sl_rows *rows) {
  sl_ledger_writer_hold(b->writer, kept_anyway(b->periods) ? NULL : rows);
}

void sl_rank_hold(struct sl_rank_builder *b) {
  hold_in(b, &b->current.rows);
}

void sl_rank_release(struct sl_rank_builder *b) {
  sl_ledger_writer_hold(b->writer, NULL);
}

bool sl_rank_hold_since(struct sl_rank_builder *b, uint64_t begun_at) {
  bool of_last = b->last.left_out && begun_at > b->last.began_at;
  bool goes_with_step = begun_at > b->current.began_at || of_last;
  sl_ledger_writer_hold(b->writer, NULL);
  if (goes_with_step)
    sl_rank_hold(b);
  return goes_with_step;
}

/* The first period that did not end before this, by one of its two marks; count: the one in progress. */
static size_t first_not(bool (*ended_before)(const struct ended *, uint64_t), const struct sl_rank_periods *periods,
                        uint64_t mark) {
  size_t low = 0, high = periods->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ended_before(&periods->ended[middle], mark))
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

static size_t period_at(const struct sl_rank_periods *periods, uint64_t at_ns) {
  return first_not(before_time, periods, at_ns);
}

static size_t period_of_collective(const struct sl_rank_periods *periods, uint64_t id) {
  return first_not(before_collective, periods, id);
}

/* The device runs behind: what a kept step launched runs in its time and in that of the next ones. */
static bool has_device_rows(const struct sl_rank_periods *periods, size_t period) {
  for (size_t i = 0; i <= DEVICE_BEHIND && i <= period; i++)
    if (!periods->ended[period - i].left_out)
      return true;
  return false;
}

static bool is_left_out(const struct sl_rank_periods *periods, size_t period) {
  return period < periods->count && periods->ended[period].left_out;
}

bool sl_rank_hold_device(struct sl_rank_builder *b, uint64_t at_ns) {
  const struct sl_rank_periods *periods = b->periods;
  size_t period = period_at(periods, at_ns);
  if (period == periods->count)
    hold_in(b, &b->current.device_rows);
  else if (periods->ended[period].waits)
    sl_ledger_writer_hold(b->writer, &b->last.device_rows);
  else
    return has_device_rows(periods, period);
  return true;
}

int sl_rank_on_collective(void *context, const struct sl_collective_row *row, struct sl_error *error) {
  struct sl_rank_builder *b = context;
  struct sl_rank_periods *periods = b->periods;
  size_t period = period_of_collective(periods, row->id);
  bool in_progress = period == periods->count;
  bool waits = in_progress ? !kept_anyway(periods) : periods->ended[period].waits;
  int r = 0;
  if (waits || is_left_out(periods, period))
    r = sl_collective_totals_add(periods->totals, period, row, error);
  if (r < 0 || is_left_out(periods, period))
    return r;
  sl_ledger_writer_hold(b->writer, !waits ? NULL : in_progress ? &b->current.rows : &b->last.rows);
  r = sl_write_collective_row(b->writer, row, error);
  sl_ledger_writer_hold(b->writer, NULL);
  return r;
}

/* ---- what is known of earlier steps ---- */

static const struct known *known_find(const struct sl_rank_periods *periods, const struct sl_step_pattern *pattern) {
  for (int i = 0; i < periods->known_count; i++)
    if (memcmp(&periods->known[i].pattern, pattern, sizeof *pattern) == 0)
      return &periods->known[i];
  return NULL;
}

/* The step goes to the front; it takes the place of one with the same pattern, else of the oldest. */
static void known_add(struct sl_rank_periods *periods, const struct known *step) {
  int place = 0;
  while (place < periods->known_count && memcmp(&periods->known[place].pattern, &step->pattern, sizeof step->pattern))
    place++;
  if (place == periods->known_count && periods->known_count < KNOWN_PATTERNS)
    periods->known_count++;
  if (place == KNOWN_PATTERNS)
    place--;
  memmove(periods->known + 1, periods->known, (size_t)place * sizeof *periods->known);
  periods->known[0] = *step;
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
  size_t count = 0, capacity = 0;
  struct sl_row row;
  int r = 0;
  for (size_t at = 0; sl_rows_next(rows, &at, &row);) {
    struct phase_ids ids;
    if (!sl_row_is_phase(&row, &ids.id, &ids.parent))
      continue;
    if (count == capacity) {
      capacity = capacity ? 2 * capacity : 256;
      struct phase_ids *grown = realloc(phases, capacity * sizeof *phases);
      if (!grown) {
        r = -ENOMEM;
        goto finish;
      }
      phases = grown;
    }
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

/* Phases of the last period that went on into the one after it, whose rows are still to come: they stand in others. */
static int needed_by_phases(struct needed **all, struct sl_rank_builder *b) {
  int r = 0;
  for (const struct sl_phase *phase = sl_phases_latest(b->phases);
       phase && phase->start_at > b->last.began_at && r == 0; phase = phase->previous)
    if (phase->start_at <= b->current.began_at && phase->parent)
      r = needed_add(all, phase->parent->id, phase->needed || !phase->end_at);
  return r;
}

/* Drops the last period's rows, but for phases that others speak of. */
static int last_leave_out(struct sl_rank_builder *b) {
  struct needed *all = NULL, *needed, *next;
  struct sl_row row;
  uint64_t id, parent;
  int r = needed_by_phases(&all, b);
  for (size_t i = b->allocation_count; i-- > 0 && b->allocations[i]->alloc_at > b->last.began_at && r == 0;) {
    const struct sl_allocation *a = b->allocations[i];
    if (a->alloc_at <= b->current.began_at)
      r = needed_add(&all, a->phase_id, !a->complete_ns);
  }
  if (r == 0 && all)
    r = needed_close(&all, &b->last.rows);
  for (size_t at = 0; r == 0 && all && sl_rows_next(&b->last.rows, &at, &row);) {
    if (!sl_row_is_phase(&row, &id, &parent))
      continue;
    HASH_FIND(hh, all, &id, sizeof id, needed);
    if (needed && needed->always)
      r = sl_ledger_writer_put_row(b->writer, &row, b->error);
    else if (needed)
      r = sl_rows_add(&b->current.rows, &row);
  }
  HASH_ITER(hh, all, needed, next) {
    HASH_DEL(all, needed);
    free(needed);
  }
  sl_rows_clear(&b->last.rows);
  return r == -ENOMEM ? sl_error_set(b->error, r, "out of memory") : r;
}

/* keep: whatever it repeats. */
static int last_settle(struct sl_rank_builder *b, bool keep) {
  struct sl_rank_periods *periods = b->periods;
  struct sl_rank_period *last = &b->last;
  if (!last->waits)
    return 0;
  size_t period = periods->count - 1; /* it waits, so it has ended */
  struct ended *ended = &periods->ended[period];
  last->waits = ended->waits = false;
  ended->left_out = !keep;
  int r = 0;
  if (has_device_rows(periods, period))
    r = sl_ledger_writer_put(b->writer, &last->device_rows, b->error);
  sl_rows_clear(&last->device_rows);
  if (keep) {
    sl_collective_totals_forget(periods->totals, period);
    last->step.same_as = -1;
    if (r == 0)
      r = sl_ledger_writer_put(b->writer, &last->rows, b->error);
  } else if (r == 0) {
    last->step.peak_phase = last->same_peak_phase;
    last->step.peak_module = last->same_peak_module;
    last->left_out = true;
    r = last_leave_out(b);
  }
  return r < 0 ? r : sl_write_step(b->writer, &last->step, b->error);
}

/* ---- a period ends ---- */

static struct ended *ended_add(struct sl_rank_builder *b) {
  struct sl_rank_periods *periods = b->periods;
  if (periods->count == periods->capacity) {
    size_t capacity = periods->capacity ? 2 * periods->capacity : 256;
    void *grown = realloc(periods->ended, capacity * sizeof *periods->ended);
    if (!grown)
      return NULL;
    periods->ended = grown;
    periods->capacity = capacity;
  }
  struct ended *ended = &periods->ended[periods->count];
  *ended = (struct ended){
      .end_ns = b->step.end_ns, .last_collective = sl_collectives_last_id(b->collectives), .step = b->step.step};
  return ended;
}

int sl_rank_period_decide(struct sl_rank_builder *b) {
  struct sl_rank_periods *periods = b->periods;
  struct sl_rank_period *current = &b->current;
  struct known step = {.step = b->step.step, .peak_phase = b->step.peak_phase, .peak_module = b->step.peak_module};
  const struct known *same = NULL;
  b->step.same_as = -1;
  if (b->pattern) {
    sl_rank_pattern_take(b, &step.pattern);
    same = kept_anyway(periods) ? NULL : known_find(periods, &step.pattern);
  }
  current->waits = same != NULL;
  if (same) {
    b->step.same_as = same->step;
    current->same_peak_phase = same->peak_phase;
    current->same_peak_module = same->peak_module;
  } else if (b->pattern) {
    known_add(periods, &step);
  }
  int r = last_settle(b, false);
  return r < 0 || current->waits ? r : sl_write_step(b->writer, &b->step, b->error);
}

static int64_t step_of(void *context, size_t period) {
  const struct sl_rank_periods *periods = context;
  return periods->ended[period].step;
}

int sl_rank_period_end(struct sl_rank_builder *b) {
  struct sl_rank_periods *periods = b->periods;
  struct ended *ended = ended_add(b);
  if (!ended)
    return sl_error_set(b->error, -ENOMEM, "out of memory");
  size_t period = periods->count++;
  struct sl_rank_period *current = &b->current, *last = &b->last, spare = *last;
  int r = 0;
  ended->waits = current->waits;
  current->step = b->step;
  if (!current->waits) {
    r = sl_ledger_writer_put(b->writer, &current->rows, b->error);
    if (r == 0)
      r = sl_ledger_writer_put(b->writer, &current->device_rows, b->error);
    sl_collective_totals_forget(periods->totals, period);
  }
  *last = *current;
  *current = (struct sl_rank_period){.rows = spare.rows,
                                     .device_rows = spare.device_rows,
                                     .began_at = b->at,
                                     .first_allocation = b->next_allocation + 1};
  if (r == 0 && period > TOTALS_WAIT)
    r = sl_collective_totals_write(periods->totals, period - TOTALS_WAIT, step_of, periods, b->writer, b->error);
  return r;
}

int sl_rank_periods_flush(struct sl_rank_builder *b) {
  int r = last_settle(b, true);
  if (r == 0)
    r = sl_ledger_writer_put(b->writer, &b->current.rows, b->error);
  return r < 0 ? r : sl_ledger_writer_put(b->writer, &b->current.device_rows, b->error);
}

int sl_rank_periods_last(struct sl_rank_builder *b) {
  int r = sl_rank_periods_flush(b);
  b->periods->keep_all = true;
  return r;
}

int sl_rank_periods_finish(struct sl_rank_builder *b) {
  sl_collective_totals_forget(b->periods->totals, b->periods->count); /* what came after the last step is kept */
  return sl_collective_totals_write(b->periods->totals, b->periods->count, step_of, b->periods, b->writer, b->error);
}
