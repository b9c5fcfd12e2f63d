/*
 * Ranks of one job mostly do the same. What two of them did alike is stored once: where all rows of a rank are another
 * one's but for what differs between any two ranks, they are left out, and `rank_rows` says which rank's stand for
 * them.
 *
 * What may differ is the rank's number, the rank in ids, and all instants by one and the same stretch of time. All else
 * has to be the same: bytes, addresses, order, names, times within the rank's life. So nothing of a rank's own is lost:
 * its rows are made again to the letter. Tables without instants (untimed) are compared by themselves, since ranks that
 * did the same seldom did it at the same nanosecond.
 *
 * In such a ledger the table `phase` is called own_phase, and `phase` is a view with the rows of all ranks. A ledger of
 * few ranks, or in which no two are the same, has its tables as ever.
 *
 *   rank 0  ─► own_phase      rank_rows: timed, rank 1, same_as 0, later_ns 1000
 *   rank 1  ─► (hash equal)   phase: own_phase, and once more with rank 1, ids of rank 1, instants 1000 ns later
 */
#ifndef SHARDLEDGER_SHARED_TABLES_H
#define SHARDLEDGER_SHARED_TABLES_H

#include "rows.h"
#include "schema.h"

#include <stdbool.h>
#include <stdint.h>

enum sl_shared { SL_SHARED_timed, SL_SHARED_untimed, SL_SHARED_count };

struct sl_shared_table {
  enum sl_ledger_table table;
  enum sl_shared shared;
  bool has_id;
};
enum { SL_SHARED_TABLES = 23 };
extern const struct sl_shared_table sl_shared_tables[SL_SHARED_TABLES];

/* The word of rank_rows.tables. */
const char *sl_shared_word(enum sl_shared shared);

/* ---- writing: what a rank's rows are, in one number ---- */

/* Of one rank. Zero-initialise; free with sl_rank_share_free. */
struct sl_rank_share {
  bool on; /* else it takes no rows */
  struct {
    void *state; /* of the hash; owned */
    uint64_t rows;
    bool is_odd; /* has a number that can't be moved to another rank and back */
  } all[SL_SHARED_count];
  bool has_base;
  int64_t base_ns;                  /* the first instant of any row */
  int64_t before[SL_SHARED_TABLES]; /* highest rowid of other ranks' rows */
};

/* The next rank's rows come from here on. 0 or a negative errno. */
int sl_rank_share_begin(struct sl_rank_share *share, struct sl_db *db, struct sl_error *error);
void sl_rank_share_row(struct sl_rank_share *share, uint32_t rank, const struct sl_row *row);
void sl_rank_share_free(struct sl_rank_share *share);

struct sl_known_rank { /* whose rows are in the ledger */
  uint64_t low, high, rows;
  enum sl_shared shared;
  uint32_t rank;
  int64_t base_ns;
};
struct sl_known_ranks { /* zero-initialise; free list */
  struct sl_known_rank *list;
  size_t count;
};

/*
 * *same: which rank's rows stand for this one's, of all that are in known: itself, which is known from then on, or
 * another one; db then has no rows of this rank. Where it has none anyhow, *has_rows is false.
 */
int sl_rank_share_settle(struct sl_rank_share *share, enum sl_shared shared, uint32_t rank,
                         struct sl_known_ranks *known, struct sl_db *db, bool *has_rows, struct sl_known_rank *same,
                         struct sl_error *error);

/* After the last rank, and its indexes: the tables that ranks share get their other names, and views take theirs. */
int sl_shared_tables_finish(struct sl_db *db, struct sl_error *error);

/* ---- reading ---- */

/* CREATE VIEW of all such views. NULL: no memory. Free it. */
char *sl_shared_views(void);

/*
 * Whether ranks share tables in this ledger. Then makes tables of the database's own by the views' names
 * (shared_rows.c), which find rows by rank and id as fast as tables do: 1. 0: they do not. Or a negative errno.
 */
int sl_shared_tables_open(struct sl_db *db, struct sl_error *error);

#endif
