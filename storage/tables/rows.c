/*
 * Rows stand one behind the other in one block of memory, without what their cells do not use: a step may make
 * millions.
 */
#include "rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t size_of(const struct sl_row *row) {
  return offsetof(struct sl_row, cells) + row->count * sizeof row->cells[0];
}

int sl_rows_add(struct sl_rows *rows, const struct sl_row *row) {
  size_t size = size_of(row);
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

bool sl_rows_next(const struct sl_rows *rows, size_t *at, struct sl_row *out) {
  if (*at == rows->bytes)
    return false;
  memcpy(out, rows->data + *at, offsetof(struct sl_row, cells));
  memcpy(out, rows->data + *at, size_of(out));
  *at += size_of(out);
  return true;
}

void sl_rows_clear(struct sl_rows *rows) {
  rows->bytes = 0;
}

void sl_rows_free(struct sl_rows *rows) {
  free(rows->data);
  *rows = (struct sl_rows){0};
}
