/* NCCL calls of steps that repeat another one, whose own rows are left out: their totals, beside the calls themselves.
 */
#ifndef SHARDLEDGER_NCCL_TOTALS_H
#define SHARDLEDGER_NCCL_TOTALS_H

#include "commands/nccl_groups.h"

struct sl_nccl_totals {
  int64_t calls, timed, steps; /* steps: of all ranks together */
};

int sl_nccl_totals_read(struct sl_db *db, struct sl_nccl_totals *out, struct sl_error *error);

/*
 * Adds to groups, by operation or communicator, what their calls have in such steps: calls, bytes and time. A group of
 * which nothing else was asked for is added. *groups is the caller's, as sl_nccl_groups_make made it. 0 or -errno.
 */
int sl_nccl_totals_add(struct sl_db *db, const struct sl_nccl_calls *calls, enum sl_nccl_grouping grouping,
                       int64_t rank, int64_t step, struct sl_nccl_group **groups, size_t *count,
                       struct sl_error *error);

#endif
