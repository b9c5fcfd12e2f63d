#include "commands/oom_death.h"

#include "storage/allocator/allocator_config.h"
#include "viewer_sql.h"

#include <errno.h>
#include <sqlite3.h>

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
  return sl_db_execute(db, sl_sql_oom_request_view, error);
}
