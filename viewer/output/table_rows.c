/* The rows of a statement as the rows of a table, and listings, which are a statement, its columns and its heading. */
#include "output/table_cells.h"

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

/* The cells of the row that was put together in numbers, which are 0 again. */
static void pivot_flush(struct sl_table *table, int own, int64_t *numbers) {
  for (int i = own; i < table->count; i++) {
    sl_cell_int(table, numbers[i]);
    numbers[i] = 0;
  }
}

int64_t sl_table_pivot(struct sl_table *table, struct sl_statement *statement, int own, struct sl_error *error) {
  int64_t rows = 0, *numbers = table ? calloc((size_t)table->count + 1, sizeof *numbers) : NULL;
  char *key = NULL;
  int r = numbers ? 0 : sl_no_memory(error);
  while (r >= 0 && (r = sl_statement_step(statement, error)) > 0) {
    if (!key || strcmp(key, sl_column_text(statement, 0)) != 0) {
      if (key)
        pivot_flush(table, own, numbers);
      free(key);
      key = strdup(sl_column_text(statement, 0));
      sl_cell_columns(table, statement, 1, own);
      rows++;
    }
    for (int i = own; i < table->count; i++)
      if (strcmp(table->columns[i].name, sl_column_text(statement, own + 1)) == 0)
        numbers[i] += sl_column_int(statement, own + 2);
    if (!key)
      r = sl_no_memory(error);
  }
  if (key)
    pivot_flush(table, own, numbers);
  free(key);
  free(numbers);
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
