/* The tables that ranks share, in the ledger's schema: own_phase, and phase as a view of it. */
#include "shared_tables.h"

#include "db.h"
#include "shared_rows.h"
#include "storage/memory_file.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * A column of the rank in s, made of the row in o. A sum is no column with a type, which SQLite would compare '5' with
 * as a number: the cast gives it that, by a word that means 64 bits to other engines, too.
 */
static void column_add(FILE *sql, const struct sl_column *column) {
  switch (column->shift) {
  case SL_SHIFT_none: fprintf(sql, "o.%s", column->name); return;
  case SL_SHIFT_rank: fprintf(sql, "s.rank AS rank"); return;
  case SL_SHIFT_id:
    fprintf(sql, "CAST(o.%s + ((s.rank - s.same_as) << 40) AS BIGINT) AS %s", column->name, column->name);
    return;
  case SL_SHIFT_instant: fprintf(sql, "CAST(o.%s + s.later_ns AS BIGINT) AS %s", column->name, column->name); return;
  }
}

/*
 * Of rows with ids: the own ones, and those of ranks that have none. SQLite then makes an index of its own where a
 * query looks for ids. The others in one go, which it resolves to the table's own index, by rank.
 */
static void view_add(FILE *sql, const struct sl_shared_table *shared) {
  const struct sl_table *table = sl_ledger_table(shared->table);
  fprintf(sql, "CREATE VIEW %s AS", table->name);
  if (shared->has_id) {
    for (size_t i = 0; i < table->column_count; i++)
      fprintf(sql, "%s %s", i ? "," : " SELECT", table->columns[i].name);
    fprintf(sql, " FROM own_%s\nUNION ALL", table->name);
  }
  for (size_t i = 0; i < table->column_count; i++) {
    fputs(i ? ", " : " SELECT ", sql);
    column_add(sql, &table->columns[i]);
  }
  fprintf(sql, "\nFROM rank_rows s JOIN own_%s o ON o.rank = s.same_as WHERE s.tables = '%s'%s;\n", table->name,
          sl_shared_word(shared->shared), shared->has_id ? " AND s.same_as <> s.rank" : "");
}

/* Of all tables, or those of one kind. */
static char *views_text(int shared) {
  struct sl_memory_file text;
  FILE *sql = sl_memory_file_open(&text);
  if (!sql)
    return NULL;
  for (size_t i = 0; i < SL_SHARED_TABLES; i++)
    if (shared < 0 || (int)sl_shared_tables[i].shared == shared)
      view_add(sql, &sl_shared_tables[i]);
  return sl_memory_file_close(&text, NULL);
}

char *sl_shared_views(void) {
  return views_text(-1);
}

static int tables_rename(struct sl_db *db, enum sl_shared shared, struct sl_error *error) {
  int r = 0;
  for (size_t i = 0; i < SL_SHARED_TABLES && r == 0; i++) {
    const char *name = sl_ledger_table_name(sl_shared_tables[i].table);
    char sql[100];
    snprintf(sql, sizeof sql, "ALTER TABLE %s RENAME TO own_%s", name, name);
    if (sl_shared_tables[i].shared == shared)
      r = sl_db_execute(db, sql, error);
  }
  char *views = r == 0 ? views_text((int)shared) : NULL;
  if (r == 0)
    r = views ? sl_db_execute(db, views, error) : sl_no_memory(error);
  free(views);
  return r;
}

int sl_shared_tables_finish(struct sl_db *db, struct sl_error *error) {
  int r = 0;
  for (enum sl_shared shared = 0; shared < SL_SHARED_count && r == 0; shared++) {
    const struct sl_parameter *which = SL_WITH(SL_WORD(":tables", sl_shared_word(shared)));
    struct sl_statement *repeats = NULL;
    r = sl_db_ask_first(db, "SELECT 1 FROM rank_rows WHERE tables = :tables AND same_as <> rank LIMIT 1", which,
                        &repeats, error);
    repeats = sl_statement_close(repeats);
    if (r == 0)
      r = sl_db_tell(db, "DELETE FROM rank_rows WHERE tables = :tables", which, error);
    else if (r > 0)
      r = tables_rename(db, shared, error);
  }
  return r;
}

int sl_shared_tables_open(struct sl_db *db, struct sl_error *error) {
  struct sl_statement *has = NULL;
  bool any = false;
  int r = sl_db_prepare(db, "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'own_' || :table", &has,
                        error);
  for (size_t i = 0; i < SL_SHARED_TABLES && r >= 0; i++) {
    sl_bind_named_text(has, ":table", sl_ledger_table_name(sl_shared_tables[i].table));
    r = sl_statement_step(has, error);
    sl_statement_reset(has);
    if (r > 0)
      r = sl_shared_rows_make(db, &sl_shared_tables[i], !any, error);
    else
      continue;
    any = true;
  }
  has = sl_statement_close(has);
  return r < 0 ? r : any;
}
