/* `shardledger peaks`: who held memory at each peak. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/oom_print.h"
#include "commands/peaks_code.h"
#include "commands/peaks_idle.h"
#include "commands/summary.h"
#include "storage/rules/categories.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Which period; text says it where Step does not. */
#define PERIOD_COLUMNS                                                                                                 \
  {"period", "Period", SL_UNIT_number, SL_COLUMN_DATA_ONLY}, {                                                         \
    "place", "Place", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY                                                               \
  }

enum view {
  VIEW_default = -1,
  VIEW_module,
  VIEW_category,
  VIEW_step,
  VIEW_rank,
  VIEW_line,
  VIEW_operator,
  VIEW_stack,
  VIEW_idle,
};

struct selection {
  int view;                    /* enum view */
  int64_t step, period, depth; /* -1: all; step and period: the highest period of each rank */
  struct sl_ranks ranks;
  bool source; /* with the text of each line */
};

static bool is_of_one_rank(int view) { /* in text, where there are many */
  return view != VIEW_step && view != VIEW_rank;
}

/* Whether rows of a selection were printed; so many, or a negative errno. */
static int say_rows(int64_t rows) {
  if (rows == 0)
    sl_complain("nothing matches: 'shardledger peaks --by step' lists the ranks and steps that were recorded");
  return rows < 0 ? (int)rows : 0;
}

/* by: of many rows those are shown that are the largest by this; NULL: the first. */
static int print_query(struct sl_db *db, struct sl_output *out, const char *name, const struct sl_column *columns,
                       int count, const char *sql, const char *by, const struct selection *selection,
                       struct sl_error *error) {
  const struct sl_listing listing = {name, columns, count, sql, .by = by};
  return say_rows(sl_print_listing(db, out, &listing,
                                   SL_WITH(SL_RANKS(&selection->ranks), SL_GIVEN(":step", selection->step),
                                           SL_GIVEN(":period", selection->period), SL_GIVEN(":depth", selection->depth),
                                           SL_NUMBER(":text", out->format == SL_FORMAT_text)),
                                   error));
}

/*
 * A column a category: the built-in ones always, so that CSV looks the same for every run, then those that only these
 * steps have. The names belong to the caller. Returns how many, or a negative errno.
 */
static int read_categories(struct sl_db *db, const struct selection *selection, char **names, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int count = 0;
  int r = sl_db_ask(
      db, sl_sql_peaks_categories,
      SL_WITH(SL_RANKS(&selection->ranks), SL_GIVEN(":step", selection->step), SL_GIVEN(":period", selection->period)),
      &statement, error);
  for (int i = 0; i < SL_CATEGORY_built_in && r == 0; i++)
    names[count++] = strdup(sl_categories[i].name);
  while (r >= 0 && (r = sl_statement_step(statement, error)) > 0 && count < SL_CATEGORY_limit)
    if (sl_category_find(sl_column_text(statement, 0)) < 0)
      names[count++] = strdup(sl_column_text(statement, 0));
  statement = sl_statement_close(statement);
  for (int i = 0; i < count && r >= 0; i++)
    if (!names[i])
      r = sl_no_memory(error);
  return r < 0 ? r : count;
}

/* Every module and phase of the chosen step, with what the device held at that moment by category. */
static int print_modules_and_phases(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                                    struct sl_error *error) {
  enum { OWN = 9 };
  struct sl_column columns[OWN + SL_CATEGORY_limit] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"module", "Module", SL_UNIT_text, 0},
      {"phase", "Phase", SL_UNIT_text, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"own_bytes", "Own", SL_UNIT_bytes, 0},
      PERIOD_COLUMNS,
      {"module_id", "Module's id", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
  };
  char *names[SL_CATEGORY_limit] = {NULL};
  struct sl_statement *statement = NULL;
  int64_t rows = 0;
  int count = read_categories(db, selection, names, error);
  int r = count < 0 ? count
                    : sl_db_ask(db, sl_sql_peaks_by_phase,
                                SL_WITH(SL_RANKS(&selection->ranks), SL_GIVEN(":step", selection->step),
                                        SL_GIVEN(":period", selection->period), SL_GIVEN(":depth", selection->depth),
                                        SL_NUMBER(":text", out->format == SL_FORMAT_text)),
                                &statement, error);
  if (r == 0) {
    for (int i = 0; i < count; i++)
      columns[OWN + i] = (struct sl_column){names[i], names[i], SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY};
    struct sl_table *table = sl_table_begin(out, "peaks", columns, OWN + count);
    sl_table_keep(table, 0, "allocated_bytes");
    rows = sl_table_pivot(table, statement, OWN, error);
    table = sl_table_end(table);
  }
  statement = sl_statement_close(statement);
  for (int i = 0; i < SL_CATEGORY_limit; i++)
    free(names[i]);
  return r < 0 ? r : say_rows(rows);
}

static int print_by_module(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                           struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"module", "Module", SL_UNIT_text, 0},
      {"class", "Class", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"forward_bytes", "Forward", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"recompute_bytes", "Recompute", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"backward_bytes", "Backward", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"own_bytes", "Own", SL_UNIT_bytes, 0},
      {"own_with_children_bytes", "With children", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"param_bytes", "Parameters", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"buffer_bytes", "Buffers", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"eval_bytes", "Evaluation", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      PERIOD_COLUMNS,
      {"module_id", "Module's id", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
  };
  return print_query(db, out, "modules", columns, sizeof(columns) / sizeof(columns[0]), sl_sql_peaks_by_module,
                     "own_bytes", selection, error);
}

static int print_by_category(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                             struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"category", "Category", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"share", "Share", SL_UNIT_share, 0},
      PERIOD_COLUMNS,
      {"bar", "", SL_UNIT_bar, 0},
  };
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int r = sl_db_ask(db, sl_sql_peaks_by_category,
                    SL_WITH(SL_RANKS(&selection->ranks), SL_GIVEN(":step", selection->step),
                            SL_GIVEN(":period", selection->period), SL_NUMBER(":text", out->format == SL_FORMAT_text)),
                    &statement, error);
  if (r < 0)
    return r;
  table = sl_table_begin(out, "categories", columns, sizeof(columns) / sizeof(columns[0]));
  while ((r = sl_statement_step(statement, error)) > 0) {
    sl_cell_columns(table, statement, 0, 6);
    sl_cell_bar(table, sl_column_double(statement, 4), sl_category_style(sl_column_text(statement, 2)));
  }
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return r;
}

static int print_by_step(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"change_bytes", "Change", SL_UNIT_change, 0},
      {"active_bytes", "Active", SL_UNIT_bytes, 0},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"requested_bytes", "Requested", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"device_bytes", "Device", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"end_allocated_bytes", "At its end", SL_UNIT_bytes, 0},
      {"duration_ns", "Time", SL_UNIT_duration, 0},
      {"same_as", "Same as", SL_UNIT_number, SL_COLUMN_HIDE_EMPTY},
      {"checked", "Checked", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"period", "Period", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"place", "Place", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
  };
  return print_query(db, out, "steps", columns, sizeof(columns) / sizeof(columns[0]), sl_sql_peaks_by_step,
                     "allocated_bytes", selection, error);
}

static int print_by_rank(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"host", "Host", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"device", "GPU", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"active_bytes", "Active", SL_UNIT_bytes, 0},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"device_bytes", "Device", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"device_total_bytes", "Device total", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"where", "Where", SL_UNIT_text, 0},
      {"period", "Period", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"place", "Place", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
  };
  return print_query(db, out, "ranks", columns, sizeof(columns) / sizeof(columns[0]), sl_sql_peaks_by_rank,
                     "allocated_bytes", selection, error);
}

static int print_code(struct sl_db *db, struct sl_output *out, enum sl_peaks_code by, const struct selection *selection,
                      struct sl_error *error) {
  return sl_print_peaks_code(db, out, by, &selection->ranks, selection->step, selection->period, selection->source,
                             error);
}

/*
 * Text of many ranks would be the same table again and again: then the highest one speaks for all; of every module and
 * phase, which nobody asked for by name, as soon as there are more than two.
 */
static int choose_rank(struct sl_db *db, struct sl_output *out, struct selection *selection, struct sl_error *error) {
  const int64_t limit = selection->view == VIEW_default ? 2 : SL_RANKS_SIDE_BY_SIDE;
  struct sl_statement *highest = NULL;
  if (out->format != SL_FORMAT_text)
    return 0;
  int r = sl_db_ask_first(db, sl_sql_peaks_highest_rank, SL_WITH(SL_RANKS(&selection->ranks)), &highest, error);
  if (r > 0 && sl_column_int(highest, 1) > limit) {
    sl_ranks_narrow(&selection->ranks, sl_column_int(highest, 0));
    sl_output_line(out, "Rank %s of %lld, the highest; the others with --rank R", selection->ranks.text,
                   (long long)sl_column_int(highest, 1));
  }
  highest = sl_statement_close(highest);
  return r < 0 ? r : 0;
}

/* Periods count from 0 on each rank; ranks may have different ones. */
static int check_period(struct sl_db *db, const struct selection *selection, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  if (selection->period < 0)
    return 0;
  int r =
      sl_db_ask_first(db, sl_sql_peaks_has_period,
                      SL_WITH(SL_NUMBER(":period", selection->period), SL_RANKS(&selection->ranks)), &statement, error);
  if (r > 0)
    r = sl_column_int(statement, 0)
            ? 0
            : sl_error_set(error, -ENOENT,
                           "there is no period %lld with a peak; periods go from 0 to %lld, 'shardledger "
                           "query \"SELECT * FROM period_place\"' lists them",
                           (long long)selection->period, (long long)sl_column_int(statement, 1));
  statement = sl_statement_close(statement);
  return r;
}

static int print_peaks(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct selection *selection = context;
  int64_t peaks = 0;
  int r = sl_check_selection(db, &selection->ranks, selection->step, error);
  if (r == 0)
    r = check_period(db, selection, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_db_int(db, sl_sql_summary_has_peaks, &peaks, error);
  if (r == 0 && !peaks && selection->view != VIEW_step)
    return sl_print_driver_peak(db, out, &selection->ranks, "'shardledger info' says why", error);
  const bool whole = selection->view == VIEW_default && selection->step < 0 && selection->period < 0;
  if (r == 0 && whole && !selection->ranks.text && out->format == SL_FORMAT_text)
    r = sl_print_death(db, out, error);
  if (r == 0 && whole && !selection->ranks.text)
    r = sl_print_summary(db, out, false, error);
  if (r == 0 && is_of_one_rank(selection->view))
    r = sl_print_repeated(db, out, selection->step, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  if (is_of_one_rank(selection->view))
    r = choose_rank(db, out, selection, error);
  if (r < 0)
    return r;
  switch ((enum view)selection->view) {
  case VIEW_default: return print_modules_and_phases(db, out, selection, error);
  case VIEW_module: return print_by_module(db, out, selection, error);
  case VIEW_category: return print_by_category(db, out, selection, error);
  case VIEW_step: return print_by_step(db, out, selection, error);
  case VIEW_rank: return print_by_rank(db, out, selection, error);
  case VIEW_line: return print_code(db, out, SL_PEAKS_BY_line, selection, error);
  case VIEW_operator: return print_code(db, out, SL_PEAKS_BY_operator, selection, error);
  case VIEW_stack: return print_code(db, out, SL_PEAKS_BY_stack, selection, error);
  case VIEW_idle: return sl_print_peaks_idle(db, out, &selection->ranks, selection->step, selection->period, error);
  }
  return 0;
}

int sl_cmd_peaks(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {.view = VIEW_default, .step = -1, .period = -1, .depth = -1};
  const struct sl_argument arguments[] = {
      {"by", 0, "module|category|step|rank|line|operator|stack|idle",
       "one line each of these; line, operator and stack: of the code that allocated; idle: lines whose memory nobody used",
       SL_ARGUMENT_CHOICE, &selection.view},
      {"step", 0, "N", "this step instead of the highest period of each rank", SL_ARGUMENT_NUMBER, &selection.step},
      {"period", 0, "N", "the same of any period: column 'period' of the view period_place", SL_ARGUMENT_NUMBER,
       &selection.period},
      SL_RANKS_ARGUMENT(selection.ranks),
      {"depth", 0, "D", "modules down to this depth, 0 is the root; 'With children' counts what is deeper, too",
       SL_ARGUMENT_NUMBER, &selection.depth},
      {"source", 0, NULL, "with --by line: the text of each line, where its file can be read from here",
       SL_ARGUMENT_FLAG, &selection.source},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (selection.source && selection.view != VIEW_line) {
    sl_complain("peaks: --source goes with --by line");
    return SL_EXIT_USAGE;
  }
  if (selection.step >= 0 && selection.period >= 0) {
    sl_complain("peaks: --step and --period name the same thing; give one of them");
    return SL_EXIT_USAGE;
  }
  return sl_print_report(path, &format, print_peaks, &selection);
}
