/*
 * Rows that wait, of each table in the order in which they were made: whether a step's rows go into the ledger is known
 * only when the next step has ended, and those that go there go faster together.
 */
#ifndef SHARDLEDGER_ROWS_H
#define SHARDLEDGER_ROWS_H

#include "table_numbers.h"

#include <stddef.h>
#include <stdint.h>

enum { SL_ROW_CELLS = 32 };

enum sl_cell_kind { SL_CELL_nothing, SL_CELL_number, SL_CELL_text };

union sl_cell {
  int64_t number;
  const char *text; /* not owned: of the log, or static */
};

/* One row; its cells are the table's columns in order. */
struct sl_row {
  uint8_t table, count;
  uint64_t kinds; /* two bits a cell, the first lowest */
  union sl_cell cells[SL_ROW_CELLS];
};

static inline void sl_row_begin(struct sl_row *row, uint8_t table) {
  row->table = table;
  row->count = 0;
  row->kinds = 0;
}

static inline void sl_row_put_nothing(struct sl_row *row) {
  row->cells[row->count++].number = 0;
}

static inline void sl_row_put_number(struct sl_row *row, int64_t number) {
  row->kinds |= (uint64_t)SL_CELL_number << 2 * row->count;
  row->cells[row->count++].number = number;
}

static inline void sl_row_put_text(struct sl_row *row, const char *text) {
  row->kinds |= (uint64_t)SL_CELL_text << 2 * row->count;
  row->cells[row->count++].text = text;
}

static inline enum sl_cell_kind sl_row_kind(const struct sl_row *row, int cell) {
  return (enum sl_cell_kind)(row->kinds >> 2 * cell & 3);
}

/* Without the cells that it does not use. */
static inline size_t sl_row_bytes(const struct sl_row *row) {
  return offsetof(struct sl_row, cells) + row->count * sizeof row->cells[0];
}

/* Zero-initialise; free with sl_rows_free. */
struct sl_rows {
  struct sl_table_rows {
    char *data; /* owned */
    size_t bytes, capacity;
  } of[SL_LEDGER_tables];
};

int sl_rows_add(struct sl_rows *rows, const struct sl_row *row); /* 0 or -ENOMEM */

/* A table's row at *at (0: the first), valid until one is added; moves *at to the next one. NULL behind the last. */
const struct sl_row *sl_rows_next(const struct sl_rows *rows, enum sl_ledger_table table, size_t *at);

void sl_rows_clear(struct sl_rows *rows); /* empty, its room kept for the next step */
void sl_rows_free(struct sl_rows *rows);

#endif
