/* Nsight Systems' SQLite schema: nsys_schema.sql has its tables, nsys_fill.sql fills all but the NVTX ranges. */
#include "exports/demangle.h"
#include "exports/export.h"
#include "sql_functions.h"
#include "storage/part_file.h"
#include "storage/tables/schema_check.h"
#include "viewer_sql.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NVTX_PUSH_POP = 59, NVTX_START_END = 60 };

static void kernel_name(sqlite3_context *context, int count, sqlite3_value **values) {
  const char *name = (const char *)sqlite3_value_text(values[0]);
  char *written = sl_demangle(name ? name : "");
  char *result = written && sqlite3_user_data(context) ? sl_short_name(written) : NULL;
  if (!written || (sqlite3_user_data(context) && !result))
    sqlite3_result_error_nomem(context);
  else
    sqlite3_result_text(context, result ? result : written, -1, SQLITE_TRANSIENT);
  free(written);
  free(result);
}

/* In a WHERE clause: true, and one row further. Its argument has to come from the row: of a constant SQLite asks once.
 */
static void progress(sqlite3_context *context, int count, sqlite3_value **values) {
  sl_export_progress(sqlite3_user_data(context));
  sqlite3_result_int(context, 1);
}

/* The ledger may be anybody's file: nothing in its schema is trusted. */
static int prepare_database(struct sl_db *db, struct sl_export *export, struct sl_error *error) {
  struct sl_statement *attach = NULL;
  sqlite3 *handle = sl_db_handle(db);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
  int result = sqlite3_create_function(handle, "kernel_name", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, kernel_name,
                                       NULL, NULL);
  if (result == SQLITE_OK)
    result = sqlite3_create_function(handle, "short_name", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, "", kernel_name, NULL,
                                     NULL);
  if (result == SQLITE_OK)
    result = sqlite3_create_function(handle, "progress", 1, SQLITE_UTF8, export, progress, NULL, NULL);
  if (result != SQLITE_OK)
    return sl_no_memory(error);

  /* The file takes its place only when it is whole: a journal would serve nobody. */
  int r = sl_db_execute(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", error);
  if (r == 0)
    r = sl_db_prepare(db, "ATTACH :path AS ledger", &attach, error);
  if (r == 0) {
    sl_bind_named_text(attach, ":path", sl_db_attach_path(export->db));
    r = sl_statement_run(attach, error);
  }
  if (r == 0)
    r = sl_add_functions(db, error);
  if (r == 0)
    r = sl_db_tell(db, sl_sql_export_choose, SL_WITH(SL_WORD(":ranks", export->ranks)), error);
  attach = sl_statement_close(attach);
  return r;
}

static int write_ranges_of(struct sl_export *export, struct sl_statement *process, struct sl_statement *phases,
                           struct sl_statement *insert, struct sl_error *error) {
  struct sl_nesting nesting = {.depth = 0};
  int64_t zero = sl_column_int(process, 1), process_bits = sl_column_int(process, 2), thread = -1;
  int r = 0;
  sl_bind_named_int(phases, ":rank", sl_column_int(process, 0));
  while ((r = sl_statement_step(phases, error)) > 0) {
    int64_t tid = sl_column_int(phases, SL_PHASE_tid);
    int64_t start = sl_column_int(phases, SL_PHASE_start), end = sl_column_int(phases, SL_PHASE_end);
    if (end == start)
      end++; /* readers drop or divide by ranges of no length */
    if (tid != thread)
      nesting.depth = 0;
    thread = tid;
    /* Modules' backward ranges cross each other; those that do are start/end ranges, as they were in NVTX. */
    bool nests = sl_nesting_fits(&nesting, start, end);
    int64_t global_tid = process_bits | (tid & 0xffffff);
    sl_bind_named_int(insert, ":start", start - zero);
    sl_bind_named_int(insert, ":end", end - zero);
    sl_bind_named_int(insert, ":type", nests ? NVTX_PUSH_POP : NVTX_START_END);
    sl_bind_named_int(insert, ":id", sl_column_int(phases, SL_PHASE_id));
    sl_bind_named_text(insert, ":kind", sl_column_text(phases, SL_PHASE_kind));
    sl_bind_named_text(insert, ":text", sl_column_text(phases, SL_PHASE_name));
    sl_bind_named_int(insert, ":thread", global_tid);
    if (nests)
      sl_bind_named_null(insert, ":end_thread");
    else
      sl_bind_named_int(insert, ":end_thread", global_tid);
    bool no_module = sl_column_is_null(phases, SL_PHASE_module);
    sl_bind_named_text(insert, ":module", no_module ? NULL : sl_column_text(phases, SL_PHASE_module));
    if (sl_column_is_null(phases, SL_PHASE_step))
      sl_bind_named_null(insert, ":step");
    else
      sl_bind_named_int(insert, ":step", sl_column_int(phases, SL_PHASE_step));
    sl_bind_named_int(insert, ":call", sl_column_int(phases, SL_PHASE_call_index));
    r = sl_statement_run(insert, error);
    if (r < 0)
      break;
    sl_export_progress(export);
  }
  return r;
}

static int write_ranges(struct sl_export *export, struct sl_db *db, struct sl_error *error) {
  struct sl_statement *processes = NULL, *phases = NULL, *insert = NULL;
  int r = sl_db_prepare(db, sl_sql_nsys_processes, &processes, error);
  if (r == 0)
    r = sl_db_prepare(export->db, sl_sql_export_phases, &phases, error);
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_nsys_range, &insert, error);
  while (r == 0 && (r = sl_statement_step(processes, error)) > 0)
    r = write_ranges_of(export, processes, phases, insert, error);
  processes = sl_statement_close(processes);
  phases = sl_statement_close(phases);
  insert = sl_statement_close(insert);
  return r;
}

int sl_export_nsys(struct sl_export *export, struct sl_error *error) {
  struct sl_db *db = NULL;
  struct sl_part_file part;
  int r = sl_schema_check_views(export->db, error);
  if (r < 0)
    return r;
  r = sl_part_file_make(export->output, &part, error);
  if (r < 0)
    return r;
  r = sl_db_open(part.path, SL_DB_WRITE, &db, error);
  if (r == 0)
    r = prepare_database(db, export, error);
  if (r == 0)
    r = sl_db_execute(db, "BEGIN", error);
  if (r == 0)
    r = sl_db_execute(db, sl_sql_nsys_schema, error);
  if (r == 0)
    r = sl_db_execute(db, sl_sql_nsys_fill, error);
  if (r == 0)
    r = write_ranges(export, db, error);
  if (r == 0)
    r = sl_db_execute(db, "COMMIT", error);
  db = sl_db_close(db);
  if (r == 0)
    r = sl_part_file_keep(&part, error);
  part = sl_part_file_close(part);
  return r;
}
