/* The tables of tables.def: what SQL calls their columns, and what differs in them between two ranks. */
#include "schema.h"

#define SQL_rank "INTEGER NOT NULL REFERENCES rank(rank)"
#define SQL_key_rank "INTEGER PRIMARY KEY"
#define SQL_id "INTEGER PRIMARY KEY"
#define SQL_next_id "INTEGER PRIMARY KEY"
#define SQL_module "INTEGER REFERENCES module(id)"
#define SQL_phase "INTEGER REFERENCES phase(id)"
#define SQL_allocation "INTEGER REFERENCES allocation(id)"
#define SQL_frame "INTEGER REFERENCES frame(id)"
#define SQL_site "INTEGER REFERENCES site(id)"
#define SQL_module_always "INTEGER NOT NULL REFERENCES module(id)"
#define SQL_number "INTEGER NOT NULL"
#define SQL_maybe "INTEGER"
#define SQL_time "INTEGER NOT NULL"
#define SQL_maybe_time "INTEGER"
#define SQL_later "INTEGER"
#define SQL_later_share "REAL"
#define SQL_text "TEXT NOT NULL"
#define SQL_key_text "TEXT PRIMARY KEY"
#define SQL_word "TEXT"

#define SHIFT_rank SL_SHIFT_rank
#define SHIFT_key_rank SL_SHIFT_rank
#define SHIFT_id SL_SHIFT_id
#define SHIFT_next_id SL_SHIFT_id
#define SHIFT_module SL_SHIFT_id
#define SHIFT_phase SL_SHIFT_id
#define SHIFT_allocation SL_SHIFT_id
#define SHIFT_frame SL_SHIFT_id
#define SHIFT_site SL_SHIFT_id
#define SHIFT_module_always SL_SHIFT_id
#define SHIFT_number SL_SHIFT_none
#define SHIFT_maybe SL_SHIFT_none
#define SHIFT_time SL_SHIFT_instant
#define SHIFT_maybe_time SL_SHIFT_instant
#define SHIFT_later SL_SHIFT_none
#define SHIFT_later_share SL_SHIFT_none
#define SHIFT_text SL_SHIFT_none
#define SHIFT_key_text SL_SHIFT_none
#define SHIFT_word SL_SHIFT_none

#define LATER(kind) (#kind[0] == 'l' && #kind[1] == 'a')

#define TABLE_BEGIN(table, verb, meaning) static const struct sl_column table##_columns[] = {
#define COLUMN(kind, column, meaning) {#column, SQL_##kind, meaning, SHIFT_##kind, LATER(kind)},
#define TABLE_END(table, constraints, options)                                                                         \
  }                                                                                                                    \
  ;
#include "tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END

static const struct sl_table tables[SL_LEDGER_tables] = {
#define TABLE_BEGIN(table, verb, meaning) [SL_LEDGER_##table] = {#table, #verb, meaning,
#define COLUMN(kind, column, meaning)
#define TABLE_END(table, constraints, options)                                                                         \
  constraints, options, table##_columns, sizeof(table##_columns) / sizeof(table##_columns[0])                          \
  }                                                                                                                    \
  ,
#include "tables.def"
#undef TABLE_BEGIN
#undef COLUMN
#undef TABLE_END
};

const struct sl_table *sl_ledger_table(enum sl_ledger_table table) {
  return &tables[table];
}

const char *sl_ledger_table_name(enum sl_ledger_table table) {
  return tables[table].name;
}
