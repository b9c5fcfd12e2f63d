/* Reads from the ledger when gradients were cleared and backward ran. */
#include "tape_marks.h"

#include "storage/grow.h"
#include "storage/tables/sql_text.h"

#include <errno.h>

static int mark_add(struct sl_tape_marks *marks, struct sl_statement *row) {
  struct sl_tape_mark *added = SL_LIST_ADD(marks->items, marks->count);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_tape_mark){sl_column_int(row, 0), sl_column_int(row, 1) != 0, (uint64_t)sl_column_int(row, 2),
                                 (uint64_t)sl_column_int(row, 3)};
  return 0;
}

int sl_tape_marks(struct sl_db *db, uint32_t rank, struct sl_tape_marks *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  *out = (struct sl_tape_marks){0};
  int r = sl_db_ask(db, sl_tape_marks_sql, SL_WITH(SL_NUMBER(":rank", rank)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0)
    if ((r = mark_add(out, row)) < 0)
      r = sl_no_memory(error);
  row = sl_statement_close(row);
  return r;
}

size_t sl_tape_backwards(const struct sl_tape_marks *marks, int64_t step, const struct sl_tape_mark **last) {
  size_t count = 0;
  *last = NULL;
  for (size_t i = 0; i < marks->count; i++)
    if (marks->items[i].is_backward && marks->items[i].step == step) {
      *last = &marks->items[i];
      count++;
    }
  return count;
}
