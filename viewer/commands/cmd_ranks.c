/* `shardledger ranks`: which ranks are different, in what, and since when. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/rank_lines.h"
#include "commands/summary.h"
#include "viewer_sql.h"

enum by { BY_group = -1, BY_host, BY_communicator, BY_mesh };

static const struct sl_column group_columns[] = {
    {"group", "Group", SL_UNIT_number, 0},
    {"ranks", "Ranks", SL_UNIT_text, 0},
    {"rank_count", "Count", SL_UNIT_number, 0},
    {"representative", "Representative", SL_UNIT_number, 0},
    {"host", "Host", SL_UNIT_text, 0},
    {"is_all_of", "Is all of", SL_UNIT_text, 0},
    {"kind", "Kind", SL_UNIT_text, 0},
    {"bytes", "Difference", SL_UNIT_change, 0},
    {"bytes_per_step", "A step", SL_UNIT_change, 0},
    {"category", "Category", SL_UNIT_text, 0},
    {"module", "Module", SL_UNIT_text, 0},
    {"phase", "Phase", SL_UNIT_text, 0},
    {"owner_bytes", "Of the owner", SL_UNIT_change, 0},
    {"since_step", "Since step", SL_UNIT_number, 0},
    {"last_step", "Last step", SL_UNIT_number, 0},
    {"steps", "Steps", SL_UNIT_number, 0},
    {"period", "Period", SL_UNIT_number, 0},
    {"place", "Place", SL_UNIT_text, 0},
    {"peak_bytes", "Peak", SL_UNIT_bytes, 0},
    {"next_to", "Next to group", SL_UNIT_number, 0},
    {"is_rest_of", "Is the rest of", SL_UNIT_text, 0},
};

/* Only what a screen has: --csv and --json have all. */
#define MOST_ROWS 32

struct question {
  int by; /* enum by */
  struct sl_ranks ranks;
};

static int print_by(struct sl_db *db, struct sl_output *out, const struct question *question, struct sl_error *error) {
  static const struct {
    const char *name, *header, *sql, *none;
  } kinds[] = {
      {"host", "Host", sl_sql_ranks_by_host, NULL},
      {"communicator", "Communicator", sl_sql_ranks_by_communicator, "no communicator was recorded"},
      {"mesh", "Mesh", sl_sql_ranks_by_mesh, "no DeviceMesh was recorded: the program made none while it was recorded"},
  };
  const int by = question->by;
  const struct sl_column columns[] = {
      {kinds[by].name, kinds[by].header, SL_UNIT_text, 0},
      {"rank_count", "Count", SL_UNIT_number, 0},
      {"ranks", "Ranks", SL_UNIT_text, 0},
      {"lowest_bytes", "Lowest peak", SL_UNIT_bytes, 0},
      {"highest_bytes", "Highest", SL_UNIT_bytes, 0},
      {"sum_bytes", "Sum of peaks", SL_UNIT_bytes, 0},
      {"different", "Different", SL_UNIT_number, 0},
      {"different_ranks", "They are", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
  };
  const struct sl_listing listing = {kinds[by].name, SL_COLUMNS(columns), kinds[by].sql, .most = MOST_ROWS};
  const int64_t rows = sl_print_listing(db, out, &listing, SL_WITH(SL_RANKS(&question->ranks)), error);
  if (rows == 0)
    sl_complain("%s", kinds[by].none);
  return rows < 0 ? (int)rows : 0;
}

static int print_missing(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, sl_sql_ranks_missing, NULL, &row, error);
  if (r > 0 && sl_column_is_null(row, 0))
    sl_output_line(out, "missing: not known, the job did not say how many ranks it has");
  else if (r > 0 && sl_column_int(row, 2) == 0)
    sl_output_line(out, "missing: none");
  else if (r > 0)
    sl_output_styled(out, SL_STYLE_yellow, "missing: %s (%lld of %lld)", sl_column_text(row, 1),
                     (long long)sl_column_int(row, 2), (long long)sl_column_int(row, 0));
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

static int print_ranks(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct question *question = context;
  int r = sl_check_selection(db, &question->ranks, -1, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  if (question->by != BY_group)
    return print_by(db, out, question, error);
  if (out->format != SL_FORMAT_text) {
    const struct sl_listing listing = {"groups", SL_COLUMNS(group_columns), sl_sql_ranks_data, .heading = NULL};
    const int64_t rows = sl_print_listing(db, out, &listing, SL_WITH(SL_RANKS(&question->ranks)), error);
    return rows < 0 ? (int)rows : 0;
  }
  int64_t ranks = 0;
  r = sl_db_int(db, sl_sql_ranks_recorded, &ranks, error);
  if (r == 0 && ranks < 2)
    sl_output_line(out, "%s",
                   ranks ? "One rank: there is none to compare it with"
                         : "No allocations were recorded, so ranks can't be compared; 'shardledger info' says why");
  if (r == 0)
    r = sl_print_rank_lines(db, out, &question->ranks, error);
  return r < 0 ? r : print_missing(db, out, error);
}

int sl_cmd_ranks(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct question question = {.by = BY_group};
  const struct sl_argument arguments[] = {
      {"by", 0, "host|communicator|mesh", "one line each of these", SL_ARGUMENT_CHOICE, &question.by},
      {"rank", 0, "RANKS", "the groups that these are in, such as 7 or 0-3,7; with --by these alone", SL_ARGUMENT_RANKS,
       &question.ranks.text},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_ranks, &question);
}
