/* A virtual table of SQLite's that is read from its first row to its last, and nothing else. */
#include "row_source.h"

#include "db.h"
#include "storage/grow.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
  sqlite3_vtab base;
  const struct sl_row_source *source;
};

struct cursor {
  sqlite3_vtab_cursor base;
  const struct sl_row_source *source;
  size_t at;
};

static int table_connect(sqlite3 *handle, void *source, int count, const char *const *words, sqlite3_vtab **out,
                         char **error) {
  char sql[16 + SL_ROW_CELLS * 8] = "CREATE TABLE x(cell0";
  struct table *table = sqlite3_malloc(sizeof *table);
  if (!table)
    return SQLITE_NOMEM;
  *table = (struct table){.source = source};
  *out = &table->base;
  size_t length = strlen(sql);
  for (int i = 1; i < SL_ROW_CELLS; i++)
    length += (size_t)snprintf(sql + length, sizeof sql - length, ",cell%d", i);
  snprintf(sql + length, sizeof sql - length, ")");
  return sqlite3_declare_vtab(handle, sql);
}

static int table_disconnect(sqlite3_vtab *table) {
  sqlite3_free(table);
  return SQLITE_OK;
}

static int table_plan(sqlite3_vtab *table, sqlite3_index_info *plan) {
  return SQLITE_OK; /* there is one way only */
}

static int cursor_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
  struct cursor *cursor = sqlite3_malloc(sizeof *cursor);
  if (!cursor)
    return SQLITE_NOMEM;
  *cursor = (struct cursor){.source = ((const struct table *)table)->source};
  *out = &cursor->base;
  return SQLITE_OK;
}

static int cursor_close(sqlite3_vtab_cursor *cursor) {
  sqlite3_free(cursor);
  return SQLITE_OK;
}

static int cursor_begin(sqlite3_vtab_cursor *cursor, int plan, const char *name, int count, sqlite3_value **values) {
  ((struct cursor *)cursor)->at = 0;
  return SQLITE_OK;
}

static int cursor_next(sqlite3_vtab_cursor *cursor) {
  ((struct cursor *)cursor)->at++;
  return SQLITE_OK;
}

static int cursor_is_at_end(sqlite3_vtab_cursor *cursor) {
  const struct cursor *at = (const struct cursor *)cursor;
  return at->at >= at->source->count;
}

static int cursor_cell(sqlite3_vtab_cursor *cursor, sqlite3_context *out, int cell) {
  const struct cursor *at = (const struct cursor *)cursor;
  const struct sl_row *row = at->source->rows[at->at];
  switch (sl_row_kind(row, cell)) {
  case SL_CELL_number: sqlite3_result_int64(out, row->cells[cell].number); break;
  case SL_CELL_text: sqlite3_result_text(out, row->cells[cell].text, -1, SQLITE_STATIC); break;
  case SL_CELL_nothing: break; /* NULL, as long as nothing is said */
  }
  return SQLITE_OK;
}

static int cursor_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out) {
  *out = (sqlite3_int64)((const struct cursor *)cursor)->at;
  return SQLITE_OK;
}

int sl_row_source_attach(struct sl_row_source *source, struct sl_db *db, struct sl_error *error) {
  static const sqlite3_module module = {.xConnect = table_connect, /* and no xCreate: there is one without a CREATE */
                                        .xBestIndex = table_plan,
                                        .xDisconnect = table_disconnect,
                                        .xOpen = cursor_open,
                                        .xClose = cursor_close,
                                        .xFilter = cursor_begin,
                                        .xNext = cursor_next,
                                        .xEof = cursor_is_at_end,
                                        .xColumn = cursor_cell,
                                        .xRowid = cursor_rowid};
  return sqlite3_create_module(sl_db_handle(db), SL_ROW_SOURCE, &module, source) == SQLITE_OK ? 0 : sl_no_memory(error);
}

int sl_row_source_add(struct sl_row_source *source, const struct sl_row *row) {
  const struct sl_row **added = SL_LIST_ADD_ROOM(source->rows, source->count, &source->capacity);
  if (!added)
    return -ENOMEM;
  *added = row;
  return 0;
}

struct key {
  const unsigned char *cells;
  size_t count;
};

static int compare(const void *left, const void *right, void *context) {
  const struct sl_row *a = *(const struct sl_row *const *)left, *b = *(const struct sl_row *const *)right;
  const struct key *key = context;
  for (size_t i = 0; i < key->count; i++) {
    const union sl_cell *x = &a->cells[key->cells[i]], *y = &b->cells[key->cells[i]];
    const bool is_text = sl_row_kind(a, key->cells[i]) == SL_CELL_text;
    const int order = is_text ? strcmp(x->text, y->text) : (x->number > y->number) - (x->number < y->number);
    if (order)
      return order;
  }
  return (a > b) - (a < b); /* they lie in memory as they were added */
}

void sl_row_source_sort(struct sl_row_source *source, const unsigned char *cells, size_t count) {
  struct key key = {cells, count};
  qsort_r(source->rows, source->count, sizeof *source->rows, compare, &key);
}

void sl_row_source_free(struct sl_row_source *source) {
  free(source->rows);
  *source = (struct sl_row_source){0};
}
