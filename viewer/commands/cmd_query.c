#include "ask_ledger.h"
#include "command.h"
#include "open_ledger.h"

#include <ctype.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ROWS_FOR_WIDTHS 1000 /* text: rows read before the first is printed */

/* The file is open read-only; this keeps a query from reaching other files, and from changing how this one is read. */
static int authorize(void *context, int action, const char *first, const char *second, const char *database,
                     const char *source) {
  switch (action) {
  case SQLITE_SELECT:
  case SQLITE_READ:
  case SQLITE_FUNCTION:
  case SQLITE_RECURSIVE: return SQLITE_OK;
  case SQLITE_PRAGMA: /* asking is fine, setting is not */
    return second && strncasecmp(first, "table_", 6) != 0 ? SQLITE_DENY : SQLITE_OK;
  default: return SQLITE_DENY;
  }
}

/* A name that is not there is the most frequent mistake: where to look it up. */
static void say_where_names_are(struct sl_error *error) {
  size_t length = strlen(error->text);
  if (strncmp(error->text, "no such table", 13) == 0 || strncmp(error->text, "no such column", 14) == 0)
    snprintf(error->text + length, sizeof(error->text) - length,
             "; tables and columns: shardledger query \"SELECT sql FROM sqlite_schema\" --csv");
}

/* True when only blanks, semicolons and comments are left. */
static bool nothing_follows(struct sl_db *db, const char *sql) {
  struct sl_error ignored;
  struct sl_statement *statement = NULL;
  const char *tail = sql;
  while (*tail) {
    if (sl_db_prepare_first(db, tail, &statement, &tail, &ignored) < 0 || statement) {
      statement = sl_statement_close(statement);
      return false;
    }
  }
  return true;
}

static int print_rows(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const char *sql = context;
  const char *tail = NULL;
  struct sl_statement *statement = NULL;
  struct sl_column *columns = NULL;
  struct sl_table *table = NULL;
  int r = 0;

  sqlite3_set_authorizer(sl_db_handle(db), authorize, NULL);
  r = sl_db_prepare_first(db, sql, &statement, &tail, error);
  if (r == -EPERM) {
    r = sl_error_set(error, r, "this statement would change the ledger; a query only reads it");
    goto finish;
  }
  if (r < 0)
    say_where_names_are(error);
  if (r == 0 && !statement)
    r = sl_error_set(error, -EINVAL, "the SQL has no statement to run");
  if (r < 0)
    goto finish;
  if (!nothing_follows(db, tail)) {
    r = sl_error_set(error, -EINVAL, "one statement at a time, please; this one is followed by:%s%.100s",
                     isspace((unsigned char)*tail) ? "" : " ", tail);
    goto finish;
  }

  int count = sl_column_count(statement);
  columns = calloc(count > 0 ? count : 1, sizeof(*columns));
  if (!columns) {
    r = sl_no_memory(error);
    goto finish;
  }
  for (int i = 0; i < count; i++) {
    const char *name = sl_column_name(statement, i);
    size_t length = strlen(name);
    bool bytes = length >= 5 && strcmp(name + length - 5, "bytes") == 0;
    columns[i] = (struct sl_column){name, name, bytes ? SL_UNIT_bytes : SL_UNIT_any, 0};
  }
  table = sl_table_begin(out, "rows", columns, count);
  sl_table_stream(table, ROWS_FOR_WIDTHS);
  if (sl_table_rows(table, statement, error) < 0)
    r = -EINVAL;
  table = sl_table_end(table);

finish:
  statement = sl_statement_close(statement);
  free(columns);
  return r;
}

int sl_cmd_query(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  const struct sl_argument arguments[] = {SL_OUTPUT_ARGUMENTS(format)};
  const char *words[2] = {NULL, NULL};
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, words, 2);
  if (r < 0)
    return sl_parse_exit(r);
  if (r == 0) {
    sl_complain("query: SQL is missing; for example: %s", command->example);
    return SL_EXIT_USAGE;
  }
  /* The directory first is as clear, since no SQL is the name of a file. */
  if (words[1] && sl_path_exists(words[0]) && !sl_path_exists(words[1])) {
    const char *path = words[0];
    words[0] = words[1];
    words[1] = path;
  }
  return sl_print_report(words[1], &format, print_rows, (void *)words[0]);
}
