/* Plays one rank's tape with changes, and says whether it fits. */
#include "trial.h"

#include "storage/allocator/allocator_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { REQUESTED, ALLOCATED, FEW_PLAYS = 4 }; /* few: for what does not fit anyhow */

static void range_join(struct sl_whatif_range *range, const struct sl_whatif_range *other) {
  if (other->low > range->low)
    range->low = other->low;
  if (other->high > range->high)
    range->high = other->high;
}

/*
 * The highest of the periods in which the limit holds. What is not recorded to its end is a bound, and what rests on
 * how another step went on is no proof.
 */
static void figures_read(const struct sl_bench *bench, const struct sl_whatif *answer, struct sl_whatif_range out[],
                         enum sl_standing standing[]) {
  for (int i = 0; i < SL_QUANTITIES; i++) {
    out[i] = (struct sl_whatif_range){0};
    for (size_t p = bench->from_period; p < answer->reached; p++)
      range_join(&out[i], &answer->peaks[i][p]);
    standing[i] = sl_whatif_standing(answer, i, SIZE_MAX);
    if (bench->rest->rest == SL_REST_unknown)
      standing[i] = SL_STANDING_bound;
    else if (bench->rest->rest != SL_REST_recorded && standing[i] < SL_STANDING_estimate)
      standing[i] = SL_STANDING_estimate;
    else if (standing[i] == SL_STANDING_exact && out[i].low != out[i].high)
      standing[i] = SL_STANDING_bound; /* both ends meet in the highest period of all, but not in these */
  }
  /* Other requests between both ends may leave less beside them than these did. */
  if (answer->is_doubtful && answer->has_ends && out[REQUESTED].low < out[ALLOCATED].low)
    out[ALLOCATED].low = out[REQUESTED].low;
}

enum room { ROOM_without_end, ROOM_limit, ROOM_life, ROOM_most };

static uint64_t limit_of(const struct sl_goal *goal, enum room room) {
  switch (room) {
  case ROOM_limit: return goal->limit_bytes;
  case ROOM_life: return goal->limit_life;
  case ROOM_most: return goal->limit_most;
  default: return 0;
  }
}

static int ask(const struct sl_bench *bench, const struct sl_tape *changed, const char *conf, enum room room,
               unsigned plays, struct sl_whatif *out) {
  const struct sl_goal *goal = bench->goal;
  const bool has_limit = room != ROOM_without_end && goal->limit_bytes,
             is_late = room == ROOM_limit || (room == ROOM_without_end && !goal->limit_life);
  const struct sl_whatif_change change = {
      .alloc_conf = conf,
      .limit_bytes = has_limit ? limit_of(goal, room) : 0,
      .limit_event = !has_limit ? 0
                     : is_late  ? goal->limit_event
                                : goal->life_event,
      .room_without_end = !has_limit,
      .most_plays = plays,
      .unchanged = is_late ? bench->unchanged : bench->life,
  };
  return sl_whatif_ask(bench->tape, changed, &change, out);
}

int sl_bench_need(const struct sl_bench *bench, struct sl_advise *out) {
  struct sl_whatif answer = {0};
  if (bench->rest->rest == SL_REST_recorded) {
    for (int i = 0; i < SL_QUANTITIES; i++)
      out->need[i] = (struct sl_whatif_range){bench->unchanged->highest[i].bytes, bench->unchanged->highest[i].bytes};
    return 0; /* as it was: exact */
  }
  int r = ask(bench, NULL, NULL, ROOM_without_end, FEW_PLAYS, &answer);
  if (r == 0 && answer.standing == SL_STANDING_refused)
    snprintf(out->why, sizeof out->why, "%.399s", answer.reason);
  else if (r == 0)
    figures_read(bench, &answer, out->need, out->need_standing);
  sl_whatif_free(&answer);
  return r;
}

int sl_bench_limited(const struct sl_bench *bench, struct sl_advise *out, bool *is_refused) {
  struct sl_whatif answer = {0};
  int r = ask(bench, NULL, NULL, ROOM_limit, 1, &answer);
  *is_refused =
      r == 0 && (bench->rest->rest == SL_REST_unknown ? answer.end != SL_END_served : answer.end == SL_END_refused);
  if (r == 0 && answer.standing == SL_STANDING_refused)
    snprintf(out->why, sizeof out->why, "%.399s", answer.reason);
  out->fits_already = r == 0 && answer.standing != SL_STANDING_refused && answer.end == SL_END_all && !*is_refused;
  out->retries = answer.retries;
  sl_whatif_free(&answer);
  return r;
}

/* ---- a trial ---- */

/* The recorded settings with those of the parts: "" where they are not changed. */
static void conf_join(const struct sl_bench *bench, const struct sl_advice *advice, char *out, size_t size) {
  size_t length = 0;
  *out = '\0';
  for (int i = 0; i < advice->part_count; i++)
    if (*advice->parts[i]->conf && length < size)
      length += (size_t)snprintf(out + length, size - length, "%s%s", length ? "," : "", advice->parts[i]->conf);
  if (length && *bench->tape->config && length < size)
    snprintf(out + length, size - length, ",%s", bench->tape->config);
}

static int refuse(struct sl_advice *advice, const char *why) {
  snprintf(advice->why, sizeof advice->why, "%.399s", why);
  advice->fits = SL_FITS_refused;
  return 0;
}

/*
 * How a run goes on tells what it asks for. When its modules run is known of a step's rest, but not when they are
 * resharded; otherwise all of that has to be over: in what was not recorded only the optimizer steps.
 */
static const char *calls_miss(const struct sl_bench *bench, const struct sl_candidate *part) {
  const struct sl_tape *tape = bench->tape;
  if (bench->rest->rest == SL_REST_unknown)
    return "what its modules would have done after the refused request is not known";
  if (tape->rest.is_one && part->turn != SL_TURN_reshard)
    return NULL;
  for (size_t i = tape->recorded_count; i < tape->allocation_count; i++)
    if (!tape->allocations[i].optimizer_step)
      return "when its modules would have run after the refused request is not known";
  return NULL;
}

static int parts_apply(const struct sl_bench *bench, const struct sl_advice *advice, bool at_latest,
                       struct sl_tape *out, struct sl_error *error) {
  const struct sl_apply with = {.db = bench->db, .at_latest = at_latest};
  int r = sl_tape_copy(bench->tape, out);
  for (int turn = 0; turn < SL_TURNS; turn++)
    for (int i = 0; i < advice->part_count && r == 0; i++)
      if (advice->parts[i]->apply && (int)advice->parts[i]->turn == turn)
        r = advice->parts[i]->apply(&with, out, error);
  return r;
}

/* The tape with the parts that change requests, at both ends where they leave something open. *out stays empty where
 * none does. */
static int tape_change(const struct sl_bench *bench, struct sl_advice *advice, struct sl_tape *out) {
  struct sl_error error = {.text = ""};
  struct sl_tape most = {0};
  bool any = false, has_ends = false;
  for (int i = 0; i < advice->part_count; i++) {
    const struct sl_candidate *part = advice->parts[i];
    const char *why = part->needs_calls ? calls_miss(bench, part) : NULL;
    if (why)
      return refuse(advice, why);
    any |= part->apply != NULL;
    has_ends |= part->needs_calls;
  }
  if (!any)
    return 0;
  int r = parts_apply(bench, advice, false, out, &error);
  if (r == 0 && has_ends)
    r = parts_apply(bench, advice, true, &most, &error);
  if (r == 0 && has_ends)
    r = sl_changes_join(out, &most);
  sl_tape_free(&most);
  return r == -ENOTSUP || r == -ENODATA ? refuse(advice, error.text) : r;
}

/* A tape that is not gone on with ends as it did where its refused request is refused again. */
static enum sl_fits fits_of(const struct sl_bench *bench, const struct sl_whatif *answer) {
  const bool is_open = bench->rest->rest == SL_REST_unknown;
  if (answer->end == SL_END_refused || (is_open && !answer->ends_surely))
    return answer->ends_surely ? SL_FITS_no : SL_FITS_plays;
  if (answer->end == SL_END_served)
    return SL_FITS_past;
  return is_open ? SL_FITS_no : SL_FITS_yes;
}

static bool is_served(enum sl_fits fits) {
  return fits == SL_FITS_yes || fits == SL_FITS_past;
}

/* What comes out where the limit held from either event on: both belong to what can be said. */
static void figures_join(const struct sl_bench *bench, const struct sl_whatif *answer, struct sl_advice *advice) {
  struct sl_whatif_range range[SL_QUANTITIES];
  enum sl_standing standing[SL_QUANTITIES];
  figures_read(bench, answer, range, standing);
  for (int i = 0; i < SL_QUANTITIES; i++) {
    struct sl_whatif_range *after = &advice->after[i];
    const bool is_same = after->low == range[i].low && after->high == range[i].high;
    if (advice->standing[i] == SL_STANDING_exact && (!is_same || standing[i] != SL_STANDING_exact))
      advice->standing[i] = SL_STANDING_estimate;
    after->low = range[i].low < after->low ? range[i].low : after->low;
    after->high = range[i].high > after->high ? range[i].high : after->high;
  }
  advice->retries = answer->retries > advice->retries ? answer->retries : advice->retries;
}

static void figures_take(const struct sl_bench *bench, const struct sl_whatif *answer, struct sl_advice *advice) {
  figures_read(bench, answer, advice->after, advice->standing);
  advice->plays = answer->plays;
  advice->refused_plays = answer->out_of_memory;
  advice->retries = answer->retries;
}

/* One more limit that it may have been. */
static int other_ask(const struct sl_bench *bench, const struct sl_tape *changed, const char *conf, unsigned plays,
                     enum room room, struct sl_advice *advice) {
  struct sl_whatif answer = {0};
  int r = ask(bench, changed, conf, room, plays, &answer);
  const bool is_answer = r == 0 && answer.standing != SL_STANDING_refused;
  const bool fits = is_answer && is_served(fits_of(bench, &answer));
  if (is_answer && room == ROOM_life && is_served(advice->fits)) {
    figures_join(bench, &answer, advice);
    advice->plays += answer.plays;
    advice->refused_plays += answer.out_of_memory;
    advice->fits = fits ? advice->fits : SL_FITS_plays;
  } else if (fits) {
    figures_take(bench, &answer, advice);
    advice->fits = room == ROOM_life ? SL_FITS_life : SL_FITS_limit;
  }
  sl_whatif_free(&answer);
  return r;
}

/* A larger limit leaves more reserved before cached segments are given back for it. */
static int most_ask(const struct sl_bench *bench, const struct sl_tape *changed, const char *conf, unsigned plays,
                    struct sl_advice *advice) {
  struct sl_whatif answer = {0};
  int r = ask(bench, changed, conf, ROOM_most, plays, &answer);
  if (r == 0 && answer.standing != SL_STANDING_refused)
    figures_join(bench, &answer, advice);
  sl_whatif_free(&answer);
  return r;
}

/* Under the least that the limit may be, from either event on; no is only what is none under the most either. */
static int limited_ask(const struct sl_bench *bench, const struct sl_tape *changed, const char *conf, unsigned plays,
                       struct sl_advice *advice) {
  const struct sl_goal *goal = bench->goal;
  struct sl_whatif answer = {0};
  int r = ask(bench, changed, conf, ROOM_limit, plays, &answer);
  if (r == 0 && answer.standing == SL_STANDING_refused) {
    refuse(advice, answer.reason);
  } else if (r == 0) {
    advice->fits = fits_of(bench, &answer);
    figures_take(bench, &answer, advice);
  }
  sl_whatif_free(&answer);
  if (r == 0 && advice->fits != SL_FITS_refused && goal->limit_life)
    r = other_ask(bench, changed, conf, plays, ROOM_life, advice);
  if (r < 0 || advice->fits == SL_FITS_refused || goal->limit_most <= goal->limit_bytes)
    return r;
  return advice->fits == SL_FITS_no ? other_ask(bench, changed, conf, plays, ROOM_most, advice)
                                    : most_ask(bench, changed, conf, plays, advice);
}

static void settings_have(const struct sl_bench *bench, struct sl_advice *advice) {
  struct sl_allocator_config config;
  sl_allocator_config_parse(bench->tape->config, &config);
  for (int i = 0; i < advice->part_count; i++)
    if (strstr(advice->parts[i]->conf, "expandable_segments:True") && config.expandable_segments)
      refuse(advice, "the run has it already");
}

int sl_trial(const struct sl_bench *bench, unsigned plays, struct sl_advice *advice) {
  struct sl_tape changed = {0};
  struct sl_whatif free_room = {0};
  char conf[512];
  advice->is_predicted = true;
  settings_have(bench, advice);
  if (advice->fits == SL_FITS_refused)
    return 0;
  int r = tape_change(bench, advice, &changed);
  if (r < 0 || advice->fits == SL_FITS_refused)
    goto finish;
  conf_join(bench, advice, conf, sizeof conf);
  const struct sl_tape *tape = changed.event_count ? &changed : NULL;
  r = limited_ask(bench, tape, *conf ? conf : NULL, plays, advice);
  if (r < 0 || advice->fits != SL_FITS_no)
    goto finish;
  /* Cut off where it was refused, it says nothing of what is needed. */
  r = ask(bench, tape, *conf ? conf : NULL, ROOM_without_end, FEW_PLAYS, &free_room);
  if (r == 0 && free_room.standing != SL_STANDING_refused)
    figures_read(bench, &free_room, advice->after, advice->standing);
  if (r == 0 && tape && tape->most && advice->after[ALLOCATED].low <= bench->goal->limit_most)
    refuse(advice, "whether it fits depends on where blocks are put, which is known at both ends only");
finish:
  sl_whatif_free(&free_room);
  sl_tape_free(&changed);
  return r;
}
