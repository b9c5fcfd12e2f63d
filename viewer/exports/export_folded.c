/*
 * Folded stacks, as Brendan Gregg's flamegraph.pl and speedscope read them: a line for each call stack, its frames from
 * the outermost to the innermost and then the bytes: what was allocated at the highest point of each rank's life.
 */
#include "exports/export.h"
#include "viewer_sql.h"

#include <inttypes.h>

/* A name may have any character but the one that ends a line. */
static void write_stack(FILE *stream, const char *stack) {
  for (; *stack; stack++)
    fputc(*stack == '\n' ? ' ' : *stack, stream);
}

int sl_export_folded(struct sl_export *export, struct sl_error *error) {
  struct sl_export_file file;
  struct sl_statement *rows = NULL;
  int r = sl_export_begin_any(export->output, &file, error);
  if (r < 0)
    return r;
  r = sl_db_ask(export->db, sl_sql_code_folded, SL_WITH(SL_WORD(":ranks", export->ranks)), &rows, error);
  while (r >= 0 && (r = sl_statement_step(rows, error)) > 0) {
    write_stack(file.stream, sl_column_text(rows, 0));
    fprintf(file.stream, " %" PRId64 "\n", sl_column_int(rows, 1));
  }
  rows = sl_statement_close(rows);
  return sl_export_end(&file, r, error);
}
