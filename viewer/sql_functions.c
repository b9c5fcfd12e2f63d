#include "sql_functions.h"

#include "storage/rank_ranges.h"

#include <sqlite3.h>
#include <stdlib.h>

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

int sl_add_functions(struct sl_db *db, struct sl_error *error) {
  const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
  for (int values = 1; values <= 2; values++)
    if (sqlite3_create_function(sl_db_handle(db), "rank_ranges", values, flags, NULL, NULL, rank_ranges_step,
                                rank_ranges_end) != SQLITE_OK)
      return sl_no_memory(error);
  return 0;
}
