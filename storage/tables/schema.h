/* The tables of tables.def as SQL. */
#ifndef SHARDLEDGER_SCHEMA_H
#define SHARDLEDGER_SCHEMA_H

#include "table_numbers.h"

#include <stdbool.h>
#include <stddef.h>

struct sl_db;
struct sl_error;
struct sl_statement;

enum sl_shift {                  /* what another rank with the same row has in this column */
                SL_SHIFT_none,   /* the same */
                SL_SHIFT_rank,   /* its number */
                SL_SHIFT_id,     /* the same number in the rank */
                SL_SHIFT_instant /* some time later, or earlier */
};

struct sl_column {
  const char *name, *type, *meaning;
  enum sl_shift shift;
  bool is_later; /* no row has it when it is inserted */
};

struct sl_table {
  const char *name, *verb, *meaning, *constraints, *options;
  const struct sl_column *columns;
  size_t column_count;
};

/* Creates all tables, with the meaning of each column as a comment: SQLite keeps these in sqlite_schema. */
int sl_schema_create(struct sl_db *db, struct sl_error *error);

/*
 * Compiles the INSERT of one table into *out. Its parameters are the columns, by name (":bytes") or in order, but those
 * of kinds `later` and `later_share`.
 */
int sl_schema_insert(struct sl_db *db, enum sl_ledger_table table, struct sl_statement **out, struct sl_error *error);

/* The same of all rows of a row_source.h, whose cells are the columns. */
int sl_schema_insert_all(struct sl_db *db, enum sl_ledger_table table, struct sl_statement **out,
                         struct sl_error *error);

/* What follows the last row: indexes, the rows of `category`, the views, and which calls of NCCL met. */
int sl_schema_finish(struct sl_db *db, struct sl_error *error);

const struct sl_table *sl_ledger_table(enum sl_ledger_table table);
const char *sl_ledger_table_name(enum sl_ledger_table table);

#endif
