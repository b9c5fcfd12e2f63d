/* The tables as SQL text, CREATE TABLE with comments and INSERT; and what follows the last row. */
#include "schema.h"

#include "db.h"
#include "row_source.h"
#include "schema_check.h"
#include "shared_tables.h"
#include "storage/rules/categories.h"
#include "storage/tables/sql_text.h"
#include "views.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs or compiles the text, and frees it. */
static int text_take(struct sl_db *db, sqlite3_str *text, struct sl_statement **out, struct sl_error *error) {
  char *sql = sqlite3_str_finish(text);
  int r = !sql ? sl_no_memory(error) : out ? sl_db_prepare(db, sql, out, error) : sl_db_execute(db, sql, error);
  sqlite3_free(sql);
  return r;
}

static int table_create(struct sl_db *db, const struct sl_table *table, struct sl_error *error) {
  sqlite3_str *text = sqlite3_str_new(NULL);
  sqlite3_str_appendf(text, "CREATE TABLE %s( -- %s\n", table->name, table->meaning);
  for (size_t i = 0; i < table->column_count; i++) {
    const struct sl_column *column = &table->columns[i];
    const bool is_last = i + 1 == table->column_count && !*table->constraints;
    sqlite3_str_appendf(text, "  %s %s%s%s%s\n", column->name, column->type, is_last ? "" : ",",
                        *column->meaning ? " -- " : "", column->meaning);
  }
  if (*table->constraints)
    sqlite3_str_appendf(text, "  %s\n", table->constraints);
  sqlite3_str_appendf(text, ") %s", table->options);
  return text_take(db, text, NULL, error);
}

int sl_schema_create(struct sl_db *db, struct sl_error *error) {
  int r = 0;
  for (int i = 0; i < SL_LEDGER_tables && r == 0; i++)
    r = table_create(db, sl_ledger_table((enum sl_ledger_table)i), error);
  return r;
}

/* Columns of kinds `later` and `later_share` are not inserted. */
static int insert_compile(struct sl_db *db, const struct sl_table *table, bool from_source, struct sl_statement **out,
                          struct sl_error *error) {
  sqlite3_str *text = sqlite3_str_new(NULL), *values = sqlite3_str_new(NULL);
  const char *separator = "";
  int cell = 0;
  sqlite3_str_appendf(text, "%s INTO %s(", table->verb, table->name);
  for (size_t i = 0; i < table->column_count; i++)
    if (!table->columns[i].is_later) {
      sqlite3_str_appendf(text, "%s%s", separator, table->columns[i].name);
      if (from_source)
        sqlite3_str_appendf(values, "%scell%d", separator, cell++);
      else
        sqlite3_str_appendf(values, "%s:%s", separator, table->columns[i].name);
      separator = ", ";
    }
  char *cells = sqlite3_str_finish(values);
  sqlite3_str_appendf(text, from_source ? ") SELECT %s FROM " SL_ROW_SOURCE : ") VALUES(%s)", cells ? cells : "");
  sqlite3_free(cells);
  return text_take(db, text, out, error);
}

int sl_schema_insert(struct sl_db *db, enum sl_ledger_table table, struct sl_statement **out, struct sl_error *error) {
  return insert_compile(db, sl_ledger_table(table), false, out, error);
}

int sl_schema_insert_all(struct sl_db *db, enum sl_ledger_table table, struct sl_statement **out,
                         struct sl_error *error) {
  return insert_compile(db, sl_ledger_table(table), true, out, error);
}

static int categories_insert(struct sl_db *db, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_schema_insert(db, SL_LEDGER_category, &row, error);
  for (int i = 0; i < SL_CATEGORY_built_in && r == 0; i++) {
    const struct sl_category_info *category = &sl_categories[i];
    const char letter[] = {category->letter, '\0'};
    sl_bind_named_text(row, ":name", category->name);
    sl_bind_named_text(row, ":fsdp_word", category->fsdp_word);
    sl_bind_named_text(row, ":tracker_word", category->tracker_word);
    sl_bind_named_int(row, ":place", i);
    sl_bind_named_int(row, ":layer", category->layer);
    sl_bind_named_text(row, ":letter", letter);
    sl_bind_named_text(row, ":colour", category->colour);
    sl_bind_named_text(row, ":meaning", category->meaning);
    r = sl_statement_run(row, error);
  }
  sl_statement_close(row);
  return r;
}

static int views_create(struct sl_db *db, struct sl_error *error) {
  char *text = sl_views_text();
  int r = text ? sl_db_execute(db, text, error) : sl_no_memory(error);
  free(text);
  return r;
}

int sl_schema_finish(struct sl_db *db, struct sl_error *error) {
  int r = sl_db_execute(db, sl_indexes_sql, error);
  if (r == 0)
    r = categories_insert(db, error);
  if (r == 0)
    r = sl_shared_tables_finish(db, error);
  if (r == 0)
    r = views_create(db, error);
  if (r == 0)
    r = sl_schema_check(db, sl_db_path(db), error);
  return r < 0 ? r : sl_db_execute(db, sl_meetings_sql, error);
}
