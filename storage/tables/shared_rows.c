/*
 * SQLite does not see through a view that `id = 5` asks for rank 0's row 5: the id there is a sum. This says so. A
 * condition on a column becomes one on own_phase and rank_rows, for which their indexes serve:
 *
 *   id = X           s.rank = X >> 40 AND o.id = X - ((s.rank - s.same_as) << 40)
 *   rank = X         s.rank = X
 *   start_ns < X     o.start_ns < X - s.later_ns
 *   kind = X         o.kind = X
 *
 * SQLite checks every condition again on the rows that come of it, so what is left out here costs time and no more.
 */
#include "shared_rows.h"

#include "db.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { POOLED = 8, CONDITIONS = 21 /* of one question: their types fit 64 bits */ };
enum { RANK_ROWS = 4000, ALL_ROWS = 100000000 }; /* SQLite believes a table of the ledger to have a million */

struct question { /* a compiled statement, by what it was made of */
  char *plan;
  uint64_t types; /* of the values, three bits each */
  sqlite3_stmt *statement;
};

struct rows_table {
  sqlite3_vtab base;
  sqlite3 *handle;
  const struct sl_shared_table *shared;
  const struct sl_table *table;
  struct question pool[POOLED]; /* not in use */
};

struct rows_cursor {
  sqlite3_vtab_cursor base;
  struct question question;
  bool has_row;
};

static struct rows_table *table_of(struct rows_cursor *cursor) {
  return (struct rows_table *)cursor->base.pVtab;
}

static void question_close(struct question *question) {
  sqlite3_finalize(question->statement);
  sqlite3_free(question->plan);
  *question = (struct question){0};
}

/* ---- the table ---- */

static int rows_connect(sqlite3 *handle, void *context, int count, const char *const *words, sqlite3_vtab **out,
                        char **error) {
  const struct sl_shared_table *shared = NULL;
  for (size_t i = 0; i < SL_SHARED_TABLES; i++)
    if (strcmp(sl_ledger_table_name(sl_shared_tables[i].table), words[2]) == 0)
      shared = &sl_shared_tables[i];
  if (!shared)
    return SQLITE_ERROR;
  const struct sl_table *table = sl_ledger_table(shared->table);
  struct rows_table *rows = sqlite3_malloc(sizeof *rows);
  sqlite3_str *sql = sqlite3_str_new(handle);
  for (size_t i = 0; i < table->column_count; i++)
    sqlite3_str_appendf(sql, "%s%s %.*s", i ? ", " : "CREATE TABLE x(", table->columns[i].name,
                        (int)strcspn(table->columns[i].type, " "), table->columns[i].type);
  sqlite3_str_appendall(sql, ")");
  char *text = sqlite3_str_finish(sql);
  int result = rows && text ? sqlite3_declare_vtab(handle, text) : SQLITE_NOMEM;
  sqlite3_free(text);
  if (result != SQLITE_OK) {
    sqlite3_free(rows);
    return result;
  }
  sqlite3_vtab_config(handle, SQLITE_VTAB_INNOCUOUS);
  memset(rows, 0, sizeof *rows);
  rows->handle = handle;
  rows->shared = shared;
  rows->table = table;
  *out = &rows->base;
  return SQLITE_OK;
}

static int rows_disconnect(sqlite3_vtab *base) {
  struct rows_table *rows = (struct rows_table *)base;
  for (int i = 0; i < POOLED; i++)
    question_close(&rows->pool[i]);
  sqlite3_free(rows);
  return SQLITE_OK;
}

/* ---- which rows: a plan is the columns asked for in hex, then of each condition "comparison column " ---- */

static const char *comparison_of(int constraint) {
  switch (constraint) {
  case SQLITE_INDEX_CONSTRAINT_EQ: return "=";
  case SQLITE_INDEX_CONSTRAINT_IS:
  case SQLITE_INDEX_CONSTRAINT_ISNULL: return "IS";
  case SQLITE_INDEX_CONSTRAINT_ISNOT:
  case SQLITE_INDEX_CONSTRAINT_ISNOTNULL: return "ISNOT";
  case SQLITE_INDEX_CONSTRAINT_NE: return "<>";
  case SQLITE_INDEX_CONSTRAINT_LT: return "<";
  case SQLITE_INDEX_CONSTRAINT_LE: return "<=";
  case SQLITE_INDEX_CONSTRAINT_GT: return ">";
  case SQLITE_INDEX_CONSTRAINT_GE: return ">=";
  default: return NULL;
  }
}

static int rows_plan(sqlite3_vtab *base, sqlite3_index_info *info) {
  const struct rows_table *rows = (struct rows_table *)base;
  bool by_rank = false, by_id = false;
  int more = 0;
  sqlite3_str *plan = sqlite3_str_new(rows->handle);
  sqlite3_str_appendf(plan, "%llx ", (unsigned long long)info->colUsed);
  for (int i = 0, used = 0; i < info->nConstraint; i++) {
    const struct sqlite3_index_constraint *constraint = &info->aConstraint[i];
    const char *comparison = comparison_of(constraint->op);
    if (used == CONDITIONS || !constraint->usable || !comparison || constraint->iColumn < 0 ||
        strcmp(sqlite3_vtab_collation(info, i), "BINARY") != 0)
      continue;
    const struct sl_column *column = &rows->table->columns[constraint->iColumn];
    const bool is_equal = constraint->op == SQLITE_INDEX_CONSTRAINT_EQ;
    by_id |= is_equal && column->shift == SL_SHIFT_id && constraint->iColumn == 0;
    by_rank |= is_equal && (column->shift == SL_SHIFT_rank || column->shift == SL_SHIFT_id);
    more += is_equal ? 2 : 1; /* how much it leaves out, for want of something better */
    info->aConstraintUsage[i].argvIndex = ++used;
    sqlite3_str_appendf(plan, "%s %d ", comparison, constraint->iColumn);
  }
  double count = by_id ? 1 : by_rank ? RANK_ROWS : ALL_ROWS;
  for (int i = 1; i < more; i++)
    count /= count > 4 ? 4 : 1;
  info->estimatedRows = (sqlite3_int64)count;
  info->estimatedCost = 20 + 3 * count;
  info->idxFlags = by_id ? SQLITE_INDEX_SCAN_UNIQUE : 0;
  info->idxStr = sqlite3_str_finish(plan);
  info->needToFreeIdxStr = 1;
  return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

/* A value that stands in another rank's row as it is, or moved. */
static bool is_comparable(const struct sl_column *column, sqlite3_value *value) {
  const int type = sqlite3_value_type(value);
  return type == SQLITE_NULL || (type == SQLITE_INTEGER && strncmp(column->type, "INTEGER", 7) == 0) ||
         (type == SQLITE_TEXT && strncmp(column->type, "TEXT", 4) == 0);
}

static bool is_equality(const char *comparison) {
  return strcmp(comparison, "=") == 0 || strcmp(comparison, "IS") == 0;
}

static void condition_add(sqlite3_str *sql, const struct sl_column *column, const char *comparison, int number,
                          bool is_null) {
  if (strcmp(comparison, "ISNOT") == 0)
    comparison = "IS NOT";
  switch (column->shift) {
  case SL_SHIFT_none: sqlite3_str_appendf(sql, " AND o.%s %s ?%d", column->name, comparison, number); return;
  case SL_SHIFT_rank: sqlite3_str_appendf(sql, " AND s.rank %s ?%d", comparison, number); return;
  case SL_SHIFT_instant:
    sqlite3_str_appendf(sql, " AND o.%s %s ?%d - s.later_ns", column->name, comparison, number);
    return;
  case SL_SHIFT_id:
    sqlite3_str_appendf(sql, " AND o.%s %s ?%d - ((s.rank - s.same_as) << 40)", column->name, comparison, number);
    if (!is_null && is_equality(comparison))
      sqlite3_str_appendf(sql, " AND s.rank = ?%d >> 40", number);
    return;
  }
}

/* Columns that nobody asks for are NULL; but for tables without a rowid, whose rows all columns tell apart. */
static void columns_add(sqlite3_str *sql, const struct rows_table *rows, sqlite3_uint64 used) {
  const bool has_rowid = !*rows->table->options;
  for (size_t i = 0; i < rows->table->column_count; i++) {
    const struct sl_column *column = &rows->table->columns[i];
    sqlite3_str_appendall(sql, i ? ", " : "SELECT ");
    if (has_rowid && !(used >> (i < 63 ? i : 63) & 1))
      sqlite3_str_appendall(sql, "NULL");
    else if (column->shift == SL_SHIFT_none)
      sqlite3_str_appendf(sql, "o.%s", column->name);
    else if (column->shift == SL_SHIFT_rank)
      sqlite3_str_appendall(sql, "s.rank");
    else if (column->shift == SL_SHIFT_id)
      sqlite3_str_appendf(sql, "o.%s + ((s.rank - s.same_as) << 40)", column->name);
    else
      sqlite3_str_appendf(sql, "o.%s + s.later_ns", column->name);
  }
  if (has_rowid)
    sqlite3_str_appendall(sql, rows->shared->has_id ? ", o.rowid + ((s.rank - s.same_as) << 40)"
                                                    : ", (s.rank << 40) + o.rowid");
}

/* The values come as ?1, ?2, …; those that are not comparable have no condition. */
static char *question_text(const struct rows_table *rows, const char *plan, sqlite3_value **values) {
  sqlite3_str *sql = sqlite3_str_new(rows->handle);
  char *at;
  columns_add(sql, rows, strtoull(plan, &at, 16));
  sqlite3_str_appendf(sql,
                      " FROM main.rank_rows s CROSS JOIN main.own_%s o ON o.rank = s.same_as WHERE s.tables = '%s'",
                      rows->table->name, sl_shared_word(rows->shared->shared));
  char comparison[6];
  int column, length;
  for (int number = 1; sscanf(at, " %5s %d%n", comparison, &column, &length) == 2; number++, at += length)
    if (is_comparable(&rows->table->columns[column], values[number - 1]))
      condition_add(sql, &rows->table->columns[column], comparison, number,
                    sqlite3_value_type(values[number - 1]) == SQLITE_NULL);
  return sqlite3_str_finish(sql);
}

/* ---- rows ---- */

static void question_give_back(struct rows_cursor *cursor) {
  struct rows_table *rows = table_of(cursor);
  if (cursor->question.statement)
    sqlite3_reset(cursor->question.statement);
  for (int i = 0; i < POOLED && cursor->question.statement; i++)
    if (!rows->pool[i].statement) {
      rows->pool[i] = cursor->question;
      cursor->question = (struct question){0};
    }
  question_close(&cursor->question);
}

static bool is_question(const struct question *question, const char *plan, uint64_t types) {
  return question->plan && question->types == types && strcmp(question->plan, plan) == 0;
}

static int question_take(struct rows_cursor *cursor, const char *plan, uint64_t types, sqlite3_value **values) {
  struct rows_table *rows = table_of(cursor);
  if (is_question(&cursor->question, plan, types)) {
    sqlite3_reset(cursor->question.statement);
    return SQLITE_OK;
  }
  question_give_back(cursor);
  for (int i = 0; i < POOLED; i++)
    if (is_question(&rows->pool[i], plan, types)) {
      cursor->question = rows->pool[i];
      rows->pool[i] = (struct question){0};
      return SQLITE_OK;
    }
  char *sql = question_text(rows, plan, values);
  cursor->question = (struct question){sqlite3_mprintf("%s", plan), types, NULL};
  int result = SQLITE_NOMEM;
  if (sql && cursor->question.plan)
    result = sqlite3_prepare_v3(rows->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &cursor->question.statement, NULL);
  sqlite3_free(sql);
  return result;
}

static int rows_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
  struct rows_cursor *cursor = sqlite3_malloc(sizeof *cursor);
  if (!cursor)
    return SQLITE_NOMEM;
  memset(cursor, 0, sizeof *cursor);
  *out = &cursor->base;
  return SQLITE_OK;
}

static int rows_close(sqlite3_vtab_cursor *base) {
  question_give_back((struct rows_cursor *)base);
  sqlite3_free(base);
  return SQLITE_OK;
}

static int told(struct rows_cursor *cursor, int result) {
  if (result == SQLITE_OK || result == SQLITE_NOMEM)
    return result;
  struct rows_table *rows = table_of(cursor);
  sqlite3_free(rows->base.zErrMsg);
  rows->base.zErrMsg = sqlite3_mprintf("own_%s: %s", rows->table->name, sqlite3_errmsg(rows->handle));
  return result;
}

static int rows_next(sqlite3_vtab_cursor *base) {
  struct rows_cursor *cursor = (struct rows_cursor *)base;
  const int result = sqlite3_step(cursor->question.statement);
  cursor->has_row = result == SQLITE_ROW;
  if (cursor->has_row)
    return SQLITE_OK;
  return told(cursor, sqlite3_reset(cursor->question.statement));
}

static int rows_filter(sqlite3_vtab_cursor *base, int number, const char *plan, int count, sqlite3_value **values) {
  struct rows_cursor *cursor = (struct rows_cursor *)base;
  uint64_t types = 0;
  for (int i = 0; i < count; i++)
    types = types << 3 | (uint64_t)sqlite3_value_type(values[i]);
  int result = question_take(cursor, plan, types, values);
  for (int i = 0; i < count && result == SQLITE_OK; i++)
    if (i < sqlite3_bind_parameter_count(cursor->question.statement))
      result = sqlite3_bind_value(cursor->question.statement, i + 1, values[i]);
  return result == SQLITE_OK ? rows_next(base) : told(cursor, result);
}

static int rows_end(sqlite3_vtab_cursor *base) {
  return !((struct rows_cursor *)base)->has_row;
}

static int rows_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column) {
  sqlite3_result_value(out, sqlite3_column_value(((struct rows_cursor *)base)->question.statement, column));
  return SQLITE_OK;
}

/* Of a table without one: of 2^64, what all of its columns come to. */
static int rows_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out) {
  struct rows_cursor *cursor = (struct rows_cursor *)base;
  const struct rows_table *rows = table_of(cursor);
  const int count = (int)rows->table->column_count;
  *out = 0;
  if (!*rows->table->options)
    *out = sqlite3_column_int64(cursor->question.statement, count);
  for (int i = 0; i < count && *rows->table->options; i++) {
    const void *text = sqlite3_column_text(cursor->question.statement, i);
    *out = (sqlite3_int64)XXH3_64bits_withSeed(text ? text : "",
                                               (size_t)sqlite3_column_bytes(cursor->question.statement, i),
                                               (XXH64_hash_t)*out + (text ? 1 : 0));
  }
  return SQLITE_OK;
}

static const sqlite3_module module = {
    .xCreate = rows_connect,
    .xConnect = rows_connect,
    .xBestIndex = rows_plan,
    .xDisconnect = rows_disconnect,
    .xDestroy = rows_disconnect,
    .xOpen = rows_open,
    .xClose = rows_close,
    .xFilter = rows_filter,
    .xNext = rows_next,
    .xEof = rows_end,
    .xColumn = rows_column,
    .xRowid = rows_rowid,
};

int sl_shared_rows_make(struct sl_db *db, const struct sl_shared_table *shared, bool first, struct sl_error *error) {
  char sql[100];
  if (first && sqlite3_create_module(sl_db_handle(db), "shared_rows", &module, NULL) != SQLITE_OK)
    return sl_no_memory(error);
  snprintf(sql, sizeof sql, "CREATE VIRTUAL TABLE temp.%s USING shared_rows", sl_ledger_table_name(shared->table));
  return sl_db_execute(db, sql, error);
}
