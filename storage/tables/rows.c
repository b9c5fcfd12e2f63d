/*
 * A table's rows one behind the other in a piece of memory that grows, without the cells that they do not use: a step
 * may make millions.
 */
#include "rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sl_rows_add(struct sl_rows *rows, const struct sl_row *row) {
  struct sl_table_rows *of = &rows->of[row->table];
  size_t size = sl_row_bytes(row);
  if (of->bytes + size > of->capacity) {
    size_t capacity = of->capacity ? 2 * of->capacity : 1 << 12;
    char *grown = realloc(of->data, capacity);
    if (!grown)
      return -ENOMEM;
    of->data = grown;
    of->capacity = capacity;
  }
  memcpy(of->data + of->bytes, row, size);
  of->bytes += size;
  return 0;
}

const struct sl_row *sl_rows_next(const struct sl_rows *rows, enum sl_ledger_table table, size_t *at) {
  const struct sl_table_rows *of = &rows->of[table];
  if (*at == of->bytes)
    return NULL;
  const struct sl_row *row = (const void *)(of->data + *at);
  *at += sl_row_bytes(row);
  return row;
}

void sl_rows_clear(struct sl_rows *rows) {
  for (int i = 0; i < SL_LEDGER_tables; i++)
    rows->of[i].bytes = 0;
}

void sl_rows_free(struct sl_rows *rows) {
  for (int i = 0; i < SL_LEDGER_tables; i++)
    free(rows->of[i].data);
  *rows = (struct sl_rows){0};
}
