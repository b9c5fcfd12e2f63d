#include "ask_ledger.h"
#include "command.h"
#include "commands/summary.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <string.h>

struct selection {
  int64_t step, rank, min; /* -1: all */
};

#define LARGEST 10 /* groups of a section that text shows; of what grows it shows all */

/* Columns of the query that text shows, in its order; the names are those of CSV and JSON. */
static const struct sl_column columns[] = {
    {"pattern", "Pattern", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"phase", "Allocated in", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"category", "Category", SL_UNIT_text, 0},
    {"detail", "Detail", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"decided_by", "Decided by", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"size_bytes", "Size", SL_UNIT_bytes, 0},
    {"growth_bytes_per_step", "Per step", SL_UNIT_change, SL_COLUMN_HIDE_EMPTY},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"kept_bytes", "At the end", SL_UNIT_bytes, 0},
    {"allocations", "Allocations", SL_UNIT_number, 0},
    {"first_step", "First step", SL_UNIT_number, 0},
    {"last_step", "Last step", SL_UNIT_number, 0},
    {"steps", "Steps", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"possible_steps", "Possible", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), PATTERN = 0, RANK = 1, BYTES = 9, TOTAL_GROWTH = COLUMNS };

static const struct {
  const char *pattern, *heading;
} headings[] = {
    {"growth", "Growing: every step adds some that is never freed"},
    {"some_steps", "From several steps, but not from every one"},
    {"once", "From one step only: optimizer state, workspaces and the like"},
    {"passing", "Passing: outlives the next step, and is freed later"},
};

static void print_heading(struct sl_output *out, const char *pattern) {
  sl_output_line(out, "%s", "");
  for (size_t i = 0; i < sizeof(headings) / sizeof(headings[0]); i++)
    if (strcmp(headings[i].pattern, pattern) == 0)
      sl_output_styled(out, i == 0 ? SL_STYLE_red : SL_STYLE_bold, "%s", headings[i].heading);
}

/*
 * What to think of it, in one line: the total growth, that there is none, or that nobody can tell; and of which rank
 * text speaks. statement is at its first row; any says whether there is one.
 */
static int print_verdict(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_statement *statement, bool any, struct sl_error *error) {
  int64_t steps = 0, ranks = 0, growth = any ? sl_column_int(statement, TOTAL_GROWTH) : 0;
  char bytes[SL_UNIT_CHARS];
  int r = sl_db_int(db, sl_sql_survivors_steps, &steps, error);
  if (r == 0)
    r = sl_db_int(db, sl_sql_survivors_ranks, &ranks, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  if (growth > 0)
    sl_output_styled(out, SL_STYLE_red, "Every step leaves another %s behind (%lld steps)",
                     sl_format_bytes(bytes, growth, out->exact_bytes), (long long)steps);
  else if (steps < 3)
    sl_output_line(out, "%lld step%s: too few to tell what grows from what comes once; three are the least",
                   (long long)steps, steps == 1 ? "" : "s");
  else
    sl_output_line(out, "Nothing grows in every step (%lld steps)", (long long)steps);
  if (ranks > 1 && any)
    sl_output_line(out, "Rank %lld of %lld%s", (long long)sl_column_int(statement, RANK), (long long)ranks,
                   selection->rank >= 0 ? ""
                   : growth > 0         ? ", the one that grows most; the others with --rank R"
                                        : ", the one that keeps most; the others with --rank R");
  return 0;
}

/* Rows of one section in text; the statement is at its first row and then at what follows. Returns as step does. */
static int print_section(struct sl_output *out, struct sl_statement *statement, struct sl_error *error) {
  char pattern[16], bytes[SL_UNIT_CHARS];
  int64_t rows = 0, left_out = 0, left_out_bytes = 0;
  int r = 1;
  snprintf(pattern, sizeof pattern, "%s", sl_column_text(statement, PATTERN));
  print_heading(out, pattern);
  struct sl_table *table = sl_table_begin(out, pattern, columns, COLUMNS);
  while (r > 0 && strcmp(sl_column_text(statement, PATTERN), pattern) == 0) {
    if (rows++ < LARGEST || strcmp(pattern, "growth") == 0) {
      sl_cell_columns(table, statement, 0, COLUMNS - 1);
    } else {
      left_out++;
      left_out_bytes += sl_column_int(statement, BYTES);
    }
    r = sl_statement_step(statement, error);
  }
  table = sl_table_end(table);
  if (left_out)
    sl_output_line(out, "and %lld smaller one%s with %s together, all of them in --csv", (long long)left_out,
                   left_out == 1 ? "" : "s", sl_format_bytes(bytes, left_out_bytes, out->exact_bytes));
  return r;
}

static int print_text(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                      struct sl_statement *statement, int64_t *rows, struct sl_error *error) {
  int r = sl_statement_step(statement, error);
  if (r < 0)
    return r;
  int verdict = print_verdict(db, out, selection, statement, r > 0, error);
  if (verdict < 0)
    return verdict;
  for (; r > 0; ++*rows)
    r = print_section(out, statement, error);
  return r;
}

static int print_data(struct sl_output *out, struct sl_statement *statement, int64_t *rows, struct sl_error *error) {
  struct sl_table *table = sl_table_begin(out, "survivors", columns, COLUMNS);
  int r = 0;
  for (; (r = sl_statement_step(statement, error)) > 0; ++*rows)
    sl_cell_columns(table, statement, 0, COLUMNS - 1);
  table = sl_table_end(table);
  return r;
}

static int print_survivors(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  struct sl_statement *statement = NULL;
  int64_t rows = 0;
  int r = sl_check_selection(db, selection->rank, selection->step, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_db_ask(db, sl_sql_survivors_told,
                  SL_WITH(SL_GIVEN(":rank", selection->rank), SL_GIVEN(":step", selection->step),
                          SL_GIVEN(":min", selection->min), SL_NUMBER(":text", out->format == SL_FORMAT_text)),
                  &statement, error);
  if (r < 0)
    return r;
  r = out->format == SL_FORMAT_text ? print_text(db, out, selection, statement, &rows, error)
                                    : print_data(out, statement, &rows, error);
  statement = sl_statement_close(statement);
  if (r == 0 && rows == 0 && (selection->step >= 0 || selection->rank >= 0 || selection->min >= 0))
    sl_complain("nothing matches: 'shardledger survivors' without options shows what there is");
  return r;
}

int sl_cmd_survivors(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {-1, -1, -1};
  const struct sl_argument arguments[] = {
      {"step", 0, "N", "what was allocated in this step only", SL_ARGUMENT_NUMBER, &selection.step},
      {"rank", 0, "R", "this rank only", SL_ARGUMENT_NUMBER, &selection.rank},
      {"min", 0, "SIZE", "leave out what has fewer bytes together", SL_ARGUMENT_SIZE, &selection.min},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_survivors, &selection);
}
