/* Reads when operators last used each allocation of a tape. */
#include "tape_uses.h"

#include "storage/tables/sql_text.h"

#include <stdlib.h>

int sl_tape_uses(struct sl_db *db, const struct sl_tape *tape, struct sl_tape_use **out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  size_t next = 0;
  *out = calloc(tape->recorded_count + 1, sizeof **out);
  if (!*out)
    return sl_no_memory(error);
  int r = sl_db_ask(db, sl_tape_uses_sql, SL_WITH(SL_NUMBER(":rank", tape->rank)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) { /* both by their ids */
    while (next < tape->recorded_count && tape->allocations[next].id < sl_column_int(row, 0))
      next++;
    if (next < tape->recorded_count && tape->allocations[next].id == sl_column_int(row, 0))
      (*out)[next] = (struct sl_tape_use){(uint64_t)sl_column_int(row, 1), (uint64_t)sl_column_int(row, 2)};
  }
  row = sl_statement_close(row);
  return r;
}
