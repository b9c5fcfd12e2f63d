/*
 * A table in the making, as its parts share it: table.c takes its cells, table_limit.c keeps it to a screen,
 * table_text.c prints it as text.
 */
#ifndef SHARDLEDGER_TABLE_CELLS_H
#define SHARDLEDGER_TABLE_CELLS_H

#include "output/table.h"

#include <errno.h>

struct cell { /* as text prints it */
  char *text;
  int width;
  enum sl_style style;
  size_t printed; /* bytes of a sentence that are in lines before */
  double size;    /* 0 for NULL, 0 and ""; else how large the number is, for texts 1 */
  double order;   /* the number itself, of NULL and texts -INFINITY: largest first is the order */
};

struct sl_table {
  struct sl_output *out;
  char *name;
  struct sl_column *columns;
  int count;
  bool skipped; /* a CSV document's second table and later ones */

  int column; /* of the next cell */
  int64_t rows;
  bool value_printed; /* JSON, CSV: the row has a value already */

  struct cell *cells; /* rows that wait, count cells each */
  size_t cell_count, cell_capacity;
  int *widths;        /* of columns, once they are fixed; -1 is hidden */
  int stream_rows;    /* 0: wait for the end */
  char left_out[256]; /* headers of the columns that a narrow terminal has no room for */

  int most;         /* rows that text shows; 0: as many as a screen has room for */
  const char *by;   /* column whose largest cells these rows have; NULL: the first rows */
  int64_t not_kept; /* rows that are not among the cells any more */
  const char *sum;  /* column that is added up of these; NULL: none */
  double not_kept_sum;
};

/* The table is not whole, for want of memory: the output fails. */
static inline void sl_table_failed(struct sl_table *table) {
  if (table->out->failed == 0)
    table->out->failed = -ENOMEM;
}

/* Whether a column is printed in this format at all. */
static inline bool sl_table_shows(const struct sl_table *table, int column) {
  const struct sl_column *c = &table->columns[column];
  if (table->out->format == SL_FORMAT_text)
    return !(c->flags & SL_COLUMN_DATA_ONLY);
  return !(c->flags & SL_COLUMN_TEXT_ONLY) && c->unit != SL_UNIT_bar;
}

static inline bool sl_unit_is_on_right(enum sl_unit unit) {
  return unit != SL_UNIT_text && unit != SL_UNIT_bar && unit != SL_UNIT_any;
}

/* Text: prints the rows that wait, the first time with the headings; whole: they are all rows of the table. */
void sl_table_print(struct sl_table *table, bool whole);

/* Text: whether the rows that wait are so many that most of them will not be shown; then those go. */
void sl_table_prune(struct sl_table *table);

/* Text: leaves the rows that are shown, in the order in which they are. */
void sl_table_choose(struct sl_table *table);

/* Text: the line that tells what was left out, after the last row. */
void sl_table_say_left_out(struct sl_table *table);

#endif
