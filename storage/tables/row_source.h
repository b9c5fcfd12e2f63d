/*
 * Rows in memory as a table that SQLite reads. So one statement inserts many of them, where each by itself would be
 * bound, begun, looked up and ended for its own: that takes longer than the row.
 */
#ifndef SHARDLEDGER_ROW_SOURCE_H
#define SHARDLEDGER_ROW_SOURCE_H

#include "rows.h"
#include "storage/error.h"

#include <stddef.h>

struct sl_db;

#define SL_ROW_SOURCE "rows_to_come" /* the table's name; its columns are cell0, cell1, … */

/* What the table has. Zero-initialise; free with sl_row_source_free. */
struct sl_row_source {
  const struct sl_row **rows; /* the list is owned, the rows are not */
  size_t count, capacity;
};

/* Puts the table into a database, for statements of this connection. The source must outlive it. */
int sl_row_source_attach(struct sl_row_source *source, struct sl_db *db, struct sl_error *error);

int sl_row_source_add(struct sl_row_source *source, const struct sl_row *row); /* 0 or -ENOMEM */

/* Puts rows in the order of some cells, the first of them first; of equal ones in the order in which they were added.
 */
void sl_row_source_sort(struct sl_row_source *source, const unsigned char *cells, size_t count);

void sl_row_source_free(struct sl_row_source *source);

#endif
