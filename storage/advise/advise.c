/*
 *   goal ─► tape ─► unchanged replay ─► continuation ─► what it needs ─► each candidate ─► two or three of them ─►
 * order ─► verdict └ not as recorded: facts only
 */
#include "advise.h"

#include "reserved.h"
#include "storage/grow.h"
#include "storage/tables/sql_text.h"
#include "trial.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALLOCATED = 1, RESERVED = 3, MOST_TOGETHER = 3 };

struct work {
  struct sl_db *db;
  struct sl_advise *out;
  struct sl_error *error;
  struct sl_tape recorded, tape; /* as it was, and gone on with */
  struct sl_replay unchanged;
  struct sl_replay under[2]; /* the same, as sweeps are where the limit held from goal.limit_event and life_event on */
  uint8_t *sweeps[2];
  struct sl_bench bench;
  bool has_bench; /* predictions can be made */
};

void sl_advise_free(struct sl_advise *advise) {
  free(advise->items);
  *advise = (struct sl_advise){0};
}

const char *sl_advice_word(const struct sl_advice *advice, char *out, size_t size) {
  size_t length = 0;
  *out = '\0';
  for (int i = 0; i < advice->part_count && length < size; i++)
    length += (size_t)snprintf(out + length, size - length, "%s%s", i ? "+" : "", advice->parts[i]->word);
  return out;
}

/* ---- texts ---- */

/* # is the count and @ the name; several parts are joined. */
static void say(char *out, size_t size, const char *joint, const char *text, int64_t count, const char *name) {
  size_t length = strlen(out);
  if (length && length < size)
    length += (size_t)snprintf(out + length, size - length, "%s", joint);
  for (; *text && length + 1 < size; text++) {
    const size_t room = size - length;
    const int written = *text == '#'   ? snprintf(out + length, room, "%" PRId64, count)
                        : *text == '@' ? snprintf(out + length, room, "%s", name)
                                       : snprintf(out + length, room, "%c", *text);
    length += (size_t)written < room ? (size_t)written : room - 1;
  }
  out[length < size ? length : size - 1] = '\0';
}

static struct sl_advice *item_add(struct sl_advise *out) {
  struct sl_advice *added = SL_LIST_ADD(out->items, out->count);
  if (!added)
    return NULL;
  *added = (struct sl_advice){.fits = SL_FITS_no};
  return added;
}

static void words_set(struct sl_advice *item) {
  for (int i = 0; i < item->part_count; i++) {
    const struct sl_candidate *c = item->parts[i];
    const int64_t count = item->counts[i];
    const char *name = item->names[i];
    const bool is_fact = !item->is_predicted && c->fact_text;
    say(item->text, sizeof item->text, ", and ", is_fact ? c->fact_text : c->text, count, name);
    say(item->code, sizeof item->code, "\n", is_fact && c->fact_code ? c->fact_code : c->code, count, name);
    if (*c->options && !is_fact)
      say(item->options, sizeof item->options, " ", c->options, count, name);
    if (*c->conf) {
      say(item->options, sizeof item->options, " ", "--alloc-conf ", 0, "");
      say(item->options, sizeof item->options, "", c->conf, 0, "");
    }
  }
}

/* ---- facts ---- */

/*
 * How much memory a change is about: of a hundredth of what was allocated, or more. A fact's columns: bytes, count,
 * name, at most so many bytes (NULL or none: no more), and what is added a step.
 */
static int fact_read(struct work *w, const struct sl_candidate *candidate, struct sl_advice *item) {
  const struct sl_goal *goal = &w->out->goal;
  struct sl_statement *row = NULL;
  if (!candidate->fact)
    return 0;
  const bool limited = goal->is_refused && goal->free_bytes >= 0 && (uint64_t)goal->free_bytes >= goal->wanted_bytes;
  int r = sl_db_ask_first(
      w->db, candidate->fact,
      SL_WITH(SL_NUMBER(":rank", goal->rank), SL_GIVEN(":at", goal->at_ns), SL_NUMBER(":limited", limited)), &row,
      w->error);
  if (r > 0 && sl_column_int(row, 0) > 0 && (uint64_t)sl_column_int(row, 0) * 100 >= goal->allocated_bytes) {
    item->about_bytes = item->most_bytes = (uint64_t)sl_column_int(row, 0);
    if (sl_column_count(row) > 3 && sl_column_int(row, 3) > sl_column_int(row, 0))
      item->most_bytes = (uint64_t)sl_column_int(row, 3);
    if (sl_column_count(row) > 4 && sl_column_int(row, 4) > 0)
      w->out->growth_bytes = (uint64_t)sl_column_int(row, 4);
    item->counts[0] = sl_column_int(row, 1);
    snprintf(item->names[0], sizeof item->names[0], "%s", sl_column_text(row, 2));
    say(item->counted, sizeof item->counted, "", candidate->counted, item->counts[0], item->names[0]);
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

/*
 * What can't be predicted is about so much: whether that may be enough. An earlier step that asked for the same had
 * less of what has grown, and was served.
 */
static void fact_judge(const struct work *w, struct sl_advice *item) {
  const bool was_served = item->parts[0]->kind == SL_CANDIDATE_leak && w->out->rest.rest == SL_REST_step;
  item->is_predicted = false;
  item->fits = was_served || item->most_bytes >= w->out->missing_bytes ? SL_FITS_perhaps : SL_FITS_hardly;
}

/* What a change saves of what is needed at the most; less than a hundredth is nothing. */
static uint64_t saved(const struct sl_advise *out, const struct sl_advice *item, int quantity) {
  const uint64_t need = out->need[quantity].high, after = item->after[quantity].high;
  return item->is_predicted && need > after && (need - after) * 100 >= need ? need - after : 0;
}

/* Where it fits anyhow, a change that saves nothing is none. */
static void saving_judge(const struct sl_advise *out, struct sl_advice *item) {
  const bool fits_anyhow = out->fits_already || !out->goal.limit_bytes;
  if (item->fits == SL_FITS_refused || saved(out, item, ALLOCATED) || saved(out, item, RESERVED))
    return;
  if (fits_anyhow)
    item->fits = SL_FITS_no;
  if (item->fits == SL_FITS_no)
    snprintf(item->why, sizeof item->why, "it saves next to nothing where memory is highest");
}

static int single_try(struct work *w, const struct sl_candidate *candidate) {
  struct sl_advice item = {.parts = {candidate}, .part_count = 1, .fits = SL_FITS_no};
  int r = fact_read(w, candidate, &item);
  /* Where memory is missing, or highest. The loss's is of a refused request only: of a run that did not die nothing but
   * playing it tells; of the optimizer's nothing else does anyhow. */
  const bool is_untold =
      candidate->turn == SL_TURN_optimizer || (candidate->turn == SL_TURN_loss && !w->out->goal.is_refused);
  const bool is_about_nothing = candidate->needs_calls && !item.about_bytes && !is_untold;
  const bool can_predict = w->has_bench && sl_is_predictable(candidate) && !is_about_nothing;
  if (r == 0 && can_predict && (r = sl_trial(&w->bench, 0, &item)) < 0)
    return sl_no_memory(w->error);
  if (r < 0 ||
      (!item.about_bytes && (!can_predict || (candidate->needs_calls && is_untold && item.fits == SL_FITS_refused))))
    return r;
  if (!can_predict || (item.fits == SL_FITS_refused && item.about_bytes))
    fact_judge(w, &item);
  else
    saving_judge(w->out, &item);
  words_set(&item);
  r = sl_price(w->db, &w->out->goal, candidate->price, item.names[0], &item.cost, w->error);
  struct sl_advice *added = r < 0 ? NULL : item_add(w->out);
  if (!added)
    return r < 0 ? r : sl_no_memory(w->error);
  *added = item;
  return 0;
}

/* ---- several together ---- */

static bool is_good(enum sl_fits fits) {
  return fits == SL_FITS_yes || fits == SL_FITS_life || fits == SL_FITS_past;
}

/* A change that can be made, takes less, and is not enough. */
static bool is_part(const struct sl_advise *out, const struct sl_advice *item) {
  return item->is_predicted && item->part_count == 1 &&
         (item->fits == SL_FITS_no || item->fits == SL_FITS_plays || item->fits == SL_FITS_limit) &&
         (saved(out, item, ALLOCATED) || saved(out, item, RESERVED));
}

static void cost_add(struct sl_cost *cost, const struct sl_cost *more) {
  if (*cost->words && (more->ns == 0 || strcmp(cost->words, more->words) == 0))
    return;
  const bool is_plain = cost->ns < 0 && strcmp(cost->words, "not known") == 0;
  if (is_plain) {
    *cost->words = '\0';
    say(cost->words, sizeof cost->words, "", more->words, 0, "");
    if (more->ns >= 0)
      say(cost->words, sizeof cost->words, "; ", "the rest is not known", 0, "");
  } else if (*cost->words && cost->ns != 0) {
    say(cost->words, sizeof cost->words, "; ", more->words, 0, "");
  } else {
    snprintf(cost->words, sizeof cost->words, "%s", more->words);
  }
  cost->ns = cost->ns < 0 || more->ns < 0 ? -1 : cost->ns + more->ns;
}

/* Whether several parts go together, and no fewer of them were found to be enough. */
static int together_try(struct work *w, const struct sl_advice *const parts[], int count) {
  struct sl_advice item = {.fits = SL_FITS_no};
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < i; j++)
      if (parts[i]->parts[0]->excludes && parts[i]->parts[0]->excludes == parts[j]->parts[0]->excludes)
        return 0;
    item.counts[item.part_count] = parts[i]->counts[0];
    snprintf(item.names[item.part_count], sizeof item.names[0], "%s", parts[i]->names[0]);
    item.parts[item.part_count++] = parts[i]->parts[0];
    cost_add(&item.cost, &parts[i]->cost);
  }
  int r = sl_trial(&w->bench, 1, &item);
  if (r == 0 && is_good(item.fits))
    r = sl_trial(&w->bench, 0, &item);
  if (r < 0)
    return sl_no_memory(w->error);
  if (!is_good(item.fits) && item.fits != SL_FITS_plays)
    return 0;
  words_set(&item);
  struct sl_advice *added = item_add(w->out);
  if (!added)
    return sl_no_memory(w->error);
  *added = item;
  return is_good(item.fits);
}

/* What fits the step that died does for the steps after it as long as what grows leaves it room. */
static void growth_judge(struct sl_advise *out) {
  for (size_t i = 0; i < out->count; i++) {
    struct sl_advice *item = &out->items[i];
    if (item->fits != SL_FITS_yes && item->fits != SL_FITS_life)
      continue;
    const uint64_t after = item->after[ALLOCATED].low, most = out->goal.limit_most;
    item->fits = SL_FITS_while;
    item->lasts_steps = 1 + (most > after ? (most - after) / out->growth_bytes : 0);
  }
}

static int together(struct work *w) {
  struct sl_advice singles[32];
  int count = 0, found = 0, r = 0;
  for (size_t i = 0; i < w->out->count; i++) {
    if (is_good(w->out->items[i].fits))
      return 0; /* one is enough */
    if (is_part(w->out, &w->out->items[i]) && count < 32)
      singles[count++] = w->out->items[i];
  }
  for (int a = 0; a < count && r >= 0; a++)
    for (int b = a + 1; b < count && r >= 0 && found < MOST_TOGETHER; b++) {
      r = together_try(w, (const struct sl_advice *[]){&singles[a], &singles[b]}, 2);
      found += r > 0;
    }
  for (int a = 0; a < count && !found && r >= 0; a++)
    for (int b = a + 1; b < count && r >= 0; b++)
      for (int c = b + 1; c < count && r >= 0 && found < MOST_TOGETHER; c++) {
        r = together_try(w, (const struct sl_advice *[]){&singles[a], &singles[b], &singles[c]}, 3);
        found += r > 0;
      }
  return r < 0 ? r : 0;
}

/* ---- order ---- */

static bool has_kind(const struct sl_advice *item, enum sl_candidate_kind kind) {
  bool found = false;
  for (int i = 0; i < item->part_count; i++)
    found |= item->parts[i]->kind == kind;
  return found;
}

enum class {
  CLASS_leak, /* that may be what is missing: whatever else would help is used up some steps later */
  CLASS_fits,
  CLASS_life,
  CLASS_sometimes,
  CLASS_perhaps,
  CLASS_limit,
  CLASS_training, /* it may do, but trains otherwise */
  CLASS_no,
  CLASS_refused,
};

static enum class class_of(const struct sl_advise *out, const struct sl_advice *item) {
  const bool is_open = out->rest.rest == SL_REST_unknown;
  if (has_kind(item, SL_CANDIDATE_leak) && out->goal.is_refused && item->fits == SL_FITS_perhaps) return CLASS_leak;
  if ((is_good(item->fits) || item->fits == SL_FITS_while) &&
      has_kind(item, SL_CANDIDATE_training)) return CLASS_training;
  switch (item->fits){
    case SL_FITS_yes : return CLASS_fits; case SL_FITS_life : return is_open ? CLASS_perhaps : CLASS_life;
    case SL_FITS_while : return CLASS_sometimes;
    case SL_FITS_plays : return is_open ? CLASS_no : CLASS_sometimes;
    case SL_FITS_limit : return is_open ? CLASS_no : CLASS_limit;
    case SL_FITS_past : case SL_FITS_perhaps : return CLASS_perhaps;
    case SL_FITS_hardly : case SL_FITS_no : return CLASS_no;
    default : return CLASS_refused;
  }
}

/*
 * Where it is known to fit, the cheapest comes first: what costs no time, then what costs a known one. Where it is not
 * known, the one that is about the most memory: it leaves the most room for what is not known.
 */
static bool is_before(const struct sl_advise *out, const struct sl_advice *a, const struct sl_advice *b) {
  const enum class of_a = class_of(out, a), of_b = class_of(out, b);
  if (of_a != of_b)
    return of_a < of_b;
  if (of_a != CLASS_perhaps && of_a != CLASS_no && of_a != CLASS_leak) {
    if (a->part_count != b->part_count)
      return a->part_count < b->part_count;
    if (a->cost.ns != b->cost.ns || !out->fits_already)
      return (uint64_t)a->cost.ns < (uint64_t)b->cost.ns; /* unknown: -1, the last */
    return saved(out, a, ALLOCATED) > saved(out, b, ALLOCATED);
  }
  const bool last_a = has_kind(a, SL_CANDIDATE_last), last_b = has_kind(b, SL_CANDIDATE_last);
  return last_a != last_b ? last_b : a->about_bytes > b->about_bytes;
}

static void sort(struct sl_advise *out) {
  for (size_t i = 1; i < out->count; i++) {
    const struct sl_advice item = out->items[i];
    size_t place = i;
    for (; place && is_before(out, &item, &out->items[place - 1]); place--)
      out->items[place] = out->items[place - 1];
    out->items[place] = item;
  }
}

/* ---- is anything enough? ---- */

static bool is_hope(const struct sl_advise *out, const struct sl_advice *item) {
  const bool is_open = out->rest.rest == SL_REST_unknown;
  return item->fits == SL_FITS_yes || item->fits == SL_FITS_while ||
         (!is_open && (item->fits == SL_FITS_life || item->fits == SL_FITS_plays || item->fits == SL_FITS_limit));
}

/* What was played to its end may contradict an estimate of the least; what is only about much memory can't. */
static int verdict_take(struct work *w) {
  struct sl_advise *out = w->out;
  struct sl_verdict *verdict = &out->verdict;
  bool any_fits = out->fits_already || !out->goal.limit_most, any_perhaps = false;
  int r = sl_verdict_read(w->db, &out->goal, verdict, w->error);
  for (size_t i = 0; i < out->count; i++) {
    any_fits |= is_hope(out, &out->items[i]);
    any_perhaps |= out->items[i].fits == SL_FITS_perhaps;
  }
  if (r < 0 || any_fits)
    return r;
  if (verdict->least_bytes > out->goal.limit_most) {
    verdict->suffices = SL_SUFFICES_nothing;
    for (size_t i = 0; i < out->count; i++)
      if (out->items[i].fits == SL_FITS_perhaps)
        out->items[i].fits = SL_FITS_hardly;
  } else if (!any_perhaps) {
    verdict->suffices = SL_SUFFICES_unknown;
  }
  return 0;
}

/* ---- the whole ---- */

static int held_make(struct work *w) {
  const struct sl_goal *goal = &w->out->goal;
  const struct sl_parameter *parameters = SL_WITH(SL_NUMBER(":rank", goal->rank), SL_GIVEN(":at", goal->at_ns),
                                                  SL_GIVEN(":period", goal->is_refused ? -1 : goal->period));
  int r = sl_db_execute(w->db, "DROP TABLE IF EXISTS temp.held", w->error);
  return r < 0 ? r : sl_db_tell(w->db, sl_advise_held_sql, parameters, w->error);
}

static size_t period_at(const struct sl_tape *tape, uint64_t event) {
  size_t found = 0;
  for (size_t i = 0; i < tape->period_count && tape->periods[i].first_event <= event; i++)
    found = i;
  return found;
}

static int floor_find(struct work *w) {
  int r = sl_floor_find(&w->recorded, &w->out->floor);
  w->out->has_floor = r == 0;
  w->out->floor_reserved = w->unchanged.highest[RESERVED].bytes;
  return r == -ENOTSUP ? 0 : r;
}

static int sweeps_make(struct work *w) {
  const struct sl_goal *goal = &w->out->goal;
  const uint64_t limits[] = {goal->limit_bytes, goal->limit_life ? goal->limit_life : goal->limit_bytes},
                 from[] = {goal->limit_event, goal->life_event};
  for (int i = 0; i < 2; i++) {
    w->under[i] = w->unchanged;
    if (!goal->is_refused || goal->limit == SL_LIMIT_budget || !limits[i])
      continue;
    w->sweeps[i] = malloc(w->recorded.segment_count + 1);
    if (!w->sweeps[i])
      return -ENOMEM;
    sl_sweeps_under(&w->recorded, w->unchanged.sweeps, limits[i], from[i], w->sweeps[i]);
    w->under[i].sweeps = w->sweeps[i];
  }
  return 0;
}

/* Whether it can be predicted at all, and what it needs as it is. */
static int bench_make(struct work *w) {
  struct sl_advise *out = w->out;
  bool is_refused = false;
  int r = sl_whatif_unchanged(&w->recorded, &w->unchanged, out->why, sizeof out->why);
  if (r == 0 && !*out->why)
    r = floor_find(w);
  if (r == 0 && !*out->why)
    r = sl_tape_copy(&w->recorded, &w->tape);
  if (r == 0 && !*out->why)
    r = sweeps_make(w);
  if (r < 0)
    return sl_no_memory(w->error);
  if (*out->why)
    return 0;
  r = sl_continue(w->db, &out->goal, &w->tape, &out->rest, w->error);
  if (r < 0)
    return r;
  w->bench = (struct sl_bench){.db = w->db,
                               .goal = &out->goal,
                               .rest = &out->rest,
                               .tape = &w->tape,
                               .unchanged = &w->under[0],
                               .life = &w->under[1],
                               .from_period = period_at(&w->tape, out->goal.limit_event)};
  for (size_t p = w->bench.from_period; p && p < w->tape.period_count && out->from_step < 0; p++)
    if (strcmp(w->tape.periods[p].kind, "step") == 0)
      out->from_step = w->tape.periods[p].step;
  r = sl_bench_need(&w->bench, out);
  if (r == 0 && out->goal.limit_bytes && !*out->why)
    r = sl_bench_limited(&w->bench, out, &is_refused);
  if (r < 0)
    return sl_no_memory(w->error);
  if (!*out->why && out->goal.is_refused && !out->goal.budget_bytes && !is_refused)
    snprintf(out->why, sizeof out->why,
             "played under the limit that its refused request tells of, the recorded run is refused nothing");
  w->has_bench = !*out->why;
  return 0;
}

static void missing_set(struct sl_advise *out) {
  const struct sl_goal *goal = &out->goal;
  const uint64_t needed = out->rest.rest == SL_REST_unknown ? 0 : out->need[ALLOCATED].low, limit = goal->limit_most;
  out->missing_bytes = goal->is_refused && !goal->budget_bytes ? sl_goal_missing(goal) : 0;
  if (limit && needed > limit && needed - limit > out->missing_bytes)
    out->missing_bytes = needed - limit;
}

/* The tape, and all that rests on it; without one facts alone are told. */
static int predictions_begin(struct work *w, uint64_t budget_bytes) {
  int r = sl_tape_read(w->db, w->out->goal.rank, &w->recorded, w->error);
  if (r == -ENODATA || r == -ENOTSUP) {
    snprintf(w->out->why, sizeof w->out->why, "%.399s", w->error->text);
    w->error->text[0] = '\0';
    w->out->goal.budget_bytes = budget_bytes;
    w->out->goal.limit_bytes = budget_bytes;
    w->out->goal.limit = budget_bytes ? SL_LIMIT_budget : SL_LIMIT_none;
    return 0;
  }
  if (r == 0)
    r = sl_goal_limit(&w->out->goal, &w->recorded, budget_bytes, w->error);
  return r < 0 ? r : bench_make(w);
}

int sl_advise_run(struct sl_db *db, uint32_t rank, int64_t at_ns, uint64_t budget_bytes, struct sl_advise *out,
                  struct sl_error *error) {
  struct work w = {.db = db, .out = out, .error = error};
  *out = (struct sl_advise){.rest = {.as_step = -1}, .from_step = -1};
  int r = sl_goal_read(db, rank, at_ns, &out->goal, error);
  if (r == 0)
    r = held_make(&w);
  if (r == 0)
    r = predictions_begin(&w, budget_bytes);
  if (r == 0)
    missing_set(out);
  for (int i = 0; i < sl_candidate_count && r == 0; i++)
    r = single_try(&w, &sl_candidates[i]);
  const bool grows = out->goal.is_refused && out->growth_bytes;
  if (r == 0 && grows)
    growth_judge(out);
  if (r == 0 && !grows && w.has_bench && out->goal.limit_bytes && !out->fits_already &&
      out->rest.rest != SL_REST_unknown)
    r = together(&w);
  if (r == 0)
    r = verdict_take(&w);
  if (r == 0)
    sort(out);
  free(w.sweeps[0]);
  free(w.sweeps[1]);
  sl_replay_free(&w.unchanged);
  sl_tape_free(&w.tape);
  sl_tape_free(&w.recorded);
  if (r < 0)
    sl_advise_free(out);
  return r;
}
