#include "commands/nccl_totals.h"

#include "commands/peak_queries.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sl_nccl_totals_read(struct sl_db *db, struct sl_nccl_totals *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_prepare(db,
                        "SELECT coalesce(sum(calls), 0), coalesce(sum(timed), 0),"
                        " (SELECT coalesce(sum(steps - steps_in_full), 0) FROM rank_steps) FROM rank_collectives",
                        &statement, error);
  if (r < 0)
    return r;
  r = sl_statement_step(statement, error);
  if (r > 0)
    *out =
        (struct sl_nccl_totals){sl_column_int(statement, 0), sl_column_int(statement, 1), sl_column_int(statement, 2)};
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* The calls' own text of an operation: a step that is left out repeats one that is not. */
static const char *operation_of(const struct sl_nccl_calls *calls, const char *name) {
  for (int i = 0; i < calls->operation_count; i++)
    if (strcmp(calls->operations[i], name) == 0)
      return calls->operations[i];
  return "(unknown)";
}

static struct sl_nccl_group *group_of(struct sl_nccl_group **groups, size_t *count, enum sl_nccl_grouping grouping,
                                      const char *operation, int64_t comm) {
  for (size_t i = 0; i < *count; i++)
    if (grouping == SL_NCCL_BY_OPERATION ? strcmp((*groups)[i].operation, operation) == 0 : (*groups)[i].comm == comm)
      return &(*groups)[i];
  struct sl_nccl_group *grown = sl_list_grow(*groups, *count, sizeof *grown);
  if (!grown)
    return NULL;
  *groups = grown;
  grown[*count] = (struct sl_nccl_group){
      .operation = operation,
      .module = -1,
      .comm = comm,
      .nranks = SL_NO_NUMBER,
      .bytes = SL_NO_NUMBER,
      .median_ns = SL_NO_NUMBER,
      .median_delay_ns = SL_NO_NUMBER,
      .median_spread_ns = SL_NO_NUMBER,
      .max_spread_ns = SL_NO_NUMBER,
      .total_ns = -1,
      .exposed_ns = -1,
      .exposable_ns = -1,
      .algorithm_rate = -1,
      .bus_rate = -1,
  };
  return &grown[(*count)++];
}

int sl_nccl_totals_add(struct sl_db *db, const struct sl_nccl_calls *calls, enum sl_nccl_grouping grouping,
                       int64_t rank, int64_t step, struct sl_nccl_group **groups, size_t *count,
                       struct sl_error *error) {
  struct sl_statement *statement = NULL;
#define SUMS_OF(rows)                                                                                                  \
  "SELECT operation, comm, count(DISTINCT rank), sum(calls), sum(bytes), sum(timed), sum(duration_ns) FROM " rows      \
  " AND (:rank IS NULL OR rank = :rank) GROUP BY iif(:by_comm, coalesce(comm, ''), operation)"
  int r = sl_db_prepare(db,
                        step < 0 ? SUMS_OF("rank_collectives WHERE true")
                                 : SUMS_OF("rank_steps CROSS JOIN collective_total USING (rank)"
                                           " WHERE step = :step AND NOT before"),
                        &statement, error);
  if (r < 0)
    return r;
  sl_bind_optional(statement, ":rank", rank);
  if (step >= 0)
    sl_bind_named_int(statement, ":step", step);
  sl_bind_named_int(statement, ":by_comm", grouping == SL_NCCL_BY_COMMUNICATOR);
  while ((r = sl_statement_step(statement, error)) > 0) {
    int64_t comm = sl_column_is_null(statement, 1) ? SL_NO_NUMBER : sl_column_int(statement, 1);
    struct sl_nccl_group *group =
        group_of(groups, count, grouping, operation_of(calls, sl_column_text(statement, 0)), comm);
    if (!group) {
      r = sl_no_memory(error);
      break;
    }
    int64_t ranks = sl_column_int(statement, 2), bytes = sl_column_int(statement, 4);
    group->ranks = ranks > group->ranks ? ranks : group->ranks;
    group->count += sl_column_int(statement, 3);
    group->bytes = (group->bytes == SL_NO_NUMBER ? 0 : group->bytes) + bytes;
    group->timed += sl_column_int(statement, 5);
    if (sl_column_int(statement, 5))
      group->total_ns = (group->total_ns < 0 ? 0 : group->total_ns) + (double)sl_column_int(statement, 6);
  }
  statement = sl_statement_close(statement);
  sl_nccl_groups_sort(*groups, *count, grouping);
  return r;
}
