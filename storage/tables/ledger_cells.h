/*
 * What the writer's files have between them: ledger_tables.c puts rows together, ledger_writer.c sends them on their
 * way, ledger_insert.c puts them into their tables. Nobody else includes this.
 */
#ifndef SHARDLEDGER_LEDGER_CELLS_H
#define SHARDLEDGER_LEDGER_CELLS_H

#include "db.h"
#include "ledger_tables.h"
#include "ledger_writer.h"
#include "rank_sums.h"
#include "row_source.h"
#include "rows.h"
#include "shared_tables.h"

#include <errno.h>

/* Rows that wait for company go when they take as much as a processor's cache holds beside what SQLite needs. */
enum { SL_ROWS_TOGETHER_BYTES = 1 << 16 };

/* Inserts and empties those of one table (ledger_insert.c). */
int sl_rows_insert(struct sl_ledger_writer *writer, struct sl_rows *rows, enum sl_ledger_table table,
                   struct sl_error *error);

/* The rows of what was summed up of the rank (ledger_rows.c). */
int sl_write_rank_sums(struct sl_ledger_writer *writer, struct sl_error *error);

struct sl_ledger_writer {
  struct sl_db *db; /* NULL: there is a listener only */
  struct sl_table_insert {
    struct sl_statement *statement; /* NULL: none of its rows was inserted yet */
    unsigned char key[8];           /* the cells of its key, where its rows lie in the key's order */
    size_t key_cells;               /* 0: they do not */
  } inserts[SL_LEDGER_tables];
  struct sl_row_source source; /* of these statements */
  struct sl_rows waiting;      /* for company */
  struct sl_ledger_listener listener;
  uint32_t rank;
  uint64_t ids[SL_LEDGER_tables]; /* last one of this rank, of tables that number their rows themselves */
  struct sl_rank_sums sums;
  struct sl_rank_share share;
  struct sl_known_ranks known; /* of a ledger: the ranks whose rows others may share */
  int64_t kernels_before;      /* kernel.rowid of the last row of other ranks */
  bool computes;               /* kernels other than NCCL's were written for this rank */
  struct sl_row row;           /* being put together */
};

#endif
