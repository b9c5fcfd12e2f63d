/*
 * Rows stand one behind the other in one block of memory, without what their cells do not use: a step may make
 * millions.
 */
#include "rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sl_rows_add(struct sl_rows *rows, const struct sl_row *row) {
  size_t size = sl_row_bytes(row);
  if (rows->bytes + size > rows->capacity) {
    size_t capacity = rows->capacity ? 2 * rows->capacity : 1 << 16;
    char *grown = realloc(rows->data, capacity);
    if (!grown)
      return -ENOMEM;
    rows->data = grown;
    rows->capacity = capacity;
  }
  memcpy(rows->data + rows->bytes, row, size);
  rows->bytes += size;
  return 0;
}

const struct sl_row *sl_rows_next(const struct sl_rows *rows, size_t *at) {
  if (*at == rows->bytes)
    return NULL;
  const struct sl_row *row = (const void *)(rows->data + *at);
  *at += sl_row_bytes(row);
  return row;
}

void sl_rows_clear(struct sl_rows *rows) {
  rows->bytes = 0;
}

void sl_rows_free(struct sl_rows *rows) {
  free(rows->data);
  *rows = (struct sl_rows){0};
}
