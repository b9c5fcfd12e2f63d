/* `shardledger diff`: what changed between two runs, or differs between two ranks. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/diff.h"
#include "commands/summary.h"
#include "open_ledger.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct selection {
  const char *other;                  /* ledger or run directory of the second side; NULL: the same as the first */
  int64_t step, min;                  /* -1: not given */
  struct sl_ranks ranks, other_ranks; /* other_ranks: all for the same as on the first side */
  int64_t period;                     /* -1: not given */
  int64_t other_period;               /* -1: the same as on the first side */
  const char *other_run;              /* of several in the other's directory; NULL: the newest */
};

#define LARGEST 10 /* rows of a section that text shows */

static bool is_one_rank(const struct sl_ranks *ranks) {
  return ranks->text && !strpbrk(ranks->text, "-,");
}

static const struct sl_column columns[] = {
    {"what", "", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"ranks", "Rank", SL_UNIT_text, SL_COLUMN_TEXT_ONLY | SL_COLUMN_HIDE_EMPTY},
    {"step_a", "Step A", SL_UNIT_number, 0},
    {"step_b", "Step B", SL_UNIT_number, 0},
    {"period_a", "Period A", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"period_b", "Period B", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"line", "Line", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"phase", "Phase", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"category", "Category", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"a_bytes", "A", SL_UNIT_bytes, 0},
    {"b_bytes", "B", SL_UNIT_bytes, 0},
    {"change_bytes", "Change", SL_UNIT_change, 0},
    {"a_own_bytes", "Own in A", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"b_own_bytes", "Own in B", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"own_change_bytes", "Own change", SL_UNIT_change, SL_COLUMN_HIDE_EMPTY},
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), WHAT = 0 };

static const struct {
  const char *what, *heading;
} headings[] = {
    {"step", "Peak of each step"},
    {"period", "Peaks outside of steps"},
    {"category", "Categories at the peak"},
    {"line", "Lines of code at the peak"},
    {"module", "Modules: the device's peak while they ran, and what they owned"},
};

static const struct sl_listing changes = {"changes", columns, COLUMNS, sl_sql_diff_changes, .heading = NULL};

/* What is compared, in temporary tables. */
static int gather(struct sl_db *db, const struct selection *selection, struct sl_error *error) {
  const struct sl_parameter *parameters =
      SL_WITH(SL_WORD(":rank_0", selection->ranks.text), SL_NUMBER(":one", is_one_rank(&selection->ranks)),
              SL_WORD(":rank_1", selection->other_ranks.text ? selection->other_ranks.text : selection->ranks.text),
              SL_GIVEN(":step", selection->step), SL_GIVEN(":period_0", selection->period),
              SL_GIVEN(":period_1", selection->other_period >= 0 ? selection->other_period : selection->period));
  const char *const statements[] = {sl_sql_diff_chosen, sl_sql_diff_choose, sl_sql_diff_cells, sl_sql_diff_fill};
  int r = 0;
  for (size_t i = 0; i < sizeof statements / sizeof statements[0] && r == 0; i++)
    r = sl_db_tell(db, statements[i], parameters, error);
  return r;
}

/* What has no partner, in the order of diff_alone. Two runs without a common rank can't be compared rank by rank. */
static int count_alone(struct sl_db *db, int64_t alone[4], struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sl_sql_diff_alone, NULL, &statement, error);
  for (int i = 0; i < 4 && r > 0; i++)
    alone[i] = sl_column_int(statement, i);
  if (r > 0 && sl_column_int(statement, 4) == 0)
    r = sl_error_set(error, -ENODATA, "the two runs have no rank in common; name one of each: --rank R --other-rank R");
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* "Peak 205.5 MiB (rank 0, step 1) and 217.5 MiB (rank 0, step 1): +12.0 MiB". Text only. */
static int print_verdict(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char sides[2][320] = {"none", "none"}, bytes[SL_UNIT_CHARS];
  int64_t peaks[2] = {-1, -1}, alone[4] = {0, 0, 0, 0};
  int r = sl_db_ask(db, sl_sql_diff_highest, NULL, &statement, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(statement, error)) > 0) {
    int side = sl_column_int(statement, 0) != 0;
    peaks[side] = sl_column_int(statement, 3);
    snprintf(sides[side], sizeof(sides[side]), "%s (rank %lld, %.240s)",
             sl_format_bytes(bytes, peaks[side], out->exact_bytes), (long long)sl_column_int(statement, 1),
             sl_column_text(statement, 2));
  }
  statement = sl_statement_close(statement);
  if (r == 0 && (peaks[0] < 0 || peaks[1] < 0))
    return sl_error_set(error, -ENODATA, "%s side has no such %s with allocations; %s lists them",
                        peaks[0] < 0 ? "the first" : "the second", selection->step >= 0 ? "step" : "period",
                        selection->step >= 0 ? "'shardledger peaks --by step'"
                                             : "'shardledger query \"SELECT * FROM period_place\"'");
  if (r == 0 && !selection->ranks.text)
    r = count_alone(db, alone, error);
  if (r < 0 || out->format != SL_FORMAT_text)
    return r;
  int64_t change = peaks[1] - peaks[0];
  sl_output_line(out, "%s", "");
  sl_output_styled(out, change > 0 ? SL_STYLE_red : SL_STYLE_bold, "Peak A %s, B %s: %s%s", sides[0], sides[1],
                   change > 0 ? "+" : "", sl_format_bytes(bytes, change, out->exact_bytes));
  if (alone[2] + alone[3] > 0)
    sl_output_line(out, "Ranks in A only: %lld, in B only: %lld; they are not compared", (long long)alone[2],
                   (long long)alone[3]);
  if (alone[0] + alone[1] > 0 && selection->step < 0 && selection->period < 0)
    sl_output_line(out, "Steps in A only: %lld, in B only: %lld (of all ranks); they are not compared",
                   (long long)alone[0], (long long)alone[1]);
  return r;
}

/* The rows of one heading; the statement is at its first row and then at what follows. Returns as step does. */
static int print_section(struct sl_output *out, struct sl_statement *statement, struct sl_error *error) {
  const char *heading = "";
  char what[16];
  int r = 1;
  snprintf(what, sizeof(what), "%s", sl_column_text(statement, WHAT));
  for (size_t i = 0; i < sizeof(headings) / sizeof(headings[0]); i++)
    if (strcmp(headings[i].what, what) == 0)
      heading = headings[i].heading;
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "%s", heading);
  struct sl_table *table = sl_table_begin(out, what, columns, COLUMNS);
  sl_table_keep(table, LARGEST, NULL);
  while (r > 0 && strcmp(sl_column_text(statement, WHAT), what) == 0) {
    sl_cell_columns(table, statement, 0, COLUMNS - 1);
    r = sl_statement_step(statement, error);
  }
  table = sl_table_end(table);
  return r;
}

/* What is wrong with B is said of B. */
static int open_other(const struct selection *selection, struct sl_db **out, struct sl_error *error) {
  struct sl_error wrong = {{0}};
  int r = sl_open_run(selection->other, selection->other_run, out, error);
  if (r < 0)
    return sl_say_other(r, error);
  r = sl_check_selection(*out, selection->other_ranks.text ? &selection->other_ranks : &selection->ranks,
                         selection->step, &wrong);
  if (r < 0) {
    sl_error_set(error, r, "%s: %s", selection->other, wrong.text);
    *out = sl_db_close(*out);
    return sl_say_other(r, error);
  }
  return 0;
}

static int print_diff(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  struct sl_statement *statement = NULL;
  struct sl_db *other = NULL;
  int64_t rows = 0;
  int r = sl_check_selection(db, &selection->ranks, selection->step, error);
  if (r < 0)
    return r;
  if (selection->other) {
    r = open_other(selection, &other, error);
    if (r == 0)
      r = sl_print_coverage(db, out, error);
    if (r == 0)
      r = sl_print_coverage(other, out, error);
    other = sl_db_close(other);
  } else {
    r = sl_check_selection(db, &selection->other_ranks, selection->step, error);
    if (r == 0)
      r = sl_print_coverage(db, out, error);
  }
  if (r == 0)
    r = selection->other ? sl_attach_run(db, selection->other, selection->other_run, "other", error)
                         : sl_attach_ledger(db, sl_db_path(db), "other", error);
  if (r == 0)
    r = gather(db, selection, error);
  if (r == 0)
    r = print_verdict(db, out, selection, error);
  if (r < 0)
    return r;
  const struct sl_parameter *parameters =
      SL_WITH(SL_NUMBER(":one", is_one_rank(&selection->ranks)), SL_NUMBER(":min", selection->min),
              SL_NUMBER(":text", out->format == SL_FORMAT_text));
  if (out->format != SL_FORMAT_text) {
    rows = sl_print_listing(db, out, &changes, parameters, error);
    return rows < 0 ? (int)rows : 0;
  }
  for (r = sl_db_ask_first(db, sl_sql_diff_changes, parameters, &statement, error); r > 0; rows++)
    r = print_section(out, statement, error);
  if (r == 0 && rows == 0)
    sl_output_line(out, "Nothing differs%s", selection->min > 1 ? " by that much" : "");
  statement = sl_statement_close(statement);
  return r;
}

int sl_print_diff(struct sl_db *db, const char *other, struct sl_output *line, struct sl_output *rows,
                  struct sl_error *error) {
  const struct selection selection = {.other = other, .step = -1, .min = 1, .period = -1, .other_period = -1};
  struct sl_column told[COLUMNS];
  struct sl_listing listing = changes;
  memcpy(told, columns, sizeof told);
  for (int i = 0; i < COLUMNS; i++)
    told[i].flags &= ~SL_COLUMN_TEXT_ONLY;
  listing.columns = told;
  int r = sl_attach_run(db, other, NULL, "other", error);
  if (r == 0)
    r = gather(db, &selection, error);
  if (r == 0)
    r = print_verdict(db, line, &selection, error);
  if (r < 0)
    return r;
  const int64_t count =
      sl_print_listing(db, rows, &listing,
                       SL_WITH(SL_NUMBER(":one", 0), SL_NUMBER(":min", selection.min), SL_NUMBER(":text", 1)), error);
  return count < 0 ? (int)count : 0;
}

int sl_cmd_diff(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {.step = -1, .min = 1, .period = -1, .other_period = -1};
  const struct sl_argument arguments[] = {
      {"step", 0, "N", "this step of both instead of each side's highest period", SL_ARGUMENT_NUMBER, &selection.step},
      {"period", 0, "P", "this period of both instead of each side's highest; period_place lists them",
       SL_ARGUMENT_NUMBER, &selection.period},
      {"other-period", 0, "Q", "this period of B against --period of A; without B: of the same run", SL_ARGUMENT_NUMBER,
       &selection.other_period},
      SL_RANKS_ARGUMENT(selection.ranks),
      {"other-rank", 0, "R", "this rank of B against --rank of A; without B: of the same run", SL_ARGUMENT_RANKS,
       &selection.other_ranks.text},
      {"min", 0, "SIZE", "leave out smaller changes; 0 shows equal values, too", SL_ARGUMENT_SIZE, &selection.min},
      {"other-run", 0, "RUN", "this run of B against --run of A; without B: of the same directory", SL_ARGUMENT_TEXT,
       &selection.other_run},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *words[2] = {NULL, NULL};
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, words, 2);
  if (r < 0)
    return sl_parse_exit(r);
  selection.other = words[1];
  if (selection.other_ranks.text && !(is_one_rank(&selection.ranks) && is_one_rank(&selection.other_ranks))) {
    sl_complain("diff: --other-rank goes with --rank; each takes one rank");
    return SL_EXIT_USAGE;
  }
  if (selection.other_period >= 0 && selection.period < 0) {
    sl_complain("diff: --other-period goes with --period");
    return SL_EXIT_USAGE;
  }
  if (selection.period >= 0 && selection.step >= 0) {
    sl_complain("diff: --period and --step both say what is compared; give one of them");
    return SL_EXIT_USAGE;
  }
  if (!words[1] && selection.other_run)
    selection.other = words[0] ? words[0] : sl_default_directory();
  if (!selection.other && !selection.other_ranks.text && selection.other_period < 0) {
    sl_complain("diff: name two runs, or two ranks or periods of one: diff A B, diff A --rank 0 --other-rank 1, or "
                "diff A --period 3 --other-period 5");
    return SL_EXIT_USAGE;
  }
  return sl_print_report(words[0], &format, print_diff, &selection);
}
