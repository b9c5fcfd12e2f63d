/*
 * The file that tells Datasette what a ledger holds (datasette LEDGER --metadata FILE): meanings and units of tables,
 * views and columns as tables.def and views/ have them, what names a row, and the questions of docs/queries.md.
 */
#include "exports/export.h"
#include "output/text.h"
#include "questions_page.h"
#include "storage/tables/views.h"
#include "viewer_sql.h"

#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

struct table {
  const char *name, *meaning;
};
struct column {
  const char *table, *name, *meaning;
};

static const struct table tables[] = {
#define TABLE_BEGIN(table, verb, meaning) {#table, meaning},
#define COLUMN(kind, column, meaning)
#define TABLE_END(table, constraints, options)
#include "storage/tables/tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END
};

/* A row without a name is the next table. */
static const struct column columns[] = {
#define TABLE_BEGIN(table, verb, meaning) {#table, NULL, NULL},
#define COLUMN(kind, column, meaning) {NULL, #column, meaning},
#define TABLE_END(table, constraints, options)
#include "storage/tables/tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END
};

/* What stands for a row where others refer to it. */
static const struct {
  const char *table, *column;
} labels[] = {
    {"module", "fqn"}, {"phase", "name"}, {"frame", "function"}, {"allocation", "category"}, {"site", "operator_name"}};

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static const char *unit_of(const char *column) {
  if (strcmp(column, "bytes") == 0 || ends_with(column, "_bytes"))
    return "bytes";
  return ends_with(column, "_ns") ? "nanoseconds" : "";
}

static void entry(FILE *file, int *count, const char *key, const char *value) {
  fputs((*count)++ ? ", " : "", file);
  sl_json_text(file, key);
  fputs(": ", file);
  sl_json_text(file, value);
}

/* What a column means and counts, in words: Datasette's own units round what they show, and call an instant "1.8 Gs".
 */
static void write_column(FILE *file, int *count, const char *name, const char *meaning) {
  char both[1024];
  const char *unit = unit_of(name);
  snprintf(both, sizeof(both), *unit && *meaning ? "%s (%s)" : "%s%s", meaning, unit);
  if (*both)
    entry(file, count, name, both);
}

static const struct column *columns_of(const char *table) {
  const struct column *c = columns;
  while (!c->table || strcmp(c->table, table) != 0)
    c++;
  return c + 1;
}

static void write_table(FILE *file, const struct table *table) {
  const struct column *first = columns_of(table->name), *end = columns + sizeof(columns) / sizeof(columns[0]);
  int count = 0;
  fputs("{", file);
  entry(file, &count, "description", table->meaning);
  for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
    if (strcmp(labels[i].table, table->name) == 0)
      entry(file, &count, "label_column", labels[i].column);
  fputs(",\n     \"columns\": {", file);
  count = 0;
  for (const struct column *c = first; c < end && c->name; c++)
    write_column(file, &count, c->name, c->meaning);
  fputs("}}", file);
}

/* ---- views: what views/ says before each, and the columns that they have in this ledger ---- */

static int write_view(FILE *file, struct sl_db *db, const char *name, const char *meaning, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int count = 0, r = sl_db_ask(db, sl_sql_datasette_columns, SL_WITH(SL_WORD(":table", name)), &row, error);
  fputs(",\n    ", file);
  sl_json_text(file, name);
  fputs(": {", file);
  entry(file, &count, "description", meaning);
  fputs(",\n     \"columns\": {", file);
  count = 0;
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0)
    write_column(file, &count, sl_column_text(row, 0), "");
  fputs("}}", file);
  row = sl_statement_close(row);
  return r;
}

static int write_views(FILE *file, struct sl_db *db, struct sl_error *error) {
  struct sl_view view = {.rest = NULL};
  int r = 0;
  while (r == 0 && sl_view_next(&view))
    r = write_view(file, db, view.name, view.meaning, error);
  return r;
}

/* ---- questions ---- */

/* Those that need functions of `shardledger query` are left out. 0 or -ENOMEM, which was said. */
static int write_questions(FILE *file, struct sl_error *error) {
  struct sl_page_question question = {.sql = NULL};
  int count = 0, r = 0;
  while (r == 0 && sl_page_next_question(&question)) {
    char *title = strndup(question.heading, (size_t)question.heading_bytes),
         *sql = strndup(question.sql, (size_t)question.sql_bytes);
    char numbered[512];
    int entries = 0;
    r = title && sql ? 0 : sl_no_memory(error);
    if (r == 0 && !strstr(sql, "rank_ranges(")) {
      snprintf(numbered, sizeof(numbered), question.number > 1 ? "%s (%d)" : "%s", title, question.number);
      fprintf(file, "%s\n    \"%s\": {", count++ ? "," : "", question.id);
      entry(file, &entries, "title", numbered);
      entry(file, &entries, "sql", sql);
      fputs("}", file);
    }
    free(title);
    free(sql);
  }
  return r;
}

/* ---- the file ---- */

static int write_metadata(FILE *file, struct sl_db *db, const char *database, struct sl_error *error) {
  fputs(
      "{\"title\": \"ShardLedger\",\n \"description\": \"Sizes are bytes, times nanoseconds since the epoch.\",\n \"databases\": {",
      file);
  sl_json_text(file, database);
  fputs(": {\"tables\": {", file);
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    fputs(i ? ",\n    " : "\n    ", file);
    sl_json_text(file, tables[i].name);
    fputs(": ", file);
    write_table(file, &tables[i]);
  }
  int r = write_views(file, db, error);
  fputs("},\n   \"queries\": {", file);
  if (r >= 0)
    r = write_questions(file, error);
  fputs("}}}}\n", file);
  return r;
}

/* Datasette names a database after its file, less what follows the last dot. */
static char *database_name(const char *path) {
  char *name = strdup(basename(path));
  char *dot = name ? strrchr(name, '.') : NULL;
  if (dot && dot > name)
    *dot = '\0';
  return name;
}

int sl_export_datasette(struct sl_export *export, struct sl_error *error) {
  struct sl_export_file file;
  char *name = database_name(sl_db_path(export->db));
  int r = name ? 0 : sl_no_memory(error);
  if (r == 0)
    r = sl_export_begin_any(export->output, &file, error);
  if (r == 0)
    r = sl_export_end(&file, write_metadata(file.stream, export->db, name, error), error);
  free(name);
  return r;
}
