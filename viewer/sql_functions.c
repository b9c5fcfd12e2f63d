/* Adds our SQL functions to a ledger that a command opens. */
#include "sql_functions.h"

#include "storage/rank_ranges.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void rank_ranges_step(sqlite3_context *context, int count, sqlite3_value **values) {
  struct sl_rank_ranges *ranges = sqlite3_aggregate_context(context, sizeof *ranges); /* zeroed */
  sqlite3_value *last = values[count - 1];
  if (sqlite3_value_type(values[0]) == SQLITE_NULL || sqlite3_value_type(last) == SQLITE_NULL)
    return;
  if (!ranges || sl_rank_ranges_add(ranges, sqlite3_value_int64(values[0]), sqlite3_value_int64(last)) < 0)
    sqlite3_result_error_nomem(context);
}

static void rank_ranges_end(sqlite3_context *context) {
  struct sl_rank_ranges *ranges = sqlite3_aggregate_context(context, 0);
  if (!ranges)
    return;
  if (ranges->count) {
    char *text = sl_rank_ranges_text(ranges, 0);
    if (text)
      sqlite3_result_text(context, text, -1, free);
    else
      sqlite3_result_error_nomem(context);
  }
  free(ranges->list);
}

static void rank_in(sqlite3_context *context, int count, sqlite3_value **values) {
  const char *ranges = (const char *)sqlite3_value_text(values[1]);
  sqlite3_result_int(context, sl_rank_ranges_has(ranges, sqlite3_value_int64(values[0])));
}

/* "train.py:88": of an installed package's file the path within the packages. */
static void code_place(sqlite3_context *context, int count, sqlite3_value **values) {
  static const char *const packages[] = {"/site-packages/", "/dist-packages/"};
  const char *file = (const char *)sqlite3_value_text(values[0]);
  if (!file)
    return;
  for (size_t i = 0; i < sizeof packages / sizeof packages[0]; i++) {
    const char *at = strstr(file, packages[i]);
    file = at ? at + strlen(packages[i]) : file;
  }
  const bool has_line = sqlite3_value_type(values[1]) != SQLITE_NULL;
  char *text =
      has_line ? sqlite3_mprintf("%s:%lld", file, sqlite3_value_int64(values[1])) : sqlite3_mprintf("%s", file);
  if (text)
    sqlite3_result_text(context, text, -1, sqlite3_free);
  else
    sqlite3_result_error_nomem(context);
}

/* A line of a text file, from 1, without what it begins with in blanks; NULL where it can't be read. */
static char *line_of_file(const char *path, int64_t number) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length = -1;
  struct stat about;
  FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "re") : NULL;
  for (int64_t i = 0; file && i < number && (length = getline(&line, &capacity, file)) >= 0; i++)
    continue;
  if (file)
    fclose(file);
  if (length < 0) {
    free(line);
    return NULL;
  }
  line[strcspn(line, "\r\n")] = '\0';
  memmove(line, line + strspn(line, " \t"), strlen(line + strspn(line, " \t")) + 1);
  return line;
}

static void source_line(sqlite3_context *context, int count, sqlite3_value **values) {
  const char *path = (const char *)sqlite3_value_text(values[0]);
  char *line = path ? line_of_file(path, sqlite3_value_int64(values[1])) : NULL;
  if (line)
    sqlite3_result_text(context, line, -1, free);
}

int sl_add_functions(struct sl_db *db, struct sl_error *error) {
  const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
  for (int values = 1; values <= 2; values++)
    if (sqlite3_create_function(sl_db_handle(db), "rank_ranges", values, flags, NULL, NULL, rank_ranges_step,
                                rank_ranges_end) != SQLITE_OK)
      return sl_no_memory(error);
  if (sqlite3_create_function(sl_db_handle(db), "rank_in", 2, flags, NULL, rank_in, NULL, NULL) != SQLITE_OK)
    return sl_no_memory(error);
  if (sqlite3_create_function(sl_db_handle(db), "code_place", 2, flags, NULL, code_place, NULL, NULL) != SQLITE_OK)
    return sl_no_memory(error);
  if (sqlite3_create_function(sl_db_handle(db), "source_line", 2, SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL, source_line,
                              NULL, NULL) != SQLITE_OK)
    return sl_no_memory(error);
  return 0;
}
