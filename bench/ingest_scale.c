/*
 * How fast are logs made into a ledger, against what SQLite itself takes to insert the same rows?
 *
 *   ingest_scale RUN_DIRECTORY SCRATCH.sqlite [all|changes]
 *
 * Ingests the directory's logs in a child, whose time and memory are its own; then reads the ledger's rows into memory
 * and inserts them into an empty ledger, with prepared statements in one transaction, indexes and views included. Times
 * are of the processor (user and system), since others may use the machine, with the wall clock's behind them.
 */
#include "storage/ledger.h"
#include "storage/tables/db.h"
#include "storage/tables/ledger_writer.h"
#include "storage/tables/rows.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct cost {
  double processor_s, wall_s;
  long peak_kib;
};

static double wall_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds(const struct rusage *usage) {
  return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
         (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

static int fail(const struct sl_error *error) {
  fprintf(stderr, "ingest_scale: %s\n", error->text);
  return 1;
}

/* In a child: what it took. */
static int ingest(const char *directory, const char *output, bool keep_all, struct cost *out) {
  struct sl_ledger_options options = {.keep_all = keep_all};
  struct sl_error note = {{0}}, error = {{0}};
  struct rusage usage;
  int status = 0;
  double start = wall_now();
  pid_t child = fork();
  if (child == 0)
    _exit(sl_ledger_build(directory, output, &options, &note, &error) < 0 ? fail(&error) : 0);
  if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status != 0)
    return -1;
  *out = (struct cost){seconds(&usage), wall_now() - start, usage.ru_maxrss};
  return 0;
}

/* ---- SQLite alone ---- */

struct table {
  struct sl_rows rows;
  char **texts; /* owned copies of the rows' texts, each once in a row of equal ones */
  size_t text_count, text_capacity;
};

static const char *text_keep(struct table *table, const char *text) {
  for (size_t i = table->text_count; i-- > 0 && i + 64 > table->text_count;)
    if (strcmp(table->texts[i], text) == 0)
      return table->texts[i];
  if (table->text_count == table->text_capacity) {
    table->text_capacity = table->text_capacity ? 2 * table->text_capacity : 1024;
    table->texts = realloc(table->texts, table->text_capacity * sizeof *table->texts);
  }
  if (!table->texts || !(table->texts[table->text_count] = strdup(text)))
    exit(1);
  return table->texts[table->text_count++];
}

static void table_free(struct table *table) {
  for (size_t i = 0; i < table->text_count; i++)
    free(table->texts[i]);
  free(table->texts);
  sl_rows_free(&table->rows);
}

/* Columns of a row into a table's prepared INSERT; the sink of both halves of the comparison is SQLite. */
static int insert(struct sl_statement *statement, const struct sl_row *row, struct sl_error *error) {
  for (int i = 0; i < row->count; i++)
    switch (sl_row_kind(row, i)) {
    case SL_CELL_number: sl_bind_int(statement, i + 1, row->cells[i].number); break;
    case SL_CELL_text: sl_bind_text(statement, i + 1, row->cells[i].text); break;
    case SL_CELL_nothing: sl_bind_null(statement, i + 1); break;
    }
  return sl_statement_run(statement, error);
}

/* Copies one table; only the inserts are timed. Returns the number of rows, or a negative errno. */
static int64_t copy_table(struct sl_db *from, struct sl_db *to, const char *name, double *processor_s,
                          struct sl_error *error) {
  struct table table = {0};
  struct sl_statement *read = NULL, *write = NULL;
  struct rusage before, after;
  char sql[400];
  int64_t count = 0;
  snprintf(sql, sizeof sql, "SELECT * FROM %s", name);
  int r = sl_db_prepare(from, sql, &read, error);
  if (r < 0)
    return r;
  int columns = sl_column_count(read), length = snprintf(sql, sizeof sql, "INSERT INTO %s VALUES(", name);
  for (int i = 0; i < columns; i++)
    length += snprintf(sql + length, sizeof sql - (size_t)length, i ? ",?" : "?");
  snprintf(sql + length, sizeof sql - (size_t)length, ")");
  while ((r = sl_statement_step(read, error)) > 0) {
    struct sl_row row;
    sl_row_begin(&row, 0);
    for (int i = 0; i < columns; i++)
      switch (sl_column_type(read, i)) {
      case SL_VALUE_int: sl_row_put_number(&row, sl_column_int(read, i)); break;
      case SL_VALUE_text: sl_row_put_text(&row, text_keep(&table, sl_column_text(read, i))); break;
      default: sl_row_put_nothing(&row); break;
      }
    if (sl_rows_add(&table.rows, &row) < 0)
      exit(1);
    count++;
  }
  if (r == 0)
    r = sl_db_prepare(to, sql, &write, error);
  getrusage(RUSAGE_SELF, &before);
  const struct sl_row *row;
  for (size_t at = 0; r == 0 && (row = sl_rows_next(&table.rows, (enum sl_ledger_table)0, &at));)
    r = insert(write, row, error);
  getrusage(RUSAGE_SELF, &after);
  *processor_s += seconds(&after) - seconds(&before);
  read = sl_statement_close(read);
  write = sl_statement_close(write);
  table_free(&table);
  return r < 0 ? r : count;
}

/* Those that have rows of their own: the others are filled when a ledger is finished, here as there. */
static const char tables_sql[] = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' "
                                 "AND name NOT IN ('category', 'collective_meeting')";

static int64_t insert_all(const char *ledger, const char *scratch, double *processor_s, struct sl_error *error) {
  struct sl_ledger_writer *writer = NULL;
  struct sl_db *from = NULL;
  struct sl_statement *tables = NULL;
  struct rusage before, after;
  int64_t rows = 0;
  unlink(scratch);
  int r = sl_ledger_writer_open(scratch, &writer, error);
  if (r == 0)
    r = sl_db_open(ledger, SL_DB_READ, &from, error);
  if (r == 0)
    r = sl_ledger_writer_begin(writer, 0, error);
  if (r == 0)
    r = sl_db_prepare(from, tables_sql, &tables, error);
  while (r == 0 && (r = sl_statement_step(tables, error)) > 0) {
    int64_t count = copy_table(from, sl_ledger_writer_db(writer), sl_column_text(tables, 0), processor_s, error);
    r = count < 0 ? (int)count : 0;
    rows += count;
  }
  getrusage(RUSAGE_SELF, &before);
  if (r == 0)
    r = sl_db_execute(sl_ledger_writer_db(writer), "COMMIT",
                      error); /* without sums of a rank's rows: they are copied */
  if (r == 0)
    r = sl_ledger_writer_finish(writer, error);
  getrusage(RUSAGE_SELF, &after);
  *processor_s += seconds(&after) - seconds(&before);
  tables = sl_statement_close(tables);
  from = sl_db_close(from);
  writer = sl_ledger_writer_close(writer);
  unlink(scratch);
  return r < 0 ? r : rows;
}

int main(int argc, char **argv) {
  struct sl_error error = {{0}};
  struct sl_db *db = NULL;
  struct stat status;
  struct cost cost;
  char ledger[4096];
  int64_t events = 0;
  double sqlite_s = 0;
  if (argc < 3 || argc > 4) {
    fprintf(stderr, "usage: ingest_scale RUN_DIRECTORY SCRATCH.sqlite [all|changes]\n");
    return 2;
  }
  bool keep_all = argc == 3 || strcmp(argv[3], "all") == 0;
  snprintf(ledger, sizeof ledger, "%s.ledger", argv[2]);
  if (ingest(argv[1], ledger, keep_all, &cost) < 0)
    return 1;
  if (sl_db_open(ledger, SL_DB_READ, &db, &error) < 0 ||
      sl_db_int(db, "SELECT sum(events) FROM rank", &events, &error) < 0 || stat(ledger, &status) < 0)
    return fail(&error);
  db = sl_db_close(db);
  int64_t rows = insert_all(ledger, argv[2], &sqlite_s, &error);
  if (rows < 0)
    return fail(&error);
  printf("events            %lld\n", (long long)events);
  printf("ingest            %.2f s of processor, %.2f s of wall clock: %.0f events/s, %.0f rows/s\n", cost.processor_s,
         cost.wall_s, (double)events / cost.processor_s, (double)rows / cost.processor_s);
  printf("memory            %.1f MiB at most\n", (double)cost.peak_kib / 1024);
  printf("ledger            %.1f MiB, %lld rows\n", (double)status.st_size / (1 << 20), (long long)rows);
  printf("SQLite alone      %.2f s of processor for the same rows: %.0f rows/s\n", sqlite_s, (double)rows / sqlite_s);
  printf("ingest / SQLite   %.2f of its rate\n", sqlite_s / cost.processor_s);
  unlink(ledger);
  return 0;
}
