/* An assistant's SQL may be anything: what it takes is limited, and what is missing from the answer is said. */
#include "one_question.h"
#include "output/text.h"
#include "serve/mcp_tools.h"
#include "storage/memory_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS = 10, CHECK_EVERY = 10000 /* of SQLite's instructions */ };
#define MEMORY_BYTES (512ll << 20)

static int is_too_late(void *context) {
  const struct timespec *until = context;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

static void put_value(FILE *file, struct sl_statement *statement, int column) {
  int bytes = 0;
  switch (sl_column_type(statement, column)) {
  case SL_VALUE_null: fputs("null", file); break;
  case SL_VALUE_int: fprintf(file, "%" PRId64, sl_column_int(statement, column)); break;
  case SL_VALUE_double:
    if (isfinite(sl_column_double(statement, column)))
      fprintf(file, "%.17g", sl_column_double(statement, column));
    else
      fputs(sl_column_double(statement, column) > 0 ? "\"Infinity\"" : "\"-Infinity\"", file);
    break;
  case SL_VALUE_text: sl_json_text(file, sl_column_text(statement, column)); break;
  case SL_VALUE_blob:
    sl_column_blob(statement, column, &bytes);
    fprintf(file, "\"(%d bytes)\"", bytes);
    break;
  }
}

/* One row as an array of its own. NULL: no memory. */
static char *row_text(struct sl_statement *statement, size_t *bytes) {
  struct sl_memory_file text;
  FILE *file = sl_memory_file_open(&text);
  if (!file)
    return NULL;
  for (int i = 0; i < sl_column_count(statement); i++) {
    fputc(i ? ',' : '[', file);
    put_value(file, statement, i);
  }
  fputc(']', file);
  return sl_memory_file_close(&text, bytes);
}

static int put_rows(struct sl_statement *statement, int64_t limit, FILE *answer, struct sl_error *error) {
  const char *truncated = "false";
  size_t bytes = 0, all = 0;
  int64_t rows = 0;
  int r = 0;
  fputs("\"columns\":[", answer);
  for (int i = 0; i < sl_column_count(statement); i++) {
    fputs(i ? "," : "", answer);
    sl_json_text(answer, sl_column_name(statement, i));
  }
  fputs("],\"rows\":[", answer);
  while ((r = sl_statement_step(statement, error)) > 0) {
    if (rows == limit) {
      truncated = "\"rows\"";
      break;
    }
    char *row = row_text(statement, &bytes);
    if (!row)
      return sl_no_memory(error);
    all += bytes + 1;
    if (all <= SL_MCP_BYTES)
      fprintf(answer, "%s%s", rows++ ? "," : "", row);
    free(row);
    if (all > SL_MCP_BYTES) {
      truncated = "\"bytes\"";
      break;
    }
  }
  fprintf(answer, "],\"row_count\":%" PRId64 ",\"truncated\":%s", rows, truncated);
  return r < 0 ? r : 0;
}

int sl_mcp_query(struct sl_db *db, const char *sql, int64_t rows, FILE *answer, struct sl_error *error) {
  struct sqlite3 *handle = sl_db_handle(db);
  struct sl_statement *statement = NULL;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += SECONDS;
  const sqlite3_int64 memory = sqlite3_hard_heap_limit64(sqlite3_memory_used() + MEMORY_BYTES);
  const int length = sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, 64 * SL_MCP_BYTES);
  sqlite3_progress_handler(handle, CHECK_EVERY, is_too_late, &until);
  int r = sl_question_prepare(db, sql, &statement, error);
  if (r == 0) {
    fputs("{\"sql\":", answer);
    sl_json_text(answer, sql);
    fputc(',', answer);
    r = put_rows(statement, rows, answer, error);
    fputc('}', answer);
  }
  statement = sl_statement_close(statement);
  if (r < 0 && is_too_late(&until))
    sl_error_set(error, r, "the statement was stopped after %d s; ask for less, such as one rank or one step", SECONDS);
  else if (r == -ENOMEM)
    sl_error_set(error, r, "the statement needs more than %lld MiB of memory; ask for less", MEMORY_BYTES >> 20);
  sqlite3_progress_handler(handle, 0, NULL, NULL);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, length);
  sqlite3_hard_heap_limit64(memory);
  sl_question_allow_all(db);
  return r;
}
