/* Sums, medians and bandwidths over groups of NCCL calls. */
#ifndef SHARDLEDGER_NCCL_GROUPS_H
#define SHARDLEDGER_NCCL_GROUPS_H

#include "commands/nccl_calls.h"

enum sl_nccl_grouping {
  SL_NCCL_BY_OPERATION,    /* longest time first */
  SL_NCCL_BY_MODULE,       /* and operation; in the model's order, calls that serve none last */
  SL_NCCL_BY_COMMUNICATOR, /* longest time first */
};

/*
 * A collective is counted once a rank; bytes and transfer times, which all its ranks have alike, are added up the same
 * way, so that bandwidths are right. Medians are of the ranks' calls. Numbers may be SL_NO_NUMBER, others < 0: unknown.
 */
struct sl_nccl_group {
  const char *operation; /* of one of its calls */
  int module;            /* index of sl_nccl_calls.modules, on the lowest rank; -1: none */
  int64_t place;         /* of this module in its model */
  int64_t comm, nranks;  /* of its communicator, the most that any call says */
  int64_t ranks, count, timed;
  int64_t bytes, median_ns, median_delay_ns, median_spread_ns, max_spread_ns;
  double total_ns, exposed_ns; /* exposed_ns: of calls that tell it; their time is exposable_ns */
  double exposable_ns;
  double algorithm_rate, bus_rate; /* bytes a nanosecond */
};

/* The calls of a rank and a step; -1: of all. *out is an array that the caller frees. 0 or -ENOMEM. */
int sl_nccl_groups_make(const struct sl_nccl_calls *calls, enum sl_nccl_grouping grouping, int64_t rank, int64_t step,
                        struct sl_nccl_group **out, size_t *count);

/* Puts groups into their grouping's order. */
void sl_nccl_groups_sort(struct sl_nccl_group *groups, size_t count, enum sl_nccl_grouping grouping);

#endif
