/* Rows of tables.def's tables: sl_put_<table>_to puts the cells in the columns' order. */
#include "ledger_tables.h"

#include "ledger_cells.h"

/* Ids are unique over ranks. */
static int64_t id_of(const struct sl_ledger_writer *writer, uint64_t local) {
  return (int64_t)((uint64_t)writer->rank << 40 | local);
}

static void put_reference(struct sl_ledger_writer *writer, uint64_t local) {
  if (local)
    sl_row_put_number(&writer->row, id_of(writer, local));
  else
    sl_row_put_nothing(&writer->row);
}

static void put_maybe(struct sl_ledger_writer *writer, int64_t value) {
  if (value != SL_NONE)
    sl_row_put_number(&writer->row, value);
  else
    sl_row_put_nothing(&writer->row);
}

static void put_word(struct sl_ledger_writer *writer, const char *text) {
  if (text && *text)
    sl_row_put_text(&writer->row, text);
  else
    sl_row_put_nothing(&writer->row);
}

/* One that is put at once goes behind those of its table that wait: rows keep the order in which they were put. */
static int row_end(struct sl_ledger_writer *writer, struct sl_rows *to, struct sl_error *error) {
  const enum sl_ledger_table table = (enum sl_ledger_table)writer->row.table;
  if (!writer->db)
    return 0;
  if (sl_rows_add(to ? to : &writer->waiting, &writer->row) < 0)
    return sl_no_memory(error);
  const bool is_time = !to || (to == &writer->waiting && writer->waiting.of[table].bytes >= SL_ROWS_TOGETHER_BYTES);
  return is_time ? sl_rows_insert(writer, &writer->waiting, table, error) : 0;
}

#define PUT_rank(column) sl_row_put_number(&writer->row, writer->rank)
#define PUT_key_rank(column) sl_row_put_number(&writer->row, writer->rank)
#define PUT_id(column) sl_row_put_number(&writer->row, id_of(writer, cells->column))
#define PUT_next_id(column) sl_row_put_number(&writer->row, id_of(writer, ++writer->ids[writer->row.table]))
#define PUT_module(column) put_reference(writer, cells->column)
#define PUT_phase(column) put_reference(writer, cells->column)
#define PUT_allocation(column) put_reference(writer, cells->column)
#define PUT_frame(column) put_reference(writer, cells->column)
#define PUT_site(column) put_reference(writer, cells->column)
#define PUT_module_always(column) sl_row_put_number(&writer->row, id_of(writer, cells->column))
#define PUT_number(column) sl_row_put_number(&writer->row, cells->column)
#define PUT_maybe(column) put_maybe(writer, cells->column)
#define PUT_time(column) sl_row_put_number(&writer->row, cells->column)
#define PUT_maybe_time(column) put_maybe(writer, cells->column)
#define PUT_later(column) ((void)0)
#define PUT_later_share(column) ((void)0)
#define PUT_text(column) sl_row_put_text(&writer->row, cells->column)
#define PUT_key_text(column) sl_row_put_text(&writer->row, cells->column)
#define PUT_word(column) put_word(writer, cells->column)

#define TABLE_BEGIN(table, verb, meaning)                                                                              \
  _Static_assert(sizeof(struct sl_##table##_places) <= SL_ROW_CELLS, "a row has no room for a table's columns");       \
  int sl_put_##table##_to(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_##table##_cells *cells, \
                          struct sl_error *error) {                                                                    \
    sl_row_begin(&writer->row, SL_LEDGER_##table);
#define COLUMN(kind, column, meaning) PUT_##kind(column);
#define TABLE_END(table, constraints, options)                                                                         \
  return row_end(writer, to, error);                                                                                   \
  }
#include "tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END
