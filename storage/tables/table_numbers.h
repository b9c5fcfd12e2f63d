/* A number for each of the ledger's tables. */
#ifndef SHARDLEDGER_TABLE_NUMBERS_H
#define SHARDLEDGER_TABLE_NUMBERS_H

/* In the order of tables.def. */
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

#endif
