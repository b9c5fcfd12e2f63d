/* Reads the death that `oom` is about. */
#include "commands/oom_death.h"

#include "storage/allocator/allocator_config.h"
#include "viewer_sql.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>

/* segment_bytes(requested, allocator_config) */
static void segment_bytes(sqlite3_context *context, int count, sqlite3_value **values) {
  struct sl_allocator_config config;
  sl_allocator_config_parse((const char *)sqlite3_value_text(values[1]), &config);
  const uint64_t rounded = sl_allocator_round(&config, (uint64_t)sqlite3_value_int64(values[0]));
  sqlite3_result_int64(context, (int64_t)sl_allocator_segment(&config, rounded));
}

int sl_add_requests(struct sl_db *db, struct sl_error *error) {
  if (sqlite3_create_function(sl_db_handle(db), "segment_bytes", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                              segment_bytes, NULL, NULL) != SQLITE_OK)
    return sl_no_memory(error);
  int r = sl_db_execute(db, sl_sql_oom_request_view, error);
  return r < 0 ? r : sl_db_execute(db, sl_sql_oom_deaths_make, error);
}

int sl_read_request(struct sl_db *db, const struct sl_ranks *ranks, struct sl_death *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sl_sql_oom_first, SL_WITH(SL_RANKS(ranks)), &statement, error);
  if (r > 0) {
    *out = (struct sl_death){
        .rank = sl_column_int(statement, 0),
        .at_ns = sl_column_int(statement, 1),
        .step = sl_column_int(statement, 2),
        .phase = sl_column_int(statement, 3),
        .requested_bytes = sl_column_int(statement, 4),
        .free_bytes = sl_column_int(statement, 5),
        .free_known = !sl_column_is_null(statement, 5),
        .cached_bytes = sl_column_int(statement, 6),
        .allocated_bytes = sl_column_int(statement, 7),
        .reserved_bytes = sl_column_int(statement, 8),
        .allocated_known = !sl_column_is_null(statement, 7),
        .reserved_known = !sl_column_is_null(statement, 8),
        .largest_free_bytes = sl_column_int(statement, 9),
        .other_bytes = sl_column_int(statement, 10),
        .requests = sl_column_int(statement, 11),
        .ranks = sl_column_int(statement, 12),
        .deadly = sl_column_int(statement, 15),
    };
    snprintf(out->source, sizeof out->source, "%s", sl_column_text(statement, 13));
    snprintf(out->reason, sizeof out->reason, "%s", sl_column_text(statement, 14));
    out->wanted_bytes = sl_column_int(statement, 16);
    out->unordered = sl_column_int(statement, 17);
  }
  statement = sl_statement_close(statement);
  return r;
}
