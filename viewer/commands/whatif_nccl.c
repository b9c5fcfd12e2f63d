/* Prints what NCCL would take on another number of ranks. */
#include "commands/whatif_nccl.h"

#include "output/table.h"
#include "output/units.h"
#include "viewer_sql.h"

enum { RANKS, RANK_COUNT, VERSION, IS_MEASURED, COMMUNICATORS, BYTES };

static const struct sl_column columns[] = {
    {"ranks", "Ranks", SL_UNIT_text, 0},
    {"communicators", "Communicators", SL_UNIT_number, 0},
    {"estimated_bytes", "Estimate", SL_UNIT_bytes, 0},
    {"nccl_version", "NCCL", SL_UNIT_text, 0},
    {"standing", "Standing", SL_UNIT_text, 0},
};

static void line_print(struct sl_output *out, struct sl_statement *row) {
  const long long count = sl_column_int(row, COMMUNICATORS);
  const char *s = sl_column_int(row, RANK_COUNT) == 1 ? "" : "s", *ranks = sl_column_text(row, RANKS);
  char bytes[SL_UNIT_CHARS];
  if (!count) {
    sl_output_line(out, "NCCL, rank%s %s: no estimate, since no use of a communicator was recorded that would tell", s,
                   ranks);
    return;
  }
  sl_output_line(
      out,
      "NCCL, rank%s %s: estimate: %s more, for %lld communicator%s, as NCCL 2.28.9 has them on one host with "
      "NVLink whatever their ranks%s%s",
      s, ranks, sl_format_bytes(bytes, sl_column_int(row, BYTES), out->exact_bytes), count, count == 1 ? "" : "s",
      sl_column_int(row, IS_MEASURED) ? "" : "; here it is ",
      sl_column_int(row, IS_MEASURED)   ? ""
      : sl_column_is_null(row, VERSION) ? "another one"
                                        : sl_column_text(row, VERSION));
}

static void row_print(struct sl_table *table, struct sl_statement *row) {
  const long long count = sl_column_int(row, COMMUNICATORS);
  sl_cell_text(table, sl_column_text(row, RANKS));
  sl_cell_int(table, count);
  if (count)
    sl_cell_int(table, sl_column_int(row, BYTES));
  else
    sl_cell_null(table);
  sl_cell_text(table, sl_column_is_null(row, VERSION) ? NULL : sl_column_text(row, VERSION));
  sl_cell_text(table, count ? "estimate" : "refused");
}

int sl_print_whatif_nccl(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks,
                         struct sl_error *error) {
  struct sl_statement *row = NULL;
  struct sl_table *table = out->format == SL_FORMAT_text ? NULL : sl_table_begin(out, "nccl", SL_COLUMNS(columns));
  int r = sl_db_ask(db, sl_sql_whatif_nccl, SL_WITH(SL_RANKS(ranks)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    if (table)
      row_print(table, row);
    else
      line_print(out, row);
  }
  row = sl_statement_close(row);
  if (table)
    table = sl_table_end(table);
  return r;
}
