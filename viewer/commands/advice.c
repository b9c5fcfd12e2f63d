/* Prints what would make a run fit, for `advise` and `oom`. */
#include "commands/advice.h"

#include "output/units.h"

#include <inttypes.h>
#include <string.h>

enum { REQUESTED = 0, ALLOCATED = 1, RESERVED = 3 };

static const char *const limits[] = {"none", "budget", "process", "device"};
static const char *const rests[] = {"recorded", "step", "optimizer", "unknown"};
static const char *const fits_in_data[] = {"yes",  "life",    "while",  "plays", "limit",
                                           "past", "perhaps", "hardly", "no",    "refused"};
static const char *const suffices[] = {"something", "unknown", "nothing"};
static const char *const standings[] = {"exact", "bound", "estimate", "refused"};

static const struct sl_column columns[] = {
    {"advice", "Advice", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"what", "What would help", SL_UNIT_text, SL_COLUMN_SENTENCE},
    {"fits", "Fits", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"fits_words", "Fits", SL_UNIT_text, 0},
    {"about_bytes", "Is about", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"before_bytes", "Before", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"after_bytes", "After", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"after_most_bytes", "At most", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"standing", "Standing", SL_UNIT_text, 0},
    {"cost_ns", "Cost", SL_UNIT_duration, SL_COLUMN_DATA_ONLY},
    {"costs", "Time a step", SL_UNIT_text, SL_COLUMN_SENTENCE},
    {"counted", "Counted", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"requested_after_bytes", "Requested", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
    {"requested_after_most_bytes", "at most", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
    {"requested_standing", "Standing", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"reserved_after_bytes", "Reserved", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
    {"reserved_after_most_bytes", "at most", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
    {"reserved_standing", "Standing", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"lasts_steps", "Steps", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"plays", "Plays", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"refused_plays", "Refused", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"retries", "Retries", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"whatif", "As whatif has it", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"code", "Code", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"why", "Why", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
};

/* ---- one advice ---- */

static const char *fits_say(const struct sl_advise *advise, const struct sl_advice *item, char out[static 80]) {
  char limit[SL_UNIT_CHARS];
  switch (item->fits) {
  case SL_FITS_yes: snprintf(out, 80, "%s", advise->goal.limit_bytes ? "yes" : "-"); break;
  case SL_FITS_life:
    snprintf(out, 80,
             advise->rest.rest == SL_REST_unknown ? "past this request, if the limit held all along"
                                                  : "if the limit held all along");
    break;
  case SL_FITS_while: snprintf(out, 80, "for %" PRIu64 " more steps at most", item->lasts_steps); break;
  case SL_FITS_plays:
    if (advise->rest.rest == SL_REST_unknown)
      snprintf(out, 80, "in some plays");
    else
      snprintf(out, 80, "in %u of %u plays", item->plays - item->refused_plays, item->plays);
    break;
  case SL_FITS_limit:
    sl_format_bytes(limit, (int64_t)advise->goal.limit_bytes, false);
    snprintf(out, 80, "if the limit is above %s", limit);
    break;
  case SL_FITS_past: snprintf(out, 80, "past this request"); break;
  case SL_FITS_perhaps: snprintf(out, 80, "%s", advise->missing_bytes ? "perhaps" : "-"); break;
  case SL_FITS_hardly: snprintf(out, 80, "hardly"); break;
  case SL_FITS_no: snprintf(out, 80, "no"); break;
  default: snprintf(out, 80, "not known");
  }
  return out;
}

/* Of a rest that is not known no more is told than that the request is served. */
static const char *fits_word(const struct sl_advise *advise, const struct sl_advice *item) {
  const bool is_open = advise->rest.rest == SL_REST_unknown;
  return fits_in_data[is_open && item->fits == SL_FITS_life ? SL_FITS_past : item->fits];
}

/* Of a rest that is not known nothing is told but that the request is served. */
static bool has_figures(const struct sl_advise *advise, const struct sl_advice *item) {
  return item->is_predicted && item->fits != SL_FITS_refused &&
         (advise->rest.rest != SL_REST_unknown || item->fits == SL_FITS_past || item->fits == SL_FITS_life);
}

static void range_cells(struct sl_table *table, const struct sl_advise *advise, const struct sl_advice *item,
                        int quantity) {
  const struct sl_whatif_range *range = &item->after[quantity];
  if (!has_figures(advise, item)) {
    sl_cell_null(table);
    sl_cell_null(table);
    return;
  }
  sl_cell_int(table, (int64_t)range->low);
  if (range->high == range->low)
    sl_cell_null(table);
  else
    sl_cell_int(table, (int64_t)range->high);
}

/* What a fact is about is no more than that; what comes of it is not predicted. */
static const char *standing_word(const struct sl_advice *item, int quantity) {
  if (!item->is_predicted)
    return "not predicted";
  return standings[item->fits == SL_FITS_refused ? SL_STANDING_refused : item->standing[quantity]];
}

static void number_cell(struct sl_table *table, bool is_known, int64_t number) {
  if (is_known)
    sl_cell_int(table, number);
  else
    sl_cell_null(table);
}

static void text_cell(struct sl_table *table, const char *text) {
  sl_cell_text(table, *text ? text : NULL);
}

static void advice_row(struct sl_table *table, const struct sl_advise *advise, const struct sl_advice *item) {
  char word[200], fits[80];
  const bool predicted = item->is_predicted && item->fits != SL_FITS_refused;
  sl_cell_text(table, sl_advice_word(item, word, sizeof word));
  sl_cell_text(table, item->text);
  sl_cell_text(table, fits_word(advise, item));
  sl_cell_text(table, fits_say(advise, item, fits));
  number_cell(table, item->about_bytes, (int64_t)item->about_bytes);
  number_cell(table, has_figures(advise, item), (int64_t)advise->need[ALLOCATED].high);
  range_cells(table, advise, item, ALLOCATED);
  sl_cell_text(table, standing_word(item, ALLOCATED));
  number_cell(table, item->cost.ns >= 0, item->cost.ns);
  sl_cell_text(table, item->cost.words);
  text_cell(table, item->counted);
  range_cells(table, advise, item, REQUESTED);
  sl_cell_text(table, standing_word(item, REQUESTED));
  range_cells(table, advise, item, RESERVED);
  sl_cell_text(table, standing_word(item, RESERVED));
  number_cell(table, item->fits == SL_FITS_while, (int64_t)item->lasts_steps);
  number_cell(table, predicted, item->plays);
  number_cell(table, predicted, item->refused_plays);
  number_cell(table, predicted, (int64_t)item->retries);
  text_cell(table, item->options);
  text_cell(table, item->code);
  text_cell(table, item->why);
}

/* Text has no row for what can't help. */
static bool is_shown(const struct sl_output *out, const struct sl_advice *item) {
  return out->format != SL_FORMAT_text || (item->fits != SL_FITS_refused && (!item->is_predicted || !*item->why));
}

void sl_print_advice(struct sl_output *out, const struct sl_advise *advise) {
  bool any = out->format != SL_FORMAT_text;
  for (size_t i = 0; i < advise->count && !any; i++)
    any = is_shown(out, &advise->items[i]);
  if (!any) {
    sl_output_line(out, "Nothing that is known of would help");
    return;
  }
  struct sl_table *table = sl_table_begin(out, "advice", SL_COLUMNS(columns));
  for (size_t i = 0; i < advise->count; i++)
    if (is_shown(out, &advise->items[i]))
      advice_row(table, advise, &advise->items[i]);
  table = sl_table_end(table);
}

void sl_print_no_advice(struct sl_output *out, const struct sl_advise *advise) {
  static const struct sl_column no_columns[] = {{"what", "What can't help", SL_UNIT_text, SL_COLUMN_SENTENCE},
                                                {"why", "Why", SL_UNIT_text, SL_COLUMN_SENTENCE}};
  struct sl_table *table = NULL;
  if (out->format != SL_FORMAT_text)
    return;
  for (size_t i = 0; i < advise->count; i++) {
    if (is_shown(out, &advise->items[i]))
      continue;
    if (!table) {
      sl_output_line(out, "%s", "");
      table = sl_table_begin(out, "no_advice", SL_COLUMNS(no_columns));
    }
    sl_cell_text(table, advise->items[i].text);
    sl_cell_text(table, advise->items[i].why);
  }
  table = sl_table_end(table);
}

/* ---- what has to be reached ---- */

static void limit_print(struct sl_output *out, const struct sl_goal *goal) {
  char limit[SL_UNIT_CHARS], other[SL_UNIT_CHARS], life[SL_UNIT_CHARS];
  sl_format_bytes(limit, (int64_t)goal->limit_bytes, out->exact_bytes);
  switch (goal->limit) {
  case SL_LIMIT_budget:
    sl_format_bytes(other, (int64_t)goal->own_bytes, out->exact_bytes);
    sl_output_line(out, "     PyTorch may take %s of the budget; %s%s", limit, goal->own_bytes ? other : "",
                   goal->own_bytes ? " are the CUDA context's, NCCL's and other libraries'"
                                   : "what CUDA itself takes is not known, and counts as nothing");
    break;
  case SL_LIMIT_process:
    sl_format_bytes(other, (int64_t)goal->limit_most, out->exact_bytes);
    sl_format_bytes(life, (int64_t)goal->limit_life, out->exact_bytes);
    sl_output_line(
        out, "     PyTorch may take %s%s%s: a limit of the process, which the refused request tells (%s at most)",
        limit, goal->limit_life ? ", or, if that held all along, " : "", goal->limit_life ? life : "", other);
    break;
  case SL_LIMIT_device: sl_output_line(out, "     PyTorch may take %s of the device", limit); break;
  default:
    if (!goal->is_refused)
      sl_output_line(out, "     How much it may take is not known: --budget tells");
  }
}

/* "if step 2 went on as step 1 did" */
static const char *rest_say(const struct sl_advise *advise, char out[static 120]) {
  *out = '\0';
  if (advise->rest.rest == SL_REST_step)
    snprintf(out, 120, ", if step %" PRId64 " goes on as step %" PRId64 " did", advise->goal.step,
             advise->rest.as_step);
  if (advise->rest.rest == SL_REST_optimizer)
    snprintf(out, 120, ", when AdamW has made the states of all parameters, with foreach");
  return out;
}

static void need_print(struct sl_output *out, const struct sl_advise *advise) {
  char allocated[SL_UNIT_CHARS], missing[SL_UNIT_CHARS], rest[120];
  const bool is_range = advise->need[ALLOCATED].low != advise->need[ALLOCATED].high;
  sl_format_bytes(allocated, (int64_t)advise->need[ALLOCATED].high, out->exact_bytes);
  sl_format_bytes(missing, (int64_t)advise->missing_bytes, out->exact_bytes);
  if (*advise->why)
    sl_output_line(out, "     Nothing is predicted: %s", advise->why);
  else if (advise->rest.rest == SL_REST_unknown)
    sl_output_line(out, "     What it would have asked for next is not known: %s", advise->rest.why);
  else
    sl_output_line(out, "     It needs %s%s allocated%s (%s)", is_range ? "up to " : "", allocated,
                   rest_say(advise, rest), standings[advise->need_standing[ALLOCATED]]);
  if (advise->fits_already && !advise->retries)
    sl_output_line(out, "     So it fits as it is");
  else if (advise->fits_already)
    sl_output_line(out, "     So it fits as it is, with cached segments given back %" PRIu64 " times, which costs time",
                   advise->retries);
  else if (advise->missing_bytes)
    sl_output_line(out, "     At least %s are missing", missing);
}

/* That nothing is enough, or known to be, and why; and what is left then. */
static void verdict_print(struct sl_output *out, const struct sl_advise *advise) {
  const struct sl_verdict *verdict = &advise->verdict;
  const bool is_proven_by_it = verdict->suffices == SL_SUFFICES_nothing;
  char least[SL_UNIT_CHARS], kept[SL_UNIT_CHARS], beside[SL_UNIT_CHARS], left[SL_UNIT_CHARS];
  if (verdict->suffices == SL_SUFFICES_something)
    return;
  sl_output_styled(out, SL_STYLE_red, "     Nothing %s enough",
                   is_proven_by_it ? "that is known of is" : "is known to be");
  if (verdict->beside && (is_proven_by_it || !verdict->is_estimate))
    sl_output_line(out, "     Whatever is changed, it needs %s at least (%s): %s %s, and %s for %s",
                   sl_format_bytes(least, (int64_t)verdict->least_bytes, out->exact_bytes),
                   standings[verdict->is_estimate ? SL_STANDING_estimate : SL_STANDING_bound],
                   sl_format_bytes(kept, (int64_t)verdict->kept_bytes, out->exact_bytes),
                   verdict->is_estimate ? "of parameters and buffers" : "that the setup has made",
                   sl_format_bytes(beside, (int64_t)verdict->beside_bytes, out->exact_bytes), verdict->beside);
  if (verdict->beside && !is_proven_by_it && !verdict->is_estimate)
    sl_output_line(out, "     That leaves %s at most for the rest of the setup and for all steps",
                   sl_format_bytes(left, (int64_t)(advise->goal.limit_most - verdict->least_bytes), out->exact_bytes));
  sl_output_line(out, "     What is left: a device with more memory, or %s",
                 verdict->is_sharded ? "more ranks ('shardledger whatif --world-size N')"
                                     : "FSDP2 over more ranks ('shardledger rehearse --world-size N')");
}

void sl_print_goal(struct sl_output *out, const struct sl_advise *advise) {
  limit_print(out, &advise->goal);
  need_print(out, advise);
  verdict_print(out, advise);
}

/* What the setting that avoids most of it was played to reserve, of what was recorded to its end; NULL: it was not. */
static const struct sl_advice *expandable_find(const struct sl_advise *advise) {
  for (size_t i = 0; i < advise->count && advise->rest.rest == SL_REST_recorded; i++) {
    const struct sl_advice *item = &advise->items[i];
    if (item->part_count == 1 && *item->parts[0]->conf && has_figures(advise, item))
      return item;
  }
  return NULL;
}

void sl_print_floor(struct sl_output *out, const struct sl_advise *advise) {
  char reserved[SL_UNIT_CHARS], least[SL_UNIT_CHARS], plan[SL_UNIT_CHARS], avoided[SL_UNIT_CHARS];
  const struct sl_advice *expandable = expandable_find(advise);
  if (!advise->has_floor)
    return;
  const uint64_t avoidable =
      advise->floor_reserved > advise->floor.plan_bytes ? advise->floor_reserved - advise->floor.plan_bytes : 0;
  sl_format_bytes(reserved, (int64_t)advise->floor_reserved, out->exact_bytes);
  sl_format_bytes(least, (int64_t)advise->floor.least_bytes, out->exact_bytes);
  sl_format_bytes(plan, (int64_t)advise->floor.plan_bytes, out->exact_bytes);
  sl_output_line(
      out,
      "Fragmentation: %s were reserved at the most; any placement of what was asked for needs %s, and one is "
      "known that takes %s",
      reserved, least, plan);
  if (avoidable)
    sl_output_line(out, "     So %s at least could be avoided",
                   sl_format_bytes(avoided, (int64_t)avoidable, out->exact_bytes));
  if (avoidable && expandable)
    sl_output_line(out, "     With %s %s are reserved (%s)", expandable->text,
                   sl_format_bytes(reserved, (int64_t)expandable->after[RESERVED].high, out->exact_bytes),
                   standings[expandable->standing[RESERVED]]);
}

void sl_print_goal_row(struct sl_output *out, const struct sl_advise *advise) {
  static const struct sl_column goal_columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"at_ns", "At", SL_UNIT_instant, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"refused_bytes", "Refused", SL_UNIT_bytes, 0},
      {"limit", "Limit", SL_UNIT_text, 0},
      {"limit_bytes", "Bytes", SL_UNIT_bytes, 0},
      {"limit_life_bytes", "All along", SL_UNIT_bytes, 0},
      {"limit_most_bytes", "At most", SL_UNIT_bytes, 0},
      {"missing_bytes", "Missing", SL_UNIT_bytes, 0},
      {"from_step", "From step", SL_UNIT_number, 0},
      {"rest", "Goes on", SL_UNIT_text, 0},
      {"as_step", "As step", SL_UNIT_number, 0},
      {"needs_allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"needs_reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"needs_standing", "Standing", SL_UNIT_text, 0},
      {"fits_already", "Fits", SL_UNIT_number, 0},
      {"suffices", "Suffices", SL_UNIT_text, 0},
      {"least_bytes", "At least", SL_UNIT_bytes, 0},
      {"least_standing", "Standing", SL_UNIT_text, 0},
      {"floor_bytes", "Floor", SL_UNIT_bytes, 0},
      {"plan_bytes", "Plan", SL_UNIT_bytes, 0},
      {"why", "Why", SL_UNIT_text, 0},
  };
  const struct sl_goal *goal = &advise->goal;
  const bool known = !*advise->why;
  struct sl_table *table = sl_table_begin(out, "goal", SL_COLUMNS(goal_columns));
  sl_cell_int(table, goal->rank);
  number_cell(table, goal->is_refused, goal->at_ns);
  number_cell(table, goal->step >= 0, goal->step);
  number_cell(table, goal->is_refused, (int64_t)goal->refused_bytes);
  sl_cell_text(table, limits[goal->limit]);
  number_cell(table, goal->limit_bytes, (int64_t)goal->limit_bytes);
  number_cell(table, goal->limit_life, (int64_t)goal->limit_life);
  number_cell(table, goal->limit_most, (int64_t)goal->limit_most);
  sl_cell_int(table, (int64_t)advise->missing_bytes);
  number_cell(table, advise->from_step >= 0, advise->from_step);
  sl_cell_text(table, rests[advise->rest.rest]);
  number_cell(table, advise->rest.rest == SL_REST_step, advise->rest.as_step);
  number_cell(table, known, (int64_t)advise->need[ALLOCATED].high);
  number_cell(table, known, (int64_t)advise->need[RESERVED].high);
  sl_cell_text(table, known ? standings[advise->need_standing[ALLOCATED]] : NULL);
  sl_cell_int(table, advise->fits_already);
  sl_cell_text(table, suffices[advise->verdict.suffices]);
  number_cell(table, advise->verdict.least_bytes, (int64_t)advise->verdict.least_bytes);
  sl_cell_text(table, !advise->verdict.least_bytes
                          ? NULL
                          : standings[advise->verdict.is_estimate ? SL_STANDING_estimate : SL_STANDING_bound]);
  number_cell(table, advise->has_floor, (int64_t)advise->floor.least_bytes);
  number_cell(table, advise->has_floor, (int64_t)advise->floor.plan_bytes);
  text_cell(table, known ? advise->rest.why : advise->why);
  table = sl_table_end(table);
}
