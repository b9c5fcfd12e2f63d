/* `shardledger whatif`: what a run would take after a change. */
#include "commands/summary.h"
#include "commands/whatif_nccl.h"
#include "commands/whatif_question.h"
#include "output/units.h"
#include "storage/grow.h"
#include "storage/predict/replay/floor.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 }; /* of more, one of each group speaks */
enum { MOST_NOTES = 8 }; /* below a table, unless --limit says otherwise */

static const char *const quantities[SL_QUANTITIES] = {"requested", "allocated", "active", "reserved"};
enum { ALLOCATED = 1, ACTIVE = 2 };

static const char *standing_word(enum sl_standing standing) {
  static const char *const words[] = {"exact", "bound", "estimate", "refused"};
  return words[standing];
}

static const struct sl_column peak_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"figure", "Peak", SL_UNIT_text, 0},
    {"before_bytes", "Before", SL_UNIT_bytes, 0},
    {"after_bytes", "After", SL_UNIT_bytes, 0},
    {"after_most_bytes", "At most", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"change_bytes", "Change", SL_UNIT_change, 0},
    {"standing", "Standing", SL_UNIT_text, 0},
    {"before_where", "Before in", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"after_where", "After in", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"plays", "Plays", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"ends", "Ends", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"reason", "Why", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
};

static const struct sl_column period_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"period", "Period", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"kind", "Kind", SL_UNIT_text, 0},
    {"step", "Step", SL_UNIT_number, 0},
    {"figure", "Peak", SL_UNIT_text, 0},
    {"before_bytes", "Before", SL_UNIT_bytes, 0},
    {"after_bytes", "After", SL_UNIT_bytes, 0},
    {"after_most_bytes", "At most", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"change_bytes", "Change", SL_UNIT_change, 0},
    {"standing", "Standing", SL_UNIT_text, 0},
    {"plays", "Plays", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
};

static const struct sl_column category_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},           {"category", "Category", SL_UNIT_text, 0},
    {"before_bytes", "Before", SL_UNIT_bytes, 0},  {"after_bytes", "After", SL_UNIT_bytes, 0},
    {"change_bytes", "Change", SL_UNIT_change, 0},
};

static const char *period_say(const struct sl_tape_period *period, char out[static 40]) {
  if (strcmp(period->kind, "step") == 0)
    snprintf(out, 40, "step %" PRId64, period->step);
  else
    snprintf(out, 40, "%s", period->kind);
  return out;
}

/* "step 2, backward, blocks.0" */
static int where_say(struct sl_db *db, const struct sl_tape *tape, const struct sl_replay_peak *peak, char *out,
                     size_t size, struct sl_error *error) {
  const struct sl_tape_period *period = &tape->periods[peak->period];
  struct sl_statement *row = NULL;
  char name[40];
  int length = snprintf(out, size, "%s", period_say(period, name));
  if (peak->allocation == SIZE_MAX)
    return 0;
  int r = sl_db_ask_first(db, sl_sql_whatif_where, SL_WITH(SL_NUMBER(":id", tape->allocations[peak->allocation].id)),
                          &row, error);
  for (int i = 0; r > 0 && i < 2; i++)
    if (*sl_column_text(row, i) && length > 0 && (size_t)length < size)
      length += snprintf(out + length, size - (size_t)length, ", %s", sl_column_text(row, i));
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

/* A range that is one figure has no second one. */
static void cells_after(struct sl_table *table, uint64_t before, const struct sl_whatif_range *after, bool refused) {
  sl_cell_int(table, (int64_t)before);
  if (refused) {
    for (int i = 0; i < 3; i++)
      sl_cell_null(table);
    return;
  }
  sl_cell_int(table, (int64_t)after->low);
  if (after->high == after->low)
    sl_cell_null(table);
  else
    sl_cell_int(table, (int64_t)after->high);
  sl_cell_int(table, (int64_t)(after->high - before));
}

/* On how many plays an estimate rests. */
static void plays_cell(struct sl_table *table, const struct sl_whatif *answer, enum sl_standing standing) {
  if (standing == SL_STANDING_estimate)
    sl_cell_int(table, answer->plays);
  else
    sl_cell_null(table);
}

/* "1.23 GiB to 1.25 GiB", "1.23 GiB". */
static const char *range_say(const struct sl_whatif_range *range, bool exact_bytes, char *out, size_t size) {
  char low[SL_UNIT_CHARS], high[SL_UNIT_CHARS];
  sl_format_bytes(low, (int64_t)range->low, exact_bytes);
  sl_format_bytes(high, (int64_t)range->high, exact_bytes);
  snprintf(out, size, range->low == range->high ? "%s" : "%s to %s", low, high);
  return out;
}

static void reason_cell(struct sl_table *table, const struct sl_whatif *answer, int quantity,
                        enum sl_standing standing) {
  char text[1000], range[2 * SL_UNIT_CHARS + 8];
  if (standing == SL_STANDING_refused) {
    sl_cell_text(table, answer->reason);
  } else if (standing == SL_STANDING_estimate) {
    snprintf(text, sizeof text, "not proven; %u play%s gave %s; %s", answer->plays, answer->plays == 1 ? "" : "s",
             range_say(&answer->highest[quantity], true, range, sizeof range), answer->reason);
    sl_cell_text(table, text);
  } else {
    sl_cell_null(table);
  }
}

static const char *end_word(const struct sl_whatif *answer) {
  if (answer->standing == SL_STANDING_refused)
    return NULL;
  switch (answer->end) {
  case SL_END_refused: return answer->ends_surely ? "out of memory" : "out of memory, or not";
  case SL_END_served: return "served what failed";
  default: return "as recorded";
  }
}

static int peaks_print(struct sl_db *db, struct sl_table *table, const struct sl_tape *tape,
                       const struct sl_tape *changed, const struct sl_whatif *answer, struct sl_error *error) {
  const bool refused = answer->standing == SL_STANDING_refused;
  int r = 0;
  for (int i = 0; i < SL_QUANTITIES && r == 0; i++) {
    char before[256] = "", after[256] = "";
    if (i == ACTIVE)
      continue;
    r = where_say(db, tape, &answer->before.highest[i], before, sizeof before, error);
    if (r == 0 && !refused)
      r = where_say(db, changed, &answer->after.highest[i], after, sizeof after, error);
    sl_cell_int(table, tape->rank);
    sl_cell_text(table, quantities[i]);
    cells_after(table, answer->before.highest[i].bytes, &answer->highest[i], refused);
    const enum sl_standing standing = sl_whatif_standing(answer, i, SIZE_MAX);
    sl_cell_text(table, standing_word(standing));
    sl_cell_text(table, before);
    sl_cell_text(table, refused ? NULL : after);
    plays_cell(table, answer, standing);
    sl_cell_text(table, end_word(answer));
    reason_cell(table, answer, i, standing);
  }
  return r;
}

static void periods_print(struct sl_table *table, const struct sl_tape *tape, const struct sl_whatif *answer) {
  const bool refused = answer->standing == SL_STANDING_refused;
  for (size_t p = 0; p < tape->period_count; p++)
    for (int i = 0; i < SL_QUANTITIES; i++) {
      if (i == ACTIVE || (!refused && p >= answer->reached))
        continue;
      sl_cell_int(table, tape->rank);
      sl_cell_int(table, tape->periods[p].period);
      sl_cell_text(table, tape->periods[p].kind);
      if (tape->periods[p].step < 0)
        sl_cell_null(table);
      else
        sl_cell_int(table, tape->periods[p].step);
      sl_cell_text(table, quantities[i]);
      cells_after(table, ((const uint64_t *)&answer->before.peaks[p])[i], &answer->peaks[i][p], refused);
      const enum sl_standing standing = sl_whatif_standing(answer, i, p);
      sl_cell_text(table, standing_word(standing));
      plays_cell(table, answer, standing);
    }
}

/* ---- what stands below the table ---- */

struct note {
  enum sl_style style;
  char text[700];
};

struct category_row {
  uint32_t rank;
  char *category; /* owned */
  uint64_t before, after;
};

struct printing {
  struct sl_db *db;
  struct sl_output *out;
  struct sl_whatif_question *question;
  struct sl_table *table;
  struct note *notes;
  size_t note_count;
  struct category_row *categories;
  size_t category_count;
};

static int note_add(struct printing *p, enum sl_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int note_add(struct printing *p, enum sl_style style, const char *format, ...) {
  struct note *note = SL_LIST_ADD(p->notes, p->note_count);
  if (!note)
    return -ENOMEM;
  note->style = style;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(note->text, sizeof note->text, format, arguments);
  va_end(arguments);
  return 0;
}

/* What is alive at the highest allocated points, of the categories that differ. */
static int categories_add(struct printing *p, const struct sl_tape *tape, size_t known,
                          const struct sl_whatif *answer) {
  for (size_t c = 0; c < tape->categories.count; c++) {
    /* A change may have brought the last ones. */
    const uint64_t before = c < known ? answer->before.categories[c] : 0, after = answer->after.categories[c];
    if (before == after)
      continue;
    struct category_row *added = SL_LIST_ADD(p->categories, p->category_count);
    if (!added)
      return -ENOMEM;
    *added = (struct category_row){tape->rank, strdup(tape->categories.items[c]), before, after};
    if (!added->category)
      return -ENOMEM;
  }
  return 0;
}

static int end_note(struct printing *p, const struct sl_tape *tape, const struct sl_whatif *answer) {
  const struct sl_replay *after = &answer->after;
  char bytes[SL_UNIT_CHARS], reserved[SL_UNIT_CHARS], where[40];
  if (answer->end == SL_END_all)
    return !answer->retries
               ? 0
               : note_add(p, SL_STYLE_plain,
                          "Rank %u: cached segments are given back %" PRIu64 " times to make room, which costs time",
                          tape->rank, answer->retries);
  char how[80] = "it runs out of memory";
  if (answer->standing == SL_STANDING_estimate)
    snprintf(how, sizeof how, "it runs out of memory in %u of %u plays", answer->out_of_memory, answer->plays);
  if (!after->stop.is_one)
    return note_add(p, SL_STYLE_red, "Rank %u: %s", tape->rank, how);
  sl_format_bytes(bytes, (int64_t)after->stop.bytes, p->out->exact_bytes);
  sl_format_bytes(reserved, (int64_t)after->stop.reserved_bytes, p->out->exact_bytes);
  period_say(&tape->periods[after->stop.period], where);
  if (after->stop.was_served)
    return note_add(p, SL_STYLE_plain,
                    "Rank %u: the %s that failed in %s are served; what the job would have done next was not recorded: "
                    "the figures are of the time until then",
                    tape->rank, bytes, where);
  return note_add(p, SL_STYLE_red,
                  "Rank %u: %s: %s are refused in %s with %s reserved; the figures are of the time until then",
                  tape->rank, how, bytes, where, reserved);
}

/* "16 plays gave allocated 1.07 GiB, reserved 1.23 GiB to 1.25 GiB" */
static int estimate_note(struct printing *p, uint32_t rank, const struct sl_whatif *answer) {
  char gave[300] = "", range[2 * SL_UNIT_CHARS + 8];
  size_t length = 0;
  for (int i = 0; i < SL_QUANTITIES && length < sizeof gave; i++)
    if (i != ACTIVE && sl_whatif_standing(answer, i, SIZE_MAX) == SL_STANDING_estimate)
      length += (size_t)snprintf(gave + length, sizeof gave - length, "%s%s %s", length ? ", " : "", quantities[i],
                                 range_say(&answer->highest[i], p->out->exact_bytes, range, sizeof range));
  return note_add(p, SL_STYLE_yellow, "Rank %u: estimate: not proven; %u play%s gave %s; %s", rank, answer->plays,
                  answer->plays == 1 ? "" : "s", gave, answer->reason);
}

static int notes_add(struct printing *p, const struct sl_tape *tape, size_t known, const struct sl_whatif *answer) {
  int r = 0;
  if (answer->standing == SL_STANDING_estimate)
    r = estimate_note(p, tape->rank, answer);
  else if (answer->standing == SL_STANDING_refused)
    r = note_add(p, SL_STYLE_red, "Rank %u: refused: %s", tape->rank, answer->reason);
  if (r < 0 || answer->standing == SL_STANDING_refused)
    return r;
  r = end_note(p, tape, answer);
  return r < 0 ? r : categories_add(p, tape, known, answer);
}

/* ---- ranks ---- */

/* What any placement of what was requested needs, as one more row. */
static int floor_print(struct printing *p, const struct sl_tape *tape, const struct sl_whatif *answer) {
  char reserved[SL_UNIT_CHARS], least[SL_UNIT_CHARS], plan[SL_UNIT_CHARS];
  const bool exact = p->out->exact_bytes;
  struct sl_floor floor;
  int r = sl_floor_find(tape, &floor);
  if (r == -ENOTSUP)
    return note_add(p, SL_STYLE_plain, "Rank %u: the least that is needed is not known, since not all requests are",
                    tape->rank);
  if (r < 0)
    return r;
  const uint64_t before = answer->before.highest[SL_QUANTITIES - 1].bytes;
  const struct sl_whatif_range range = {floor.least_bytes, floor.plan_bytes};
  sl_cell_int(p->table, tape->rank);
  sl_cell_text(p->table, "floor");
  cells_after(p->table, before, &range, false);
  sl_cell_text(p->table, standing_word(range.low == range.high ? SL_STANDING_exact : SL_STANDING_bound));
  for (int i = 0; i < 5; i++)
    sl_cell_null(p->table);
  return note_add(
      p, SL_STYLE_plain,
      "Rank %u: of %s reserved, any placement of its requests needs %s at least, and one is known that takes %s",
      tape->rank, sl_format_bytes(reserved, (int64_t)before, exact), sl_format_bytes(least, (int64_t)range.low, exact),
      sl_format_bytes(plan, (int64_t)range.high, exact));
}

/* There is nothing to play: one row, and why. */
static int nothing_print(struct printing *p, uint32_t rank, const char *why) {
  const bool by_period = p->question->by == SL_WHATIF_period;
  const int count = by_period ? (int)(sizeof period_columns / sizeof period_columns[0])
                              : (int)(sizeof peak_columns / sizeof peak_columns[0]);
  const struct sl_column *columns = by_period ? period_columns : peak_columns;
  for (int i = 0; i < count; i++)
    if (i == 0)
      sl_cell_int(p->table, rank);
    else if (strcmp(columns[i].name, "standing") == 0)
      sl_cell_text(p->table, standing_word(SL_STANDING_refused));
    else if (strcmp(columns[i].name, "reason") == 0)
      sl_cell_text(p->table, why);
    else
      sl_cell_null(p->table);
  return note_add(p, SL_STYLE_red, "Rank %u: refused: %s", rank, why);
}

static int rank_print(struct printing *p, uint32_t rank, struct sl_error *error) {
  struct sl_tape tape, changed = {0};
  struct sl_whatif answer = {0};
  int r = sl_tape_read(p->db, rank, &tape, error);
  if (r == -ENODATA || r == -ENOTSUP) {
    r = nothing_print(p, rank, error->text);
    error->text[0] = '\0';
    return r < 0 ? sl_no_memory(error) : 0;
  }
  if (r < 0)
    return r;
  r = sl_changes_any(&p->question->changes) ? sl_changes_make(p->db, &tape, &p->question->changes, &changed, error) : 0;
  if (r == -ENOTSUP) {
    r = nothing_print(p, rank, error->text);
    error->text[0] = '\0';
    goto finish;
  }
  if (r < 0)
    goto finish;
  const struct sl_tape *played = changed.event_count ? &changed : &tape;
  r = sl_whatif_ask(&tape, changed.event_count ? &changed : NULL, &p->question->change, &answer);
  if (r == 0)
    r = notes_add(p, played, tape.categories.count, &answer);
  if (r == 0 && p->question->by == SL_WHATIF_period)
    periods_print(p->table, &tape, &answer);
  else if (r == 0)
    r = peaks_print(p->db, p->table, &tape, played, &answer, error);
  if (r == 0 && p->question->floor && p->question->by == SL_WHATIF_life && answer.standing != SL_STANDING_refused)
    r = floor_print(p, &tape, &answer);
finish:
  if (r == -ENOMEM)
    sl_no_memory(error);
  sl_whatif_free(&answer);
  sl_tape_free(&changed);
  sl_tape_free(&tape);
  return r;
}

static void below_print(struct printing *p) {
  const size_t most = p->out->limit ? (size_t)p->out->limit : MOST_NOTES;
  for (size_t i = 0; i < p->note_count && i < most; i++)
    sl_output_styled(p->out, p->notes[i].style, "%s", p->notes[i].text);
  if (p->note_count > most)
    sl_output_line(p->out, "%zu lines more on other ranks: --rank R, or --limit all", p->note_count - most);
  if (!p->category_count && p->out->format == SL_FORMAT_text)
    return;
  sl_output_line(p->out, "%s", "");
  sl_output_styled(p->out, SL_STYLE_bold, "Alive at the highest allocated point, where it differs");
  struct sl_table *table = sl_table_begin(p->out, "categories", SL_COLUMNS(category_columns));
  for (size_t i = 0; i < p->category_count; i++) {
    const struct category_row *row = &p->categories[i];
    sl_cell_int(table, row->rank);
    sl_cell_text(table, row->category);
    sl_cell_int(table, (int64_t)row->before);
    sl_cell_int(table, (int64_t)row->after);
    sl_cell_int(table, (int64_t)(row->after - row->before));
  }
  table = sl_table_end(table);
}

static int ranks_print(struct printing *p, struct sl_error *error) {
  struct sl_statement *row = NULL;
  const struct sl_ranks *ranks = &p->question->ranks;
  int r = sl_db_ask(p->db, sl_sql_whatif_ranks, SL_WITH(SL_RANKS(ranks), SL_NUMBER(":most", MOST_RANKS)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    const uint32_t rank = (uint32_t)sl_column_int(row, 0);
    const long long alike = sl_column_int(row, 1);
    r = rank_print(p, rank, error);
    if (r == 0 && sl_column_int(row, 2) && alike > 1 &&
        note_add(p, SL_STYLE_plain, "Rank %u speaks for %lld ranks that behave alike", rank, alike) < 0)
      r = sl_no_memory(error);
  }
  row = sl_statement_close(row);
  return r;
}

static int print_whatif(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct printing p = {.db = db, .out = out, .question = context};
  int r = sl_check_selection(db, &p.question->ranks, -1, error);
  if (r == 0)
    r = sl_whatif_open(p.question, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r < 0)
    return r;
  sl_whatif_say(out, p.question);
  sl_output_line(out, "%s", "");
  sl_output_document(out);
  p.table = p.question->by == SL_WHATIF_period ? sl_table_begin(out, "periods", SL_COLUMNS(period_columns))
                                               : sl_table_begin(out, "peaks", SL_COLUMNS(peak_columns));
  r = ranks_print(&p, error);
  p.table = sl_table_end(p.table);
  if (r == 0)
    below_print(&p);
  if (r == 0 && p.question->world_size > 1)
    r = sl_print_whatif_nccl(db, out, &p.question->ranks, error);
  for (size_t i = 0; i < p.category_count; i++)
    free(p.categories[i].category);
  free(p.categories);
  free(p.notes);
  return r;
}

int sl_cmd_whatif(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct sl_whatif_question question = {.by = SL_WHATIF_life, .world_size = -1, .accumulate = -1, .loss_chunks = -1};
  const struct sl_argument arguments[] = {
      {"alloc-conf", 0, "CONF", "with these settings of PyTorch's allocator, as PYTORCH_CUDA_ALLOC_CONF has them",
       SL_ARGUMENT_TEXT, &question.alloc_conf},
      {"optimizer", 0, "as-recorded|adamw|adamw-fused|adamw-forloop|sgd|host",
       "with another optimizer: AdamW, with fused=True, with foreach=False; SGD with momentum; the recorded one on the host",
       SL_ARGUMENT_CHOICE, &question.optimizer},
      {"reshard", 0, "as-recorded|off|on|N", "FSDP2 with reshard_after_forward=False, True, or N", SL_ARGUMENT_TEXT,
       &question.reshard},
      {"world-size", 0, "N", "with FSDP2's shards over N ranks", SL_ARGUMENT_NUMBER, &question.world_size},
      {"recompute", 0, "all|none|MODULES",
       "with activations of these modules recomputed (torch.utils.checkpoint): all entries of lists such as blocks.0, or "
       "patterns such as blocks.[0-3],head; none: with those kept that the run recomputed",
       SL_ARGUMENT_TEXT, &question.recompute},
      {"mixed-precision", 0, "TYPE[,TYPE]",
       "FSDP2 with MixedPrecisionPolicy: of gathered parameters (bf16, fp16, fp32), and of reduced gradients (fp32 unless "
       "given)",
       SL_ARGUMENT_TEXT, &question.mixed_precision},
      {"accumulate", 0, "N", "with N forwards and backwards a step, each as the recorded one", SL_ARGUMENT_NUMBER,
       &question.accumulate},
      {"no-sync", 0, NULL, "accumulate: FSDP2 reduces gradients in the last of them only", SL_ARGUMENT_FLAG,
       &question.no_sync},
      {"loss-chunks", 0, "N",
       "with the last layer and the loss on N pieces of the rows, each made again in backward (torch.utils.checkpoint)",
       SL_ARGUMENT_NUMBER, &question.loss_chunks},
      {"optimizer-in-backward", 0, NULL,
       "with an optimizer for each parameter that steps in backward, when its gradient is there, which then is freed",
       SL_ARGUMENT_FLAG, &question.optimizer_in_backward},
      {"offload-optimizer", 0, NULL, "with the optimizer's states in the host's memory but for its steps",
       SL_ARGUMENT_FLAG, &question.offload_optimizer},
      {"batch", 0, "F", "with batches F times as large, such as 2, 1.5 or 2/3: told by --at", SL_ARGUMENT_TEXT,
       &question.batch},
      {"sequence", 0, "F", "with sequences F times as long: told by --at", SL_ARGUMENT_TEXT, &question.sequence},
      {"at", 0, "F=DIR", "batch and sequence: in DIR is the same job with F times as much; once or twice",
       SL_ARGUMENT_LIST, &question.at},
      {"steps", 0, "STEPS", "optimizer and reshard off: in these steps only, such as 3-5", SL_ARGUMENT_TEXT,
       &question.steps},
      {"no-workspaces", 0, NULL, "without what cuBLAS holds in PyTorch's pool", SL_ARGUMENT_FLAG,
       &question.no_workspaces},
      {"device-memory", 0, "SIZE", "on a device with so much memory", SL_ARGUMENT_SIZE, &question.device_bytes},
      {"memory-limit", 0, "SIZE", "in a process that may have so much: torch.cuda.set_per_process_memory_fraction",
       SL_ARGUMENT_SIZE, &question.limit_bytes},
      {"recorded-limit", 0, "SIZE", "the recorded process had this limit, which its record does not tell",
       SL_ARGUMENT_SIZE, &question.recorded_limit_bytes},
      {"floor", 0, NULL, "and the least that any placement of the recorded requests needs: what fragmentation costs",
       SL_ARGUMENT_FLAG, &question.floor},
      {"by", 0, "life|period", "the highest points of the whole life (default), or each period's", SL_ARGUMENT_CHOICE,
       &question.by},
      SL_RANKS_ARGUMENT(question.ranks),
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (!sl_whatif_take(&question))
    return SL_EXIT_USAGE;
  r = sl_print_report(path, &format, print_whatif, &question);
  sl_whatif_close(&question);
  return r;
}
