/* The tables of tables.def as SQL. */
#ifndef SHARDLEDGER_SCHEMA_H
#define SHARDLEDGER_SCHEMA_H

struct sl_db;
struct sl_error;
struct sl_statement;

/* The ledger's tables, in the order of tables.def. */
enum sl_ledger_table {
#define TABLE_BEGIN(table, verb, meaning) SL_LEDGER_##table,
#define COLUMN(kind, column, meaning)
#define TABLE_END(table, constraints, options)
#include "tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END
  SL_LEDGER_tables,
};

/* Creates all tables, with the meaning of each column as a comment: SQLite keeps these in sqlite_schema. */
int sl_schema_create(struct sl_db *db, struct sl_error *error);

/*
 * Compiles the INSERT of one table into *out. Its parameters are the columns, by name (":bytes") or in order, but those
 * of kinds `later` and `later_share`.
 */
int sl_schema_insert(struct sl_db *db, enum sl_ledger_table table, struct sl_statement **out, struct sl_error *error);

/* The views of views.sql; where that says `-- CATEGORIES` there is a column for each. NULL: no memory. Free it. */
char *sl_schema_views(void);

/* What follows the last row: indexes, the rows of `category`, the views, and which calls of NCCL met. */
int sl_schema_finish(struct sl_db *db, struct sl_error *error);

const char *sl_ledger_table_name(enum sl_ledger_table table);

#endif
