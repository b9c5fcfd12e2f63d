/* Rows that waited go into their table, in one statement. */
#include "ledger_cells.h"

#include <string.h>

/* Which cells are a table's key, if its rows lie in that order. */
static int key_read(struct sl_db *db, enum sl_ledger_table table, struct sl_table_insert *insert,
                    struct sl_error *error) {
  struct sl_statement *ask = NULL;
  if (!strstr(sl_ledger_table(table)->options, "WITHOUT ROWID"))
    return 0;
  int r = sl_db_ask(db, "SELECT cid FROM pragma_table_info(:table) WHERE pk > 0 ORDER BY pk",
                    SL_WITH(SL_WORD(":table", sl_ledger_table_name(table))), &ask, error);
  while (r == 0 && insert->key_cells < sizeof insert->key && (r = sl_statement_step(ask, error)) > 0) {
    insert->key[insert->key_cells++] = (unsigned char)sl_column_int(ask, 0);
    r = 0;
  }
  ask = sl_statement_close(ask);
  return r;
}

static int insert_make(struct sl_db *db, enum sl_ledger_table table, struct sl_table_insert *insert,
                       struct sl_error *error) {
  int r = key_read(db, table, insert, error);
  return r < 0 ? r : sl_schema_insert_all(db, table, &insert->statement, error);
}

/* In the order of their keys they go behind each other; in any other one SQLite looks for each one's place. */
int sl_rows_insert(struct sl_ledger_writer *writer, struct sl_rows *rows, enum sl_ledger_table table,
                   struct sl_error *error) {
  struct sl_table_insert *insert = &writer->inserts[table];
  const struct sl_row *row;
  int r = insert->statement ? 0 : insert_make(writer->db, table, insert, error);
  writer->source.count = 0;
  for (size_t at = 0; r == 0 && (row = sl_rows_next(rows, table, &at));) {
    sl_rank_share_row(&writer->share, writer->rank, row);
    r = sl_or_no_memory(sl_row_source_add(&writer->source, row), error);
  }
  if (r == 0 && insert->key_cells)
    sl_row_source_sort(&writer->source, insert->key, insert->key_cells);
  if (r == 0)
    r = sl_statement_run(insert->statement, error);
  rows->of[table].bytes = 0;
  return r;
}
