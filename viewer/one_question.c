/* Prepares one SQL statement of somebody else's that may only read. */
#include "one_question.h"

#include <ctype.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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

int sl_question_prepare(struct sl_db *db, const char *sql, struct sl_statement **out, struct sl_error *error) {
  const char *tail = NULL;
  sqlite3_set_authorizer(sl_db_handle(db), authorize, NULL);
  int r = sl_db_prepare_first(db, sql, out, &tail, error);
  if (r == -EPERM)
    return sl_error_set(error, r, "this statement would change the ledger; a query only reads it");
  if (r < 0)
    say_where_names_are(error);
  if (r == 0 && !*out)
    r = sl_error_set(error, -EINVAL, "the SQL has no statement to run");
  if (r < 0 || nothing_follows(db, tail))
    return r;
  *out = sl_statement_close(*out);
  return sl_error_set(error, -EINVAL, "one statement at a time, please; this one is followed by:%s%.100s",
                      isspace((unsigned char)*tail) ? "" : " ", tail);
}

void sl_question_allow_all(struct sl_db *db) {
  sqlite3_set_authorizer(sl_db_handle(db), NULL, NULL);
}
