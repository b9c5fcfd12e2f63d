/* Opens a ledger, prints from it and ends with the right status, for every command that asks one. */
#include "ask_ledger.h"
#include "open_ledger.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int sl_print_report(const char *path, const struct sl_output_arguments *format, sl_report *report, void *context) {
  struct sl_output out;
  struct sl_error error = {{0}};
  struct sl_db *db = NULL;
  int r = 0;

  path = sl_chosen_directory(path);
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

void sl_ranks_narrow(struct sl_ranks *ranks, int64_t rank) {
  snprintf(ranks->one, sizeof ranks->one, "%" PRId64, rank);
  ranks->text = ranks->one;
}

/* "there is no step 99; steps 0 to 4 were recorded, 'shardledger peaks --by step' lists them". statement: whether there
 * is, the lowest and the highest. */
static int check_there(struct sl_statement *statement, const char *what, const char *which, const char *where_listed,
                       struct sl_error *error) {
  char there_is[120];
  if (sl_column_int(statement, 0))
    return 0;
  int64_t lowest = sl_column_int(statement, 1), highest = sl_column_int(statement, 2);
  if (sl_column_is_null(statement, 1))
    snprintf(there_is, sizeof there_is, "none was recorded, 'shardledger info' says why");
  else if (lowest == highest)
    snprintf(there_is, sizeof there_is, "%s %" PRId64 " was recorded", what, lowest);
  else
    snprintf(there_is, sizeof there_is, "%ss %" PRId64 " to %" PRId64 " were recorded, '%s' lists them", what, lowest,
             highest, where_listed);
  return sl_error_set(error, -ENOENT, "there is no %s %s; %s", what, which, there_is);
}

/* Each range by itself, so that a slip in one of them shows. */
static int check_ranks(struct sl_db *db, const struct sl_ranks *ranks, struct sl_error *error) {
  int r = 0;
  for (const char *at = ranks->text, *next; r == 0 && at && *at; at = next) {
    struct sl_statement *statement = NULL;
    char which[48];
    const size_t length = strcspn(at, ",");
    snprintf(which, sizeof which, "%.*s", (int)length, at);
    next = at + length + (at[length] == ',');
    r = sl_db_ask_first(db, sl_sql_has_rank, SL_WITH(SL_WORD(":rank", which)), &statement, error);
    if (r > 0)
      r = check_there(statement, "rank", which, "shardledger info", error);
    statement = sl_statement_close(statement);
  }
  return r;
}

int sl_check_selection(struct sl_db *db, const struct sl_ranks *ranks, int64_t step, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char which[64];
  int r = check_ranks(db, ranks, error);
  if (r < 0 || step < 0)
    return r;
  snprintf(which, sizeof which, "%" PRId64 "%s%.24s", step, ranks->text ? " on rank " : "",
           ranks->text ? ranks->text : "");
  /* Rank by rank, so that the index serves: a long run has many steps. */
  r = sl_db_ask_first(db, sl_sql_has_step, SL_WITH(SL_NUMBER(":number", step), SL_RANKS(ranks)), &statement, error);
  if (r > 0)
    r = check_there(statement, "step", which, "shardledger peaks --by step", error);
  statement = sl_statement_close(statement);
  return r;
}
