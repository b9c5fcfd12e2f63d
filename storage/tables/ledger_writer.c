/* A ledger being written: the file, its tables, rows that wait. What rows are made of is in ledger_rows.c. */
#include "ledger_writer.h"

#include "ledger_cells.h"
#include "schema.h"
#include "storage/ledger_options.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Sorting for indexes takes as much room as they do: in files, which SQLite unlinks as it makes them, and not in
 * memory; beside the ledger, where there has to be room anyway, and not in /tmp.
 */
static int sort_beside(struct sl_db *db, struct sl_error *error) {
  const char *path = sl_db_attach_path(db);
  const char *slash = strrchr(path, '/');
  char *sql = sqlite3_mprintf("PRAGMA temp_store_directory='%.*q'", slash == path ? 1 : (int)(slash - path), path);
  int r = sql ? sl_db_execute(db, sql, error) : sl_no_memory(error);
  sqlite3_free(sql);
  return r;
}

int sl_ledger_writer_open(const char *path, struct sl_ledger_writer **out, struct sl_error *error) {
  struct sl_ledger_writer *writer = calloc(1, sizeof *writer);
  if (!writer)
    return sl_no_memory(error);
  int r = sl_db_open(path, SL_DB_WRITE, &writer->db, error);
  if (r < 0)
    goto finish;
  /* The file is built beside the real one and renamed when it is whole, so it needs no journal of its own. */
  r = sl_db_execute(writer->db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE;", error);
  if (r == 0 && *path)
    r = sort_beside(writer->db, error);
  if (r == 0)
    r = sl_schema_create(writer->db, error);
  char version[64];
  snprintf(version, sizeof version, "PRAGMA user_version=%d", SL_LEDGER_VERSION);
  if (r == 0)
    r = sl_db_execute(writer->db, version, error);
  if (r == 0)
    r = sl_row_source_attach(&writer->source, writer->db, error);
finish:
  if (r < 0)
    writer = sl_ledger_writer_close(writer);
  *out = writer;
  return r;
}

/* A file without a name lies where those for sorting do: SQLite unlinks it as it makes it. */
int sl_ledger_writer_open_aside(struct sl_ledger_writer **out, struct sl_error *error) {
  return sl_ledger_writer_open("", out, error);
}

int sl_ledger_writer_move(struct sl_ledger_writer *aside, struct sl_ledger_writer *ledger, struct sl_error *error) {
  struct sl_statement *attach = NULL;
  int r = sl_db_prepare(aside->db, "ATTACH :path AS ledger", &attach, error);
  if (r < 0)
    return r;
  sl_bind_named_text(attach, ":path", sl_db_attach_path(ledger->db));
  r = sl_statement_run(attach, error);
  attach = sl_statement_close(attach);
  if (r == 0)
    r = sl_db_execute(aside->db, "PRAGMA ledger.journal_mode=OFF; PRAGMA ledger.synchronous=OFF; BEGIN", error);
  for (int i = 0; i < SL_LEDGER_tables && r == 0; i++) {
    const char *table = sl_ledger_table_name((enum sl_ledger_table)i);
    char sql[100];
    snprintf(sql, sizeof sql, "INSERT INTO ledger.%s SELECT * FROM main.%s", table, table);
    r = sl_db_execute(aside->db, sql, error);
  }
  return r < 0 ? r : sl_db_execute(aside->db, "COMMIT", error);
}

int sl_ledger_writer_listen(const struct sl_ledger_listener *listener, struct sl_ledger_writer **out,
                            struct sl_error *error) {
  struct sl_ledger_writer *writer = calloc(1, sizeof *writer);
  *out = writer;
  if (!writer)
    return sl_no_memory(error);
  writer->listener = *listener;
  return 0;
}

struct sl_ledger_writer *sl_ledger_writer_close(struct sl_ledger_writer *writer) {
  if (!writer)
    return NULL;
  for (int i = 0; i < SL_LEDGER_tables; i++)
    writer->inserts[i].statement = sl_statement_close(writer->inserts[i].statement);
  writer->db = sl_db_close(writer->db);
  sl_row_source_free(&writer->source);
  sl_rows_free(&writer->waiting);
  sl_rank_sums_clear(&writer->sums);
  sl_rank_share_free(&writer->share);
  free(writer->known.list);
  free(writer);
  return NULL;
}

int sl_ledger_writer_begin(struct sl_ledger_writer *writer, uint32_t rank, struct sl_error *error) {
  writer->rank = rank;
  writer->computes = false;
  memset(writer->ids, 0, sizeof writer->ids);
  sl_rank_sums_clear(&writer->sums);
  int r = sl_db_int(writer->db, "SELECT coalesce(max(rowid), 0) FROM kernel", &writer->kernels_before, error);
  if (r == 0)
    r = sl_rank_share_begin(&writer->share, writer->db, error);
  return r < 0 ? r : sl_db_execute(writer->db, "BEGIN", error);
}

int sl_ledger_writer_commit(struct sl_ledger_writer *writer, struct sl_error *error) {
  int r = sl_write_rank_sums(writer, error);
  if (r == 0)
    r = sl_ledger_writer_put(writer, &writer->waiting, error);
  return r < 0 ? r : sl_db_execute(writer->db, "COMMIT", error);
}

void sl_ledger_writer_compare(struct sl_ledger_writer *writer) {
  writer->share.on = true;
}

int sl_ledger_writer_share(struct sl_ledger_writer *writer, struct sl_ledger_writer *ledger, struct sl_error *error) {
  int r = 0;
  for (enum sl_shared shared = 0; shared < SL_SHARED_count && r == 0; shared++) {
    struct sl_known_rank same;
    bool has_rows;
    r = sl_rank_share_settle(&writer->share, shared, writer->rank, &ledger->known, writer->db, &has_rows, &same, error);
    if (r == 0 && has_rows)
      r = sl_put_rank_rows(writer,
                           &(struct sl_rank_rows_cells){
                               .tables = sl_shared_word(shared),
                               .same_as = same.rank,
                               .later_ns = shared == SL_SHARED_timed ? writer->share.base_ns - same.base_ns : 0},
                           error);
  }
  return r;
}

int sl_ledger_writer_finish(struct sl_ledger_writer *writer, struct sl_error *error) {
  return sl_schema_finish(writer->db, error);
}

struct sl_db *sl_ledger_writer_db(struct sl_ledger_writer *writer) {
  return writer->db;
}

uint32_t sl_ledger_writer_rank(const struct sl_ledger_writer *writer) {
  return writer->rank;
}

bool sl_ledger_writer_computes(const struct sl_ledger_writer *writer, int64_t *kernels_before) {
  *kernels_before = writer->kernels_before;
  return writer->computes;
}

/* ---- rows on their way ---- */

void sl_phase_row_ids(const struct sl_row *row, uint64_t *id, uint64_t *parent) {
  static const uint64_t local = ((uint64_t)1 << 40) - 1;
  *id = (uint64_t)row->cells[offsetof(struct sl_phase_places, id)].number & local;
  *parent = (uint64_t)row->cells[offsetof(struct sl_phase_places, parent_id)].number & local;
}

struct sl_rows *sl_ledger_writer_rows(struct sl_ledger_writer *writer) {
  return &writer->waiting;
}

int sl_ledger_writer_put(struct sl_ledger_writer *writer, struct sl_rows *rows, struct sl_error *error) {
  int r = 0;
  for (int i = 0; i < SL_LEDGER_tables; i++) {
    const enum sl_ledger_table table = (enum sl_ledger_table)i;
    if (r == 0 && rows->of[table].bytes && rows != &writer->waiting && writer->waiting.of[table].bytes)
      r = sl_rows_insert(writer, &writer->waiting, table, error);
    if (r == 0 && rows->of[table].bytes)
      r = sl_rows_insert(writer, rows, table, error);
  }
  sl_rows_clear(rows);
  return r;
}
