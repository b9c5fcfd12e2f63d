#include "trial.h"

#include "storage/allocator/allocator_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FEW_PLAYS = 4 }; /* for what does not fit anyhow */

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
    else if (bench->rest->rest != SL_REST_recorded && standing[i] == SL_STANDING_exact)
      standing[i] = SL_STANDING_estimate;
  }
}

enum room { ROOM_without_end, ROOM_limit, ROOM_life };

static int ask(const struct sl_bench *bench, const struct sl_tape *changed, const char *conf, enum room room,
               unsigned plays, struct sl_whatif *out) {
  const bool has_limit = room != ROOM_without_end && bench->goal->limit_bytes;
  const struct sl_whatif_change change = {.alloc_conf = conf,
                                          .limit_bytes = !has_limit          ? 0
                                                         : room == ROOM_life ? bench->goal->limit_life
                                                                             : bench->goal->limit_bytes,
                                          .limit_event = has_limit && room == ROOM_limit ? bench->goal->limit_event : 0,
                                          .room_without_end = !has_limit,
                                          .most_plays = plays,
                                          .unchanged = bench->unchanged};
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
    snprintf(out->why, sizeof out->why, "%s", answer.reason);
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
    snprintf(out->why, sizeof out->why, "%s", answer.reason);
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
  snprintf(advice->why, sizeof advice->why, "%s", why);
  advice->fits = SL_FITS_refused;
  return 0;
}

/* The tape with the parts that change requests. *out stays empty where none does. */
static int tape_change(const struct sl_bench *bench, struct sl_advice *advice, struct sl_tape *out) {
  struct sl_error error = {.text = ""};
  int r = 0;
  for (int i = 0; i < advice->part_count && r == 0; i++) {
    if (!advice->parts[i]->apply)
      continue;
    if (!out->event_count)
      r = sl_tape_copy(bench->tape, out);
    if (r == 0)
      r = advice->parts[i]->apply(out, &error);
  }
  return r == -ENOTSUP ? refuse(advice, error.text) : r;
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

/* Under the limit, and where that is too little under what it was had it held from the beginning. */
static int limited_ask(const struct sl_bench *bench, const struct sl_tape *changed, const char *conf, unsigned plays,
                       struct sl_advice *advice, struct sl_whatif *out) {
  struct sl_whatif life = {0};
  int r = ask(bench, changed, conf, ROOM_limit, plays, out);
  if (r < 0 || out->standing == SL_STANDING_refused)
    return r;
  advice->fits = fits_of(bench, out);
  if (advice->fits == SL_FITS_yes || advice->fits == SL_FITS_past || !bench->goal->limit_life)
    return 0;
  r = ask(bench, changed, conf, ROOM_life, plays, &life);
  const enum sl_fits fits = r < 0 || life.standing == SL_STANDING_refused ? SL_FITS_no : fits_of(bench, &life);
  if (fits != SL_FITS_yes && fits != SL_FITS_past) {
    sl_whatif_free(&life);
    return r;
  }
  advice->fits = SL_FITS_life;
  sl_whatif_free(out);
  *out = life;
  return 0;
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
  struct sl_whatif limited = {0}, free_room = {0};
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
  r = limited_ask(bench, tape, *conf ? conf : NULL, plays, advice, &limited);
  if (r < 0)
    goto finish;
  if (limited.standing == SL_STANDING_refused) {
    refuse(advice, limited.reason);
    goto finish;
  }
  advice->plays = limited.plays;
  advice->refused_plays = limited.out_of_memory;
  advice->retries = limited.retries;
  figures_read(bench, &limited, advice->after, advice->standing);
  if (advice->fits != SL_FITS_no)
    goto finish;
  /* Cut off where it was refused, it says nothing of what is needed. */
  r = ask(bench, tape, *conf ? conf : NULL, ROOM_without_end, FEW_PLAYS, &free_room);
  if (r == 0 && free_room.standing != SL_STANDING_refused)
    figures_read(bench, &free_room, advice->after, advice->standing);
finish:
  sl_whatif_free(&limited);
  sl_whatif_free(&free_room);
  sl_tape_free(&changed);
  return r;
}
