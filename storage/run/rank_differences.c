/* Both ranks' periods, side by side in the order of time: first into a list, then one fact after the other from it. */
#include "rank_differences.h"

#include "rank_slope.h"
#include "rank_tolerance.h"
#include "storage/grow.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>

struct pair { /* a period of the rank and the one of the base that it is compared with */
  struct sl_period_key key;
  int64_t period, base_period, peak, base_peak, end, base_end;
  bool is_cut, base_is_cut; /* its peak may not have been reached */
};

struct pairs {
  struct pair *items;
  size_t count;
  struct pair highest; /* of the rank alone and of the base alone, for two that have nothing in common */
};

const char *sl_fact_word(enum sl_fact_kind kind) {
  static const char *const words[] = {"growth", "peak", "outside", "end", "category"};
  return words[kind];
}

/* ---- side by side ---- */

static int compare_keys(const struct sl_period_key *a, const struct sl_period_key *b) {
  if (a->step != b->step)
    return a->step < b->step ? -1 : 1;
  if (a->slot != b->slot)
    return a->slot < b->slot ? -1 : 1;
  return a->is_between - b->is_between;
}

/* To the next period that is compared: 1, 0 or a negative errno. */
static int next(struct sl_statement *row, struct sl_period_key *key, struct sl_error *error) {
  int r;
  while ((r = sl_statement_step(row, error)) > 0 && !sl_period_key_read(row, key))
    ;
  return r;
}

static void higher(struct sl_statement *row, int64_t *peak, int64_t *period) {
  if (sl_column_int(row, SL_PERIOD_PEAK) > *peak) {
    *peak = sl_column_int(row, SL_PERIOD_PEAK);
    *period = sl_column_int(row, SL_PERIOD_NUMBER);
  }
}

static int pairs_read(struct sl_db *db, uint32_t base, uint32_t rank, struct pairs *out, struct sl_error *error) {
  struct sl_statement *x = NULL, *y = NULL;
  struct sl_period_key x_key, y_key;
  out->highest = (struct pair){.period = -1, .base_period = -1};
  int r = sl_rank_periods(db, base, &x, error);
  if (r == 0)
    r = sl_rank_periods(db, rank, &y, error);
  int has_x = r < 0 ? r : next(x, &x_key, error), has_y = r < 0 ? r : next(y, &y_key, error);
  while (has_x > 0 || has_y > 0) {
    const int order = has_x <= 0 ? 1 : has_y <= 0 ? -1 : compare_keys(&x_key, &y_key);
    if (order == 0) {
      struct pair *added = SL_LIST_ADD(out->items, out->count);
      if (!added) {
        r = sl_no_memory(error);
        break;
      }
      *added = (struct pair){
          .key = y_key,
          .period = sl_column_int(y, SL_PERIOD_NUMBER),
          .base_period = sl_column_int(x, SL_PERIOD_NUMBER),
          .peak = sl_column_int(y, SL_PERIOD_PEAK),
          .base_peak = sl_column_int(x, SL_PERIOD_PEAK),
          .end = sl_column_int(y, SL_PERIOD_END),
          .base_end = sl_column_int(x, SL_PERIOD_END),
          .is_cut = sl_column_int(y, SL_PERIOD_CUT) != 0,
          .base_is_cut = sl_column_int(x, SL_PERIOD_CUT) != 0,
      };
    }
    if (order <= 0) {
      higher(x, &out->highest.base_peak, &out->highest.base_period);
      has_x = next(x, &x_key, error);
    }
    if (order >= 0) {
      higher(y, &out->highest.peak, &out->highest.period);
      has_y = next(y, &y_key, error);
    }
    if (has_x < 0 || has_y < 0)
      break;
  }
  x = sl_statement_close(x);
  y = sl_statement_close(y);
  return r < 0 ? r : has_x < 0 ? has_x : has_y < 0 ? has_y : 0;
}

/* ---- the facts ---- */

static bool is_step(const struct pair *pair) {
  return pair->key.slot == SL_SLOT_steps && !pair->key.is_between;
}

/* 1, 0 or -ENOMEM. */
static int find_growth(const struct pairs *pairs, int64_t noise, struct sl_rank_fact *out) {
  int64_t *steps = reallocarray(NULL, pairs->count + 1, sizeof *steps);
  int64_t *difference = reallocarray(NULL, pairs->count + 1, sizeof *difference);
  const struct pair *last = NULL;
  struct sl_slope slope;
  size_t count = 0;
  int r = -ENOMEM;
  for (size_t i = 0; steps && difference && i < pairs->count; i++)
    if (is_step(&pairs->items[i]) && !pairs->items[i].is_cut && !pairs->items[i].base_is_cut) {
      last = &pairs->items[i];
      steps[count] = last->key.step;
      difference[count++] = last->end - last->base_end;
    }
  if (steps && difference)
    r = sl_slope_find(steps, difference, count, noise, &slope);
  if (r > 0)
    *out = (struct sl_rank_fact){SL_FACT_growth, slope.bytes,          slope.bytes_per_step, slope.since_step,
                                 SL_NONE,        (int64_t)slope.rises, last->period,         last->base_period};
  free(steps);
  free(difference);
  return r;
}

/* What a peak has more that is not explained by what was kept at the end of the period before, or of this one. */
static int64_t unexplained(int64_t more, int64_t before, int64_t after) {
  const int64_t low = before < after ? before : after, high = before < after ? after : before;
  return more > high ? more - high : more < low ? more - low : 0;
}

static void add(struct sl_rank_fact *fact, const struct pair *pair, int64_t bytes, int64_t tolerance,
                bool *last_differs) {
  *last_differs = llabs(bytes) > tolerance;
  if (!*last_differs)
    return;
  if (fact->steps++ == 0)
    fact->since_step = pair->key.slot == SL_SLOT_setup ? INT64_MIN : pair->key.step;
  fact->last_step = pair->key.step;
  if (llabs(bytes) > llabs(fact->bytes)) {
    fact->bytes = bytes;
    fact->period = pair->period;
    fact->base_period = pair->base_period;
  }
}

/* grows: what is kept by it is said already, and peaks are told without. */
static void find_differences(const struct pairs *pairs, const struct sl_noise *noise, bool grows,
                             struct sl_rank_fact facts[SL_FACT_kinds]) {
  bool last[SL_FACT_kinds] = {false};
  int64_t before = 0;
  for (size_t i = 0; i < pairs->count; i++) {
    const struct pair *pair = &pairs->items[i];
    const enum sl_fact_kind kind = is_step(pair) ? SL_FACT_peak : SL_FACT_outside;
    const bool is_whole = !pair->is_cut && !pair->base_is_cut;
    const int64_t after = is_whole ? pair->end - pair->base_end : before;
    const int64_t more = pair->peak - pair->base_peak, told = grows ? unexplained(more, before, after) : more;
    /* Of a period that was cut off only what it has more is known. */
    if (is_whole || (told > 0 ? !pair->base_is_cut : !pair->is_cut))
      add(&facts[kind], pair, told, sl_tolerance(pair->base_peak, noise->peak), &last[kind]);
    if (is_whole && !grows)
      add(&facts[SL_FACT_end], pair, after, sl_tolerance(pair->base_peak, noise->end), &last[SL_FACT_end]);
    before = after;
  }
  for (int kind = 0; kind < SL_FACT_kinds; kind++)
    if (last[kind])
      facts[kind].last_step = SL_NONE;
  /* What is there all the time is in the peaks of steps, between them, and at the ends: it is said once. */
  if (facts[SL_FACT_peak].steps && llabs(facts[SL_FACT_outside].bytes) <= llabs(facts[SL_FACT_peak].bytes) * 11 / 10)
    facts[SL_FACT_outside].steps = 0;
  if (facts[SL_FACT_peak].steps || facts[SL_FACT_outside].steps)
    facts[SL_FACT_end].steps = 0;
}

static int64_t step_of(const struct pairs *pairs, int64_t period) {
  for (size_t i = 0; i < pairs->count; i++)
    if (pairs->items[i].period == period)
      return pairs->items[i].key.step;
  return INT64_MIN;
}

static int largest_first(const void *a, const void *b) {
  const struct sl_rank_fact *x = a, *y = b;
  if (llabs(x->bytes) != llabs(y->bytes))
    return llabs(x->bytes) > llabs(y->bytes) ? -1 : 1;
  return (int)x->kind - (int)y->kind;
}

int sl_rank_differences_find(struct sl_db *db, uint32_t base, uint32_t rank, const struct sl_noise *noise,
                             const struct sl_peak_parts *parts, struct sl_rank_fact out[SL_FACT_kinds],
                             struct sl_error *error) {
  struct pairs pairs = {0};
  struct sl_rank_fact facts[SL_FACT_kinds];
  int count = 0;
  for (int kind = 0; kind < SL_FACT_kinds; kind++)
    facts[kind] = (struct sl_rank_fact){.kind = (enum sl_fact_kind)kind, .last_step = SL_NONE};
  int r = pairs_read(db, base, rank, &pairs, error);
  if (r < 0)
    goto finish;
  r = find_growth(&pairs, noise->end, &facts[SL_FACT_growth]);
  if (r < 0) {
    sl_no_memory(error);
    goto finish;
  }
  find_differences(&pairs, noise, r > 0, facts);
  const struct sl_parts_difference part = sl_peak_parts_compare(parts, base, rank, noise->peak);
  if (part.bytes && !r && !facts[SL_FACT_peak].steps) {
    const int64_t step = step_of(&pairs, part.period);
    facts[SL_FACT_category] =
        (struct sl_rank_fact){SL_FACT_category, part.bytes, 0, step, step, 1, part.period, part.base_period};
  }
  for (int kind = 0; kind < SL_FACT_kinds; kind++)
    if (facts[kind].steps)
      out[count++] = facts[kind];
  /* Nothing in common, or too little of it: then the highest points have to do. */
  if (count == 0)
    out[count++] = (struct sl_rank_fact){SL_FACT_outside,
                                         pairs.highest.peak - pairs.highest.base_peak,
                                         0,
                                         INT64_MIN,
                                         SL_NONE,
                                         1,
                                         pairs.highest.period,
                                         pairs.highest.base_period};
  qsort(out, (size_t)count, sizeof *out, largest_first);
  r = count;
finish:
  free(pairs.items);
  return r;
}
