/* Which periods repeat which, and what becomes of their rows. */
#include "rank_repeats.h"

#include "rank_pattern.h"
#include "storage/collectives/collective_totals.h"
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
  struct sl_ledger_writer *writer;
  struct sl_phases *phases;
  const struct sl_rank_allocations *allocations;
  struct sl_rank_period last; /* the latest that was closed */
  struct {
    uint64_t began_at;
    bool left_out;
  } before_last;
  bool keep_all;
  uint64_t steps;                     /* that have ended */
  struct known known[KNOWN_PATTERNS]; /* the latest first */
  int known_count;
  struct ended *ended; /* owned */
  size_t count;
  struct sl_collective_totals *totals; /* owned */
};

struct sl_rank_repeats *sl_rank_repeats_new(struct sl_ledger_writer *writer, struct sl_phases *phases,
                                            const struct sl_rank_allocations *allocations) {
  struct sl_rank_repeats *repeats = calloc(1, sizeof *repeats);
  if (!repeats)
    return NULL;
  repeats->writer = writer;
  repeats->phases = phases;
  repeats->allocations = allocations;
  repeats->totals = sl_collective_totals_new();
  return repeats->totals ? repeats : sl_rank_repeats_free(repeats);
}

struct sl_rank_repeats *sl_rank_repeats_free(struct sl_rank_repeats *repeats) {
  if (!repeats)
    return NULL;
  repeats->totals = sl_collective_totals_free(repeats->totals);
  sl_rank_period_free(&repeats->last);
  free(repeats->ended);
  free(repeats);
  return NULL;
}

void sl_rank_repeats_keep_all(struct sl_rank_repeats *repeats) {
  repeats->keep_all = true;
}

/* ---- where rows go ---- */

bool sl_rank_repeats_keeps_next(const struct sl_rank_repeats *repeats) {
  return repeats->keep_all || repeats->steps < FIRST_STEPS;
}

static bool is_kept_anyway(const struct sl_rank_repeats *repeats, const struct sl_rank_period *p) {
  return p->kept || repeats->keep_all;
}

struct sl_rows *sl_rank_rows_of(const struct sl_rank_repeats *repeats, struct sl_rank_period *period) {
  return is_kept_anyway(repeats, period) ? sl_ledger_writer_rows(repeats->writer) : &period->rows;
}

/*
 * What began after this goes where the closing period's rows go: in that period, or in those right before it that are
 * left out, of a step and of what follows or precedes it.
 */
static uint64_t reach_of(const struct sl_rank_repeats *repeats, const struct sl_rank_period *closing) {
  return !repeats->last.left_out          ? closing->began_at
         : !repeats->before_last.left_out ? repeats->last.began_at
                                          : repeats->before_last.began_at;
}

bool sl_rank_rows_since(const struct sl_rank_repeats *repeats, struct sl_rank_period *period, uint64_t begun_at,
                        struct sl_rows **to) {
  const bool goes_with_period = begun_at > reach_of(repeats, period);
  *to = goes_with_period ? sl_rank_rows_of(repeats, period) : sl_ledger_writer_rows(repeats->writer);
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

bool sl_rank_rows_of_device(struct sl_rank_repeats *repeats, struct sl_rank_life *life, uint64_t at_ns,
                            struct sl_rows **to) {
  const size_t period = first_not(before_time, repeats, at_ns);
  *to = sl_ledger_writer_rows(repeats->writer);
  if (period < repeats->count && !repeats->ended[period].waits)
    return has_device_rows(repeats, period);
  struct sl_rank_period *p = period < repeats->count                                    ? &repeats->last
                             : life->outside_waits && at_ns <= life->outside.row.end_ns ? &life->outside
                                                                                        : &life->current;
  if (!is_kept_anyway(repeats, p))
    *to = &p->device_rows;
  return true;
}

int sl_rank_repeats_collective(struct sl_rank_repeats *repeats, struct sl_rank_life *life,
                               const struct sl_collective_row *row, struct sl_error *error) {
  size_t period = first_not(before_collective, repeats, row->id);
  struct sl_rank_period *p = &repeats->last;
  if (period == repeats->count) {
    p = life->outside_waits && row->id <= life->outside.last_collective ? &life->outside : &life->current;
    period = p->row.period;
  }
  const struct ended *ended = period < repeats->count ? &repeats->ended[period] : NULL;
  const bool left_out = ended && ended->left_out, waits = ended ? ended->waits : !is_kept_anyway(repeats, p);
  int r = 0;
  if (waits || left_out)
    r = sl_collective_totals_add(repeats->totals, period, row, error);
  struct sl_rows *to = waits ? &p->rows : sl_ledger_writer_rows(repeats->writer);
  return r < 0 || left_out ? r : sl_write_collective(repeats->writer, to, row, error);
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
  SL_HASH_FIND_OR_ADD(*all, id, id, needed);
  if (!needed)
    return -ENOMEM;
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
  for (size_t at = 0; (row = sl_rows_next(rows, SL_LEDGER_phase, &at));) {
    struct phase_ids ids;
    sl_phase_row_ids(row, &ids.id, &ids.parent);
    struct phase_ids *added = SL_LIST_ADD(phases, count);
    if (!added) {
      r = -ENOMEM;
      goto finish;
    }
    *added = ids;
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
static int needed_by_phases(struct needed **all, struct sl_rank_repeats *repeats,
                            const struct sl_rank_period *closing) {
  const uint64_t reach = reach_of(repeats, closing);
  int r = 0;
  for (const struct sl_phase *phase = sl_phases_latest(repeats->phases); phase && phase->start_at > reach && r == 0;
       phase = phase->previous)
    if (phase->start_at <= closing->began_at && phase->parent && (!phase->end_at || phase->end_at > closing->began_at))
      r = needed_add(all, phase->parent->id, phase->needed || !phase->end_at);
  return r;
}

/* The same for allocations. What is not complete by now outlives the closing period, and the step after it. */
static int needed_by_allocations(struct needed **all, const struct sl_rank_repeats *repeats,
                                 const struct sl_rank_period *closing) {
  const struct sl_rank_allocations *allocations = repeats->allocations;
  const uint64_t reach = reach_of(repeats, closing);
  int r = 0;
  for (size_t i = allocations->count; i-- > 0 && r == 0;) {
    const struct sl_allocation *a = allocations->list[i];
    if (a->alloc_at > reach && a->alloc_at <= closing->began_at)
      r = needed_add(all, a->phase_id, !a->complete_at);
    if (r == 0 && a->free_at > reach && a->free_at <= closing->began_at)
      r = needed_add(all, a->free_phase_id, true);
  }
  return r;
}

/* Drops the last period's rows, but for phases that others speak of. */
static int last_leave_out(struct sl_rank_repeats *repeats, struct sl_rank_period *closing, struct sl_error *error) {
  struct sl_rank_period *last = &repeats->last;
  struct needed *all = NULL, *needed;
  const struct sl_row *row;
  uint64_t id, parent;
  int r = needed_by_phases(&all, repeats, closing);
  if (r == 0)
    r = needed_by_allocations(&all, repeats, closing);
  if (r == 0 && all)
    r = needed_close(&all, &last->rows);
  for (size_t at = 0; r == 0 && all && (row = sl_rows_next(&last->rows, SL_LEDGER_phase, &at));) {
    sl_phase_row_ids(row, &id, &parent);
    HASH_FIND(hh, all, &id, sizeof id, needed);
    if (needed)
      r = sl_rows_add(needed->always ? sl_ledger_writer_rows(repeats->writer) : sl_rank_rows_of(repeats, closing), row);
  }
  SL_HASH_FREE(all);
  sl_rows_clear(&last->rows);
  return r == -ENOMEM ? sl_no_memory(error) : r;
}

/* closing: which repeats are left out before; NULL: the last period is kept, whatever it repeats. */
static int last_settle(struct sl_rank_repeats *repeats, struct sl_rank_period *closing, struct sl_error *error) {
  struct sl_rank_period *last = &repeats->last;
  const bool keep = !closing;
  if (!last->waits)
    return 0;
  const size_t period = last->row.period;
  struct ended *ended = &repeats->ended[period];
  last->waits = ended->waits = false;
  ended->left_out = !keep;
  int r = 0;
  if (has_device_rows(repeats, period))
    r = sl_ledger_writer_put(repeats->writer, &last->device_rows, error);
  sl_rows_clear(&last->device_rows);
  if (keep) {
    sl_collective_totals_forget(repeats->totals, period);
    last->row.same_as = -1;
    if (r == 0)
      r = sl_ledger_writer_put(repeats->writer, &last->rows, error);
  } else if (r == 0) {
    last->row.peak_phase = last->same_peak_phase;
    last->row.peak_module = last->same_peak_module;
    last->left_out = true;
    r = last_leave_out(repeats, closing, error);
  }
  return r < 0 ? r : sl_write_period(repeats->writer, &last->row, error);
}

/* ---- a period ends ---- */

static struct ended *ended_add(struct sl_rank_repeats *repeats, const struct sl_rank_period *p) {
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

int sl_rank_repeats_decide(struct sl_rank_repeats *repeats, struct sl_rank_period *p, struct sl_error *error) {
  struct known period = {.period = p->row.period, .peak_phase = p->row.peak_phase, .peak_module = p->row.peak_module};
  const struct known *same = NULL;
  p->row.same_as = -1;
  if (p->pattern) {
    if (sl_rank_pattern_take(p, repeats->allocations, &period.pattern) < 0)
      return sl_no_memory(error);
    same = is_kept_anyway(repeats, p) ? NULL : known_find(repeats, &period.pattern);
  }
  p->waits = same != NULL;
  if (same) {
    p->row.same_as = (int64_t)same->period;
    p->same_peak_phase = same->peak_phase;
    p->same_peak_module = same->peak_module;
  } else if (p->pattern) {
    known_add(repeats, &period);
  }
  int r = last_settle(repeats, p, error);
  return r < 0 || p->waits ? r : sl_write_period(repeats->writer, &p->row, error);
}

/* The step of a period, or that which it is before. */
static int64_t step_of(void *context, size_t period) {
  const struct sl_rank_repeats *repeats = context;
  while (repeats->ended[period].step < 0 && period + 1 < repeats->count)
    period++;
  return repeats->ended[period].step;
}

int sl_rank_repeats_end(struct sl_rank_repeats *repeats, struct sl_rank_period *p, struct sl_error *error) {
  if (!ended_add(repeats, p))
    return sl_no_memory(error);
  const size_t period = repeats->count++;
  repeats->steps += p->row.kind == SL_PERIOD_step;
  const struct sl_rank_period spare = repeats->last;
  int r = 0;
  if (!p->waits) {
    r = sl_ledger_writer_put(repeats->writer, &p->rows, error);
    if (r == 0)
      r = sl_ledger_writer_put(repeats->writer, &p->device_rows, error);
    sl_collective_totals_forget(repeats->totals, period);
  }
  if (r == 0)
    r = sl_ledger_writer_put(repeats->writer, sl_ledger_writer_rows(repeats->writer), error);
  repeats->before_last.began_at = repeats->last.began_at;
  repeats->before_last.left_out = repeats->last.left_out;
  repeats->last = *p;
  repeats->last.pattern = NULL;
  p->rows = spare.rows;
  p->device_rows = spare.device_rows;
  if (r == 0 && period > TOTALS_WAIT)
    r = sl_collective_totals_write(repeats->totals, period - TOTALS_WAIT, step_of, repeats, repeats->writer, error);
  return r;
}

int sl_rank_repeats_flush(struct sl_rank_repeats *repeats, struct sl_rank_period *current, struct sl_error *error) {
  int r = last_settle(repeats, NULL, error);
  if (r == 0)
    r = sl_ledger_writer_put(repeats->writer, &current->rows, error);
  return r < 0 ? r : sl_ledger_writer_put(repeats->writer, &current->device_rows, error);
}

int sl_rank_repeats_last(struct sl_rank_repeats *repeats, struct sl_rank_period *current, struct sl_error *error) {
  int r = sl_rank_repeats_flush(repeats, current, error);
  repeats->keep_all = true;
  return r;
}

int sl_rank_repeats_finish(struct sl_rank_repeats *repeats, struct sl_error *error) {
  int r = sl_ledger_writer_put(repeats->writer, sl_ledger_writer_rows(repeats->writer), error);
  if (r == 0)
    r = sl_collective_totals_write(repeats->totals, repeats->count, step_of, repeats, repeats->writer, error);
  return r;
}
