/* What a rank's rows are, in one number: the same for another rank with the same rows (shared_tables.h). */
#include "shared_tables.h"

#include "db.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

const struct sl_shared_table sl_shared_tables[SL_SHARED_TABLES] = {
#define SHARED(table, shared, has_id) {SL_LEDGER_##table, SL_SHARED_##shared, has_id},
#include "shared_tables.def"
#undef SHARED
};

const char *sl_shared_word(enum sl_shared shared) {
  return shared == SL_SHARED_timed ? "timed" : "untimed";
}

static const struct sl_shared_table *shared_find(uint8_t table) {
  static const uint8_t places[SL_LEDGER_tables] = {
  /* from 1 */
#define SHARED(table, shared, has_id) [SL_LEDGER_##table] = 1,
#include "shared_tables.def"
#undef SHARED
  };
  if (!places[table])
    return NULL;
  for (size_t i = 0; i < SL_SHARED_TABLES; i++)
    if (sl_shared_tables[i].table == table)
      return &sl_shared_tables[i];
  return NULL;
}

static bool has_rowid(const struct sl_shared_table *shared) {
  return !*sl_ledger_table(shared->table)->options;
}

int sl_rank_share_begin(struct sl_rank_share *share, struct sl_db *db, struct sl_error *error) {
  int r = 0;
  share->has_base = false;
  share->base_ns = 0;
  for (int i = 0; i < SL_SHARED_count && share->on; i++) {
    if (!share->all[i].state && !(share->all[i].state = XXH3_createState()))
      return sl_no_memory(error);
    XXH3_128bits_reset(share->all[i].state);
    share->all[i].rows = 0;
    share->all[i].is_odd = false;
  }
  for (size_t i = 0; i < SL_SHARED_TABLES && share->on && r == 0; i++) {
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT coalesce(max(rowid), 0) FROM %s",
             sl_ledger_table_name(sl_shared_tables[i].table));
    if (has_rowid(&sl_shared_tables[i]))
      r = sl_db_int(db, sql, &share->before[i], error);
  }
  return r;
}

void sl_rank_share_free(struct sl_rank_share *share) {
  for (int i = 0; i < SL_SHARED_count; i++)
    XXH3_freeState(share->all[i].state);
  memset(share, 0, sizeof *share);
}

/* Ids lie below 2^40 in their rank; the view adds them, and instants, without an overflow. */
enum { ID_BITS = 40, RANK_BITS = 22, INSTANT_BITS = 62 };

static bool is_within(int64_t value, int bits) {
  return value >= 0 && value >> bits == 0;
}

void sl_rank_share_row(struct sl_rank_share *share, uint32_t rank, const struct sl_row *row) {
  const struct sl_shared_table *shared = share->on ? shared_find(row->table) : NULL;
  if (!shared)
    return;
  XXH3_state_t *state = share->all[shared->shared].state;
  const struct sl_column *column = sl_ledger_table(shared->table)->columns;
  uint64_t words[SL_ROW_CELLS + 2] = {row->table, row->kinds};
  bool is_odd = !is_within(rank, RANK_BITS);
  for (int i = 0; i < row->count; i++, column++) {
    while (column->is_later)
      column++;
    int64_t value = row->cells[i].number;
    if (sl_row_kind(row, i) == SL_CELL_text)
      value = (int64_t)strlen(row->cells[i].text);
    else if (sl_row_kind(row, i) == SL_CELL_nothing || column->shift == SL_SHIFT_rank)
      value = 0;
    else if (column->shift == SL_SHIFT_id) {
      value -= (int64_t)rank << ID_BITS;
      is_odd |= !is_within(value, ID_BITS);
    } else if (column->shift == SL_SHIFT_instant) {
      is_odd |= !is_within(value, INSTANT_BITS);
      if (!share->has_base)
        share->base_ns = value;
      share->has_base = true;
      value -= share->base_ns;
    }
    words[2 + i] = (uint64_t)value;
  }
  XXH3_128bits_update(state, words, (2 + (size_t)row->count) * sizeof words[0]);
  for (int i = 0; i < row->count; i++)
    if (sl_row_kind(row, i) == SL_CELL_text)
      XXH3_128bits_update(state, row->cells[i].text, words[2 + i]);
  share->all[shared->shared].rows++;
  share->all[shared->shared].is_odd |= is_odd;
}

/* Of a rank whose rows are the last ones. */
static int rows_leave_out(const struct sl_rank_share *share, enum sl_shared shared, uint32_t rank, struct sl_db *db,
                          struct sl_error *error) {
  int r = sl_db_execute(db, "BEGIN", error);
  for (size_t i = 0; i < SL_SHARED_TABLES && r == 0; i++) {
    char sql[100];
    if (sl_shared_tables[i].shared != shared)
      continue;
    const bool by_rowid = has_rowid(&sl_shared_tables[i]);
    snprintf(sql, sizeof sql, "DELETE FROM %s WHERE %s :from", sl_ledger_table_name(sl_shared_tables[i].table),
             by_rowid ? "rowid >" : "rank =");
    r = sl_db_tell(db, sql, SL_WITH(SL_NUMBER(":from", by_rowid ? share->before[i] : (int64_t)rank)), error);
  }
  return r < 0 ? r : sl_db_execute(db, "COMMIT", error);
}

int sl_rank_share_settle(struct sl_rank_share *share, enum sl_shared shared, uint32_t rank,
                         struct sl_known_ranks *known, struct sl_db *db, bool *has_rows, struct sl_known_rank *same,
                         struct sl_error *error) {
  *has_rows = share->on && share->all[shared].rows > 0;
  if (!*has_rows)
    return 0;
  const XXH128_hash_t hash = XXH3_128bits_digest(share->all[shared].state);
  struct sl_known_rank own = {.low = hash.low64,
                              .high = hash.high64,
                              .rows = share->all[shared].rows,
                              .shared = shared,
                              .rank = rank,
                              .base_ns = share->base_ns};
  *same = own;
  if (share->all[shared].is_odd)
    return 0;
  for (size_t i = 0; i < known->count; i++) {
    const struct sl_known_rank *other = &known->list[i];
    if (other->low == own.low && other->high == own.high && other->rows == own.rows && other->shared == shared) {
      *same = *other;
      return rows_leave_out(share, shared, rank, db, error);
    }
  }
  struct sl_known_rank *added = SL_LIST_ADD(known->list, known->count);
  if (!added)
    return sl_no_memory(error);
  *added = own;
  return 0;
}
