#include "ask_ledger.h"
#include "open_ledger.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>

int sl_print_report(const char *path, const struct sl_output_arguments *format, sl_report *report, void *context) {
  struct sl_output out;
  struct sl_error error = {{0}};
  struct sl_db *db = NULL;
  int r = 0;

  path = path ? path : sl_default_directory();
  if (sl_output_begin(&out, format) < 0)
    return SL_EXIT_USAGE;
  r = sl_open_run(path, format->run, &db, &error);
  if (r < 0) {
    sl_complain("%s", error.text);
    return SL_EXIT_USAGE;
  }
  r = report(db, &out, context, &error);
  db = sl_db_close(db);
  if (r < 0 && !error.text[0])
    ; /* it was said */
  else if (r == -EBADMSG)
    sl_complain("%s is damaged (%s); make it again with 'shardledger ingest DIR'", path, error.text);
  else if (r < 0)
    sl_complain("%s: %s", path, error.text);
  return sl_output_close(&out) < 0 || r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}

int sl_say_other(int r, struct sl_error *error) {
  sl_complain("%s", error->text);
  error->text[0] = '\0';
  return r;
}

/* "there is no step 99; steps 0 to 4 were recorded, 'shardledger peaks --by step' lists them" */
static int check_number(struct sl_db *db, const char *what, int64_t number, int64_t rank, const char *sql,
                        const char *where_listed, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char on_rank[40] = "", there_is[120];
  int r = sl_db_ask_first(db, sql, SL_WITH(SL_NUMBER(":number", number), SL_GIVEN(":rank", rank)), &statement, error);
  if (r > 0 && sl_column_int(statement, 0)) {
    r = 0;
  } else if (r > 0) {
    int64_t lowest = sl_column_int(statement, 1), highest = sl_column_int(statement, 2);
    if (sl_column_is_null(statement, 1))
      snprintf(there_is, sizeof there_is, "none was recorded, 'shardledger info' says why");
    else if (lowest == highest)
      snprintf(there_is, sizeof there_is, "%s %" PRId64 " was recorded", what, lowest);
    else
      snprintf(there_is, sizeof there_is, "%ss %" PRId64 " to %" PRId64 " were recorded, '%s' lists them", what, lowest,
               highest, where_listed);
    if (rank >= 0)
      snprintf(on_rank, sizeof on_rank, " on rank %" PRId64, rank);
    r = sl_error_set(error, -ENOENT, "there is no %s %" PRId64 "%s; %s", what, number, on_rank, there_is);
  }
  statement = sl_statement_close(statement);
  return r;
}

int sl_check_selection(struct sl_db *db, int64_t rank, int64_t step, struct sl_error *error) {
  int r = 0;
  if (rank >= 0)
    r = check_number(db, "rank", rank, -1, sl_sql_has_rank, "shardledger info", error);
  /* Rank by rank, so that the index serves: a long run has many steps. */
  if (r == 0 && step >= 0)
    r = check_number(db, "step", step, rank, sl_sql_has_step, "shardledger peaks --by step", error);
  return r;
}
