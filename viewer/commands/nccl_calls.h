/*
 * The NCCL calls of a ledger in memory, each with what it cost: the numbers of the view collective_cost, in a fraction
 * of its time. Long jobs make millions of calls, and each is held against those of all other ranks.
 *
 *   struct sl_nccl_calls *calls = NULL;
 *   r = sl_nccl_calls_read(db, &calls, error);
 *   …
 *   calls = sl_nccl_calls_free(calls);
 */
#ifndef SHARDLEDGER_NCCL_CALLS_H
#define SHARDLEDGER_NCCL_CALLS_H

#include "storage/tables/db.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_NO_NUMBER INT64_MIN /* NULL */

struct sl_nccl_meeting { /* one collective: the calls of all its ranks; a call that nobody is known to meet is one alone
                          */
  int64_t first_ns, last_ns; /* arrivals on the first host's clock; SL_NO_NUMBER without any */
  double transfer_ns;        /* the shortest share of all ranks, that is without waiting for others; < 0: that of one is
                                unknown */
  int64_t others_waited_ns;  /* for its last rank, in sum */
  int64_t last_rank;         /* lowest rank that arrived last; SL_NO_NUMBER where all came at once */
  uint32_t arrivals;
  uint32_t members; /* ranks of the communicator that the ledger has; 0: unknown. Fewer arrivals tell no order */
};

/* Every int64_t may be SL_NO_NUMBER. */
struct sl_nccl_call {
  int64_t id, rank, comm, seq, bytes, step;
  int64_t enqueue_ns, start_ns, end_ns;
  int64_t arrival_ns; /* start on the first host's clock */
  int64_t exposed_ns; /* of start … end: no other kernel of its process ran there */
  int64_t nranks;     /* of its communicator */
  uint32_t members;   /* of these, in the ledger; 0: unknown */
  uint32_t kernel_calls;
  int place;     /* of its rank: index of sl_nccl_calls.ranks; -1: a rank that the ledger does not have */
  int operation; /* index of sl_nccl_calls.operations */
  int module;    /* index of sl_nccl_calls.modules; -1: none */
  size_t meeting;
};

struct sl_nccl_rank {
  int64_t rank;
  char *host;
  int host_number;   /* 0: that of the first rank */
  int64_t offset_ns; /* of its host's clock; SL_NO_NUMBER: it shares no collective with the first one */
};

struct sl_nccl_module {
  int64_t id;
  char *key; /* the same for one module on all ranks */
  char *fqn;
  char *text; /* its name in text output */
};

struct sl_nccl_calls {
  struct sl_nccl_call *calls; /* in the order of meetings, and of ranks in each */
  size_t count;
  struct sl_nccl_meeting *meetings;
  size_t meeting_count;
  struct sl_nccl_rank *ranks; /* by rank */
  int rank_count, host_count;
  char **operations;
  int operation_count;
  struct sl_nccl_module *modules; /* by id */
  int module_count;
};

/* *out owns all of it. 0 or a negative errno. */
int sl_nccl_calls_read(struct sl_db *db, struct sl_nccl_calls **out, struct sl_error *error);
struct sl_nccl_calls *sl_nccl_calls_free(struct sl_nccl_calls *calls); /* returns NULL */

/* On the device; SL_NO_NUMBER where it is not known. The share is this call's part of its kernel; < 0: not known. */
int64_t sl_nccl_duration(const struct sl_nccl_call *call);
double sl_nccl_share(const struct sl_nccl_call *call);
double sl_nccl_exposed_share(const struct sl_nccl_call *call);

/* From the first rank's arrival to the last one's; SL_NO_NUMBER where fewer than two are known, or not all. */
int64_t sl_nccl_spread(const struct sl_nccl_meeting *meeting);

/* Whether this call's rank was the one that the others waited for. */
bool sl_nccl_is_last(const struct sl_nccl_meeting *meeting, const struct sl_nccl_call *call);

/* NCCL-tests' definitions: divided by a time they are its algorithm and bus bandwidth. < 0: not known. */
double sl_nccl_algorithm_bytes(const struct sl_nccl_calls *calls, const struct sl_nccl_call *call);
double sl_nccl_bus_bytes(const struct sl_nccl_calls *calls, const struct sl_nccl_call *call);

#endif
