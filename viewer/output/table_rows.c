/* The rows of a statement as the rows of a table, and listings, which are a statement, its columns and its heading. */
#include "output/table.h"

#include <stdlib.h>
#include <string.h>

void sl_cell_column(struct sl_table *table, struct sl_statement *statement, int column) {
  int bytes = 0;
  switch (sl_column_type(statement, column)) {
  case SL_VALUE_null: sl_cell_null(table); return;
  case SL_VALUE_int: sl_cell_int(table, sl_column_int(statement, column)); return;
  case SL_VALUE_double: sl_cell_double(table, sl_column_double(statement, column)); return;
  case SL_VALUE_text: sl_cell_text(table, sl_column_text(statement, column)); return;
  case SL_VALUE_blob: break;
  }
  /* As SQLite writes a blob: x'00ff'. */
  const unsigned char *blob = sl_column_blob(statement, column, &bytes);
  char *text = malloc((size_t)bytes * 2 + 4);
  if (!text) {
    sl_cell_null(table);
    return;
  }
  char *end = stpcpy(text, "x'");
  for (int i = 0; i < bytes; i++)
    end += sprintf(end, "%02x", blob[i]);
  strcpy(end, "'");
  sl_cell_text(table, text);
  free(text);
}

void sl_cell_columns(struct sl_table *table, struct sl_statement *statement, int first, int last) {
  for (int i = first; i <= last; i++)
    sl_cell_column(table, statement, i);
}

int64_t sl_table_rows(struct sl_table *table, struct sl_statement *statement, struct sl_error *error) {
  int64_t rows = 0;
  int r = 0;
  for (; (r = sl_statement_step(statement, error)) > 0; rows++)
    sl_cell_columns(table, statement, 0, sl_column_count(statement) - 1);
  return r < 0 ? r : rows;
}

int64_t sl_print_listing(struct sl_db *db, struct sl_output *out, const struct sl_listing *listing,
                         const struct sl_parameter *parameters, struct sl_error *error) {
  const bool text = out->format == SL_FORMAT_text;
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sl_db_ask_first(db, listing->sql, parameters, &statement, error);
  if (r > 0 || (r == 0 && !(text && listing->only_with_rows))) {
    if (listing->only_with_rows)
      sl_output_line(out, "%s", "");
    if (listing->heading)
      sl_output_styled(out, SL_STYLE_bold, "%s", listing->heading);
    table = sl_table_begin(out, listing->name, listing->columns, listing->count);
    sl_table_keep(table, listing->most, listing->by);
    for (; r > 0; r = sl_statement_step(statement, error), rows++)
      sl_cell_columns(table, statement, 0, listing->count - 1);
    table = sl_table_end(table);
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : rows;
}
