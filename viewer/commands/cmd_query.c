/* `shardledger query`: SQL of the user's on a ledger. */
#include "ask_ledger.h"
#include "command.h"
#include "one_question.h"
#include "open_ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_FOR_WIDTHS 1000 /* text: rows read before the first is printed */

static int print_rows(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  struct sl_column *columns = NULL;
  struct sl_table *table = NULL;
  int r = sl_question_prepare(db, context, &statement, error);
  if (r < 0)
    return r;
  int count = sl_column_count(statement);
  columns = calloc(count > 0 ? count : 1, sizeof(*columns));
  if (!columns) {
    r = sl_no_memory(error);
    goto finish;
  }
  for (int i = 0; i < count; i++) {
    const char *name = sl_column_name(statement, i);
    size_t length = strlen(name);
    bool bytes = length >= 5 && strcmp(name + length - 5, "bytes") == 0;
    columns[i] = (struct sl_column){name, name, bytes ? SL_UNIT_bytes : SL_UNIT_any, 0};
  }
  table = sl_table_begin(out, "rows", columns, count);
  sl_table_stream(table, ROWS_FOR_WIDTHS);
  if (sl_table_rows(table, statement, error) < 0)
    r = -EINVAL;
  table = sl_table_end(table);

finish:
  statement = sl_statement_close(statement);
  free(columns);
  return r;
}

int sl_cmd_query(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  const struct sl_argument arguments[] = {SL_OUTPUT_ARGUMENTS(format)};
  const char *words[2] = {NULL, NULL};
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, words, 2);
  if (r < 0)
    return sl_parse_exit(r);
  if (r == 0) {
    sl_complain("query: SQL is missing; for example: %s", command->example);
    return SL_EXIT_USAGE;
  }
  /* The directory first is as clear, since no SQL is the name of a file. */
  if (words[1] && sl_path_exists(words[0]) && !sl_path_exists(words[1])) {
    const char *path = words[0];
    words[0] = words[1];
    words[1] = path;
  }
  return sl_print_report(words[1], &format, print_rows, (void *)words[0]);
}
