/* Finds the limit that advice has to reach: the budget, a refused request, or the device. */
#include "goal.h"

#include "reserved.h"
#include "storage/allocator/allocator_config.h"
#include "storage/tables/sql_text.h"

#include <inttypes.h>
#include <string.h>

enum { PAGE = 2 << 20 }; /* what the driver hands out */

static int64_t or_none(struct sl_statement *row, int column) {
  return sl_column_is_null(row, column) ? -1 : sl_column_int(row, column);
}

static uint64_t or_zero(struct sl_statement *row, int column) {
  const int64_t bytes = sl_column_int(row, column);
  return bytes > 0 ? (uint64_t)bytes : 0;
}

static int refused_read(struct sl_db *db, struct sl_goal *goal, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, sl_advise_goal_refused_sql,
                          SL_WITH(SL_NUMBER(":rank", goal->rank), SL_NUMBER(":at", goal->at_ns)), &row, error);
  if (r > 0) {
    struct sl_allocator_config config;
    sl_allocator_config_parse(sl_column_text(row, 8), &config);
    goal->is_refused = true;
    goal->is_allocator = strcmp(sl_column_text(row, 5), "allocator") == 0;
    goal->refused_bytes = or_zero(row, 0);
    goal->wanted_bytes = goal->is_allocator
                             ? sl_allocator_segment(&config, sl_allocator_round(&config, goal->refused_bytes))
                             : goal->refused_bytes;
    goal->free_bytes = or_none(row, 1);
    goal->allocated_bytes = or_zero(row, 2);
    goal->reserved_bytes = or_zero(row, 3);
    goal->largest_free_bytes = or_zero(row, 4);
    goal->step = sl_column_int(row, 6);
    goal->is_deadly = sl_column_int(row, 7) != 0;
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

static int own_read(struct sl_db *db, struct sl_goal *goal, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, sl_advise_goal_outside_sql, SL_WITH(SL_NUMBER(":rank", goal->rank)), &row, error);
  if (r > 0)
    goal->own_bytes = or_zero(row, 0);
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

int sl_goal_read(struct sl_db *db, uint32_t rank, int64_t at_ns, struct sl_goal *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  *out = (struct sl_goal){.rank = rank, .at_ns = at_ns, .period = -1, .step = -1, .free_bytes = -1};
  int r = sl_db_ask_first(db, sl_advise_goal_peak_sql, SL_WITH(SL_NUMBER(":rank", rank)), &row, error);
  if (r > 0) {
    out->period = sl_column_int(row, 0);
    out->allocated_bytes = or_zero(row, 1);
    out->has_steps = sl_column_int(row, 2) != 0;
    out->step = sl_column_int(row, 4);
  }
  row = sl_statement_close(row);
  if (r >= 0)
    r = own_read(db, out, error);
  if (r < 0)
    return r;
  if (at_ns >= 0)
    return refused_read(db, out, error);
  if (out->period < 0)
    return sl_error_set(error, -ENODATA, "rank %u: no allocation was recorded, so there is nothing to advise on", rank);
  return 0;
}

/* ---- the limit ---- */

static int budget_take(struct sl_goal *goal, uint64_t budget, struct sl_error *error) {
  goal->budget_bytes = budget;
  goal->limit = SL_LIMIT_budget;
  if (budget <= goal->own_bytes)
    return sl_error_set(error, -EINVAL,
                        "a budget of %" PRIu64
                        " bytes leaves nothing for PyTorch's allocator: the CUDA context, NCCL and other "
                        "libraries have %" PRIu64 " bytes ('shardledger device')",
                        budget, goal->own_bytes);
  goal->limit_bytes = goal->limit_most = budget - goal->own_bytes;
  return 0;
}

static void refused_take(struct sl_goal *goal, const struct sl_tape *tape) {
  const bool is_full = goal->free_bytes >= 0 && (uint64_t)goal->free_bytes < goal->wanted_bytes;
  if (!goal->reserved_bytes || !goal->is_allocator)
    return;
  goal->limit = is_full ? SL_LIMIT_device : SL_LIMIT_process;
  goal->limit_bytes = goal->reserved_bytes + (is_full ? (uint64_t)goal->free_bytes / PAGE * PAGE : 0);
  goal->limit_most = goal->reserved_bytes + goal->wanted_bytes - 1;
  goal->limit_event = sl_reserved_below(tape, goal->limit_bytes).from;
  const struct sl_reserved life = sl_reserved_below(tape, goal->limit_most);
  goal->life_event = life.from;
  if (life.most > goal->limit_bytes)
    goal->limit_life = life.most;
}

int sl_goal_limit(struct sl_goal *goal, const struct sl_tape *tape, uint64_t budget_bytes, struct sl_error *error) {
  if (budget_bytes)
    return budget_take(goal, budget_bytes, error);
  if (goal->is_refused) {
    refused_take(goal, tape);
  } else if (tape->device_bytes > tape->outside_bytes && tape->outside_bytes) {
    goal->limit = SL_LIMIT_device;
    goal->limit_bytes = goal->limit_most = tape->device_bytes - tape->outside_bytes;
  }
  return 0;
}

/*
 * It is served by one block of the cache, not for a library and none that it could not use, or by what is wanted from
 * the driver, unless that was refused for another reason than the device's free bytes.
 */
uint64_t sl_goal_missing(const struct sl_goal *goal) {
  const bool has_block = goal->is_allocator && goal->largest_free_bytes < goal->refused_bytes;
  uint64_t missing = goal->refused_bytes - (has_block ? goal->largest_free_bytes : 0);
  const uint64_t free_bytes = goal->free_bytes >= 0 ? (uint64_t)goal->free_bytes : 0;
  const bool is_full = goal->free_bytes >= 0 && free_bytes < goal->wanted_bytes;
  if (is_full && goal->wanted_bytes - free_bytes < missing)
    missing = goal->wanted_bytes - free_bytes;
  return missing;
}
