/*
 * tables.def as C: for each table an enum value, the struct of a row's cells, and the function that writes a row.
 *
 *   r = sl_put_gap(writer, &(struct sl_gap_cells){.at_ns = …, .source = "log", .lost = 3, .reason = "…"}, error);
 *
 * sl_put_… writes at once. sl_put_…_to lets the row wait behind those of `to`, until they are put.
 *
 * A rank's numbers (ids of modules, phases, allocations) are its own; the writer makes them unique over ranks. Texts
 * are not copied: where rows wait they must live as long. All functions return 0 or a negative errno with the failing
 * SQL in error.
 */
#ifndef SHARDLEDGER_LEDGER_TABLES_H
#define SHARDLEDGER_LEDGER_TABLES_H

#include "schema.h"
#include "storage/error.h"

#include <stddef.h>
#include <stdint.h>

struct sl_ledger_writer;
struct sl_rows;

#define SL_NONE INT64_MIN /* NULL, of a column of kind `maybe` */

/* A value for `maybe`, where another number stands for "unknown". */
static inline int64_t sl_known(int64_t value, int64_t unknown) {
  return value == unknown ? SL_NONE : value;
}

/* The places of a table's columns: offsetof(struct sl_phase_places, parent_id) is 10; its size is their number. */
#define TABLE_BEGIN(table, verb, meaning) struct sl_##table##_places {
#define COLUMN(kind, column, meaning) char column;
#define TABLE_END(table, constraints, options)                                                                         \
  }                                                                                                                    \
  ;
#include "tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END

#define SL_FIELD_rank(column)
#define SL_FIELD_key_rank(column)
#define SL_FIELD_id(column) uint64_t column;
#define SL_FIELD_next_id(column)
#define SL_FIELD_module(column) uint64_t column;
#define SL_FIELD_phase(column) uint64_t column;
#define SL_FIELD_allocation(column) uint64_t column;
#define SL_FIELD_frame(column) uint64_t column;
#define SL_FIELD_site(column) uint64_t column;
#define SL_FIELD_module_always(column) uint64_t column;
#define SL_FIELD_number(column) int64_t column;
#define SL_FIELD_maybe(column) int64_t column;
#define SL_FIELD_time(column) int64_t column;
#define SL_FIELD_maybe_time(column) int64_t column;
#define SL_FIELD_later(column)
#define SL_FIELD_later_share(column)
#define SL_FIELD_text(column) const char *column;
#define SL_FIELD_key_text(column) const char *column;
#define SL_FIELD_word(column) const char *column;
#define TABLE_BEGIN(table, verb, meaning) struct sl_##table##_cells {
#define COLUMN(kind, column, meaning) SL_FIELD_##kind(column)
#define TABLE_END(table, constraints, options)                                                                         \
  }                                                                                                                    \
  ;                                                                                                                    \
  int sl_put_##table##_to(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_##table##_cells *cells, \
                          struct sl_error *error);                                                                     \
  static inline int sl_put_##table(struct sl_ledger_writer *writer, const struct sl_##table##_cells *cells,            \
                                   struct sl_error *error) {                                                           \
    return sl_put_##table##_to(writer, NULL, cells, error);                                                            \
  }
#include "tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END

#endif
