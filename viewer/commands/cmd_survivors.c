/* `shardledger survivors`: what outlives its step, and what grows. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/rank_lines.h"
#include "commands/summary.h"
#include "commands/survivors.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <string.h>

struct selection {
  int64_t step, min; /* -1: all */
  struct sl_ranks ranks;
};

#define LARGEST 10        /* groups of a section that text shows; of what every step adds it shows what fits */
#define SMALL_GROWTH 4096 /* a few kept losses a step: a GiB after 262144 of them */

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
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), PATTERN = 0, RANK = 1 };

static const struct {
  const char *pattern, *heading;
} headings[] = {
    {"growth", "From every step: some of this size, never freed"},
    {"some_steps", "From several steps, but not from every one"},
    {"once", "From one step only: optimizer state, workspaces and the like"},
    {"passing", "Passing: outlives the next step, and is freed later"},
};

static void print_heading(struct sl_output *out, const char *pattern) {
  sl_output_line(out, "%s", "");
  for (size_t i = 0; i < sizeof(headings) / sizeof(headings[0]); i++)
    if (strcmp(headings[i].pattern, pattern) == 0)
      sl_output_styled(out, SL_STYLE_bold, "%s", headings[i].heading);
}

/* Columns of survivors_growth. */
enum { G_RANK, G_FIRST, G_LAST, G_BYTES, G_ALLOCATED, G_UNIT, G_EACH, G_LARGEST, G_WHOSE, G_RANKS, G_RANGES };

/*
 * "Grows 62.4 MiB a step on average, from step 2 to 15 (811.2 MiB in all); most of it: …", and what is meant where that
 * isn't what the allocated bytes grew by. statement is at the row of survivors_growth.
 */
static void print_headline(struct sl_output *out, struct sl_statement *statement) {
  char each[SL_UNIT_CHARS], all[SL_UNIT_CHARS], most[SL_UNIT_CHARS], allocated[SL_UNIT_CHARS];
  const int64_t bytes = sl_column_int(statement, G_BYTES), allocated_bytes = sl_column_int(statement, G_ALLOCATED);
  const int64_t each_bytes = sl_column_int(statement, G_EACH), largest = sl_column_int(statement, G_LARGEST);
  const long long from = sl_column_int(statement, G_FIRST), to = sl_column_int(statement, G_LAST);
  const char *unit = sl_column_text(statement, G_UNIT);
  const bool small = each_bytes <= SMALL_GROWTH;
  char span[96];
  sl_format_bytes(each, each_bytes, out->exact_bytes);
  sl_format_bytes(all, bytes, out->exact_bytes);
  if (small)
    snprintf(span, sizeof span, " on average: small (%s in all from %.8s %lld to %lld)", all, unit, from, to);
  else
    snprintf(span, sizeof span, " on average, from %.8s %lld to %lld (%s in all)", unit, from, to, all);
  sl_output_styled(out, small ? SL_STYLE_bold : SL_STYLE_red, "Grows %s a %s%s; %s: %s (%s)", each, unit, span,
                   2 * largest > bytes ? "most of it" : "the largest part", sl_column_text(statement, G_WHOSE),
                   sl_format_bytes(most, largest, out->exact_bytes));
  if (allocated_bytes != bytes)
    sl_output_line(out, "That is what stays; including what comes and goes, allocated bytes changed by %s%s",
                   allocated_bytes > 0 ? "+" : "", sl_format_bytes(allocated, allocated_bytes, out->exact_bytes));
}

/* The rank that text speaks of is told where there are several; the others are a --rank away. */
static void print_rank(struct sl_output *out, int64_t rank, int64_t ranks, const char *why) {
  if (ranks > 1)
    sl_output_line(out, "Rank %lld of %lld%s", (long long)rank, (long long)ranks, why);
}

/* Which rank it is, and which others grow. statement is at the row of survivors_growth. */
static void print_growing(struct sl_output *out, struct sl_statement *statement, int64_t ranks, bool was_asked) {
  const int64_t growing = sl_column_int(statement, G_RANKS);
  if (was_asked || growing == ranks)
    print_rank(out, sl_column_int(statement, G_RANK), ranks,
               was_asked ? "" : ", the one that grows most; the others with --rank R");
  else if (growing == 1)
    print_rank(out, sl_column_int(statement, G_RANK), ranks, ", the only one that grows");
  else
    sl_output_line(out, "Rank %lld, which grows the most of %lld (all: %.200s); the others with --rank R",
                   (long long)sl_column_int(statement, G_RANK), (long long)growing,
                   sl_column_text(statement, G_RANGES));
}

/* What grows, in one line, or that nothing does, or that nobody can tell. grows: of *rank, which is set. */
static int print_growth_line(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, int64_t of_ranks,
                             int64_t *rank, bool *grows, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int64_t steps = 0, calls = 0;
  int r = sl_db_int(db, sl_sql_survivors_steps, &steps, error);
  if (r == 0)
    r = sl_db_int(db, sl_sql_survivors_calls, &calls, error);
  if (r == 0)
    r = sl_db_ask_first(db, sl_sql_survivors_growth, SL_WITH(SL_RANKS(ranks)), &statement, error);
  if (r < 0)
    return r;
  *grows = r > 0;
  if (*grows) {
    *rank = sl_column_int(statement, G_RANK);
    print_headline(out, statement);
    print_growing(out, statement, of_ranks, ranks->text != NULL);
    r = sl_print_rank_difference(db, out, *rank, error); /* of a leak with its slope since it began */
  } else if (steps >= 4 || calls >= 4) {
    sl_output_line(out, "Nothing grows (%lld %s)", (long long)(steps >= 4 ? steps : calls),
                   steps >= 4 ? "steps" : "calls: the outermost ranges of a job without steps");
  } else {
    const int64_t there = steps ? steps : calls;
    sl_output_line(out, "%lld %s%s: too few to tell what grows from what comes once; at least four are needed",
                   (long long)there, steps || !calls ? "step" : "outermost range", there == 1 ? "" : "s");
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* The owners that grow on a rank which does. */
static int print_growing_owners(struct sl_db *db, struct sl_output *out, int64_t rank, struct sl_error *error) {
  static const struct sl_column owner_columns[] = {
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"phase", "Allocated in", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"category", "Category", SL_UNIT_text, 0},
      {"detail", "Detail", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"bytes", "Growth", SL_UNIT_change, 0},
      {"per_step_bytes", "Each", SL_UNIT_change, 0},
      {"allocations", "Allocations", SL_UNIT_number, 0},
      {"births", "In periods", SL_UNIT_number, 0},
      {"code_line", "Line", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
  };
  static const struct sl_listing owners = {"growth", SL_COLUMNS(owner_columns), sl_sql_survivors_owners,
                                           .only_with_rows = true, .most = LARGEST};
  const int64_t rows = sl_print_listing(db, out, &owners, SL_WITH(SL_NUMBER(":rank", rank)), error);
  return rows < 0 ? (int)rows : 0;
}

int sl_print_growth(struct sl_db *db, struct sl_output *line, struct sl_output *owners, struct sl_error *error) {
  const struct sl_ranks all = {.text = NULL};
  int64_t ranks = 0, rank = -1;
  bool grows = false;
  int r = sl_db_int(db, sl_sql_survivors_ranks, &ranks, error);
  if (r == 0)
    r = print_growth_line(db, line, &all, ranks, &rank, &grows, error);
  return r == 0 && grows ? print_growing_owners(db, owners, rank, error) : r;
}

/* Of the ranks, in text of the one that keeps most. */
static int ask_survivors(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         const struct sl_ranks *ranks, struct sl_statement **statement, struct sl_error *error) {
  return sl_db_ask(db, sl_sql_survivors_told,
                   SL_WITH(SL_RANKS(ranks), SL_GIVEN(":step", selection->step), SL_GIVEN(":min", selection->min),
                           SL_NUMBER(":text", out->format == SL_FORMAT_text)),
                   statement, error);
}

/* Rows of one section in text; the statement is at its first row and then at what follows. Returns as step does. */
static int print_section(struct sl_output *out, struct sl_statement *statement, struct sl_error *error) {
  char pattern[16];
  int r = 1;
  snprintf(pattern, sizeof pattern, "%s", sl_column_text(statement, PATTERN));
  print_heading(out, pattern);
  struct sl_table *table = sl_table_begin(out, pattern, columns, COLUMNS);
  sl_table_keep(table, strcmp(pattern, "growth") == 0 ? 0 : LARGEST, NULL);
  sl_table_add_up(table, "bytes");
  while (r > 0 && strcmp(sl_column_text(statement, PATTERN), pattern) == 0) {
    sl_cell_columns(table, statement, 0, COLUMNS - 1);
    r = sl_statement_step(statement, error);
  }
  table = sl_table_end(table);
  return r;
}

static int print_text(struct sl_db *db, struct sl_output *out, const struct selection *selection, int64_t *rows,
                      struct sl_error *error) {
  struct sl_statement *statement = NULL;
  struct sl_ranks chosen = selection->ranks;
  int64_t ranks = 0, rank = -1;
  bool grows = false;
  int r = sl_db_int(db, sl_sql_survivors_ranks, &ranks, error);
  sl_output_line(out, "%s", "");
  if (r == 0)
    r = print_growth_line(db, out, &selection->ranks, ranks, &rank, &grows, error);
  if (r == 0 && grows)
    r = print_growing_owners(db, out, rank, error);
  if (r == 0) {
    if (grows)
      sl_ranks_narrow(&chosen, rank);
    r = ask_survivors(db, out, selection, &chosen, &statement, error);
  }
  if (r < 0)
    return r;
  r = sl_statement_step(statement, error);
  if (r > 0 && !grows)
    print_rank(out, sl_column_int(statement, RANK), ranks,
               selection->ranks.text ? "" : ", the one that keeps most; the others with --rank R");
  for (; r > 0; ++*rows)
    r = print_section(out, statement, error);
  statement = sl_statement_close(statement);
  return r;
}

static int print_data(struct sl_db *db, struct sl_output *out, const struct selection *selection, int64_t *rows,
                      struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = ask_survivors(db, out, selection, &selection->ranks, &statement, error);
  if (r < 0)
    return r;
  struct sl_table *table = sl_table_begin(out, "survivors", columns, COLUMNS);
  for (; (r = sl_statement_step(statement, error)) > 0; ++*rows)
    sl_cell_columns(table, statement, 0, COLUMNS - 1);
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return r;
}

static int print_survivors(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  int64_t rows = 0;
  int r = sl_check_selection(db, &selection->ranks, selection->step, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = out->format == SL_FORMAT_text ? print_text(db, out, selection, &rows, error)
                                      : print_data(db, out, selection, &rows, error);
  if (r == 0 && rows == 0 && (selection->step >= 0 || selection->ranks.text || selection->min >= 0))
    sl_complain("nothing matches: 'shardledger survivors' without options shows what there is");
  return r;
}

int sl_cmd_survivors(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {.step = -1, .min = -1};
  const struct sl_argument arguments[] = {
      {"step", 0, "N", "what was allocated in this step only", SL_ARGUMENT_NUMBER, &selection.step},
      SL_RANKS_ARGUMENT(selection.ranks),
      {"min", 0, "SIZE", "leave out groups that hold fewer bytes", SL_ARGUMENT_SIZE, &selection.min},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_survivors, &selection);
}
