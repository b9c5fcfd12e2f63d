/* Views of this version are made as temporary ones, which SQLite takes before those in the file. */
#include "schema_check.h"

#include "schema.h"
#include "shared_tables.h"
#include "views.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What has the name of a table of this version and is neither that nor, to the letter, the view of those that ranks
 * share. */
static const char *const no_table_sql =
    "SELECT name FROM main.sqlite_schema WHERE lower(name) IN (:table, 'own_' || :table)"
    " AND (sql LIKE 'CREATE VIRTUAL%' OR type = 'view' AND (lower(name) <> :table OR instr(:shared, sql || ';') = 0))";

/* Whether a view is not, to the letter, one of this version's. */
static const char *const other_views_sql =
    "SELECT EXISTS(SELECT 1 FROM main.sqlite_schema WHERE type = 'view' AND instr(:views, sql) = 0"
    " AND instr(:shared, sql) = 0)";

/* 1, 0 or a negative errno. */
static int has_other_views(struct sl_db *db, const char *views, const char *shared, struct sl_error *error) {
  struct sl_statement *answer = NULL;
  int r = sl_db_prepare(db, other_views_sql, &answer, error);
  if (r < 0)
    return r;
  sl_bind_named_text(answer, ":views", views);
  sl_bind_named_text(answer, ":shared", shared);
  r = sl_statement_step(answer, error);
  if (r > 0)
    r = sl_column_int(answer, 0) != 0;
  answer = sl_statement_close(answer);
  return r;
}

/* Temporary views come before others of the same name, also within one another. */
static int views_replace(struct sl_db *db, const char *views, struct sl_error *error) {
  static const char make[] = "CREATE VIEW ", make_here[] = "CREATE TEMP VIEW ";
  size_t count = 0;
  for (const char *at = views; (at = strstr(at, make)); at += sizeof make - 1)
    count++;
  char *text = malloc(strlen(views) + count * (sizeof make_here - sizeof make) + 1), *end = text;
  if (!text)
    return sl_no_memory(error);
  const char *from = views;
  for (const char *at; (at = strstr(from, make)); from = at + sizeof make - 1) {
    end = mempcpy(end, from, (size_t)(at - from));
    end = stpcpy(end, make_here);
  }
  stpcpy(end, from);
  int r = sl_db_execute(db, text, error);
  free(text);
  return r;
}

/* Refuses a ledger that has something else by the name of a table. */
static int tables_check(struct sl_db *db, const char *path, const char *shared, struct sl_error *error) {
  struct sl_statement *answer = NULL;
  int r = sl_db_prepare(db, no_table_sql, &answer, error);
  if (r == 0)
    sl_bind_named_text(answer, ":shared", shared);
  for (int i = 0; i < SL_LEDGER_tables && r == 0; i++) {
    sl_bind_named_text(answer, ":table", sl_ledger_table_name((enum sl_ledger_table)i));
    r = sl_statement_step(answer, error);
    if (r > 0)
      r = sl_error_set(error, -EBADMSG, "%s is no ledger that shardledger made: '%s' is no table in it", path,
                       sl_column_text(answer, 0));
  }
  answer = sl_statement_close(answer);
  return r;
}

int sl_schema_check(struct sl_db *db, const char *path, struct sl_error *error) {
  char *views = sl_views_text(), *shared = sl_shared_views();
  int r = views && shared ? tables_check(db, path, shared, error) : sl_no_memory(error);
  if (r == 0)
    r = sl_shared_tables_open(db, error);
  /* Views in the file know nothing of tables that are not. */
  if (r == 0)
    r = has_other_views(db, views, shared, error);
  if (r > 0)
    r = views_replace(db, views, error);
  free(views);
  free(shared);
  return r;
}

int sl_schema_check_views(struct sl_db *db, struct sl_error *error) {
  char *views = sl_views_text(), *shared = sl_shared_views();
  int r = views && shared ? has_other_views(db, views, shared, error) : sl_no_memory(error);
  free(views);
  free(shared);
  return r > 0
             ? sl_error_set(error, -EBADMSG,
                            "%s has views that this version did not make; make it again with 'shardledger ingest DIR'",
                            sl_db_path(db))
             : r;
}
