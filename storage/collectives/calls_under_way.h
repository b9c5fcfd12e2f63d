/*
 * NCCL's calls that are being made, as the parts of collectives.h share them: in which ranges of NCCL each thread is,
 * and which calls wait for a launch. Nobody outside of these includes this:
 *
 *   collectives.c      what each event does
 *   profiled_calls.c   what NCCL's profiler adds
 *   calls_under_way.c  a call begins, and comes to a batch
 */
#ifndef SHARDLEDGER_CALLS_UNDER_WAY_H
#define SHARDLEDGER_CALLS_UNDER_WAY_H

#include "collective_join.h"
#include "collectives.h"
#include "communicators.h"
#include "storage/hash_table.h"
#include "storage/log/nccl_payload.h"

enum {
  MAX_DEPTH = 16,
  DOMAIN_LIMIT = 256,
};

enum range_kind { RANGE_other, RANGE_operation, RANGE_initialisation, RANGE_group_end };

struct range { /* an open range of NCCL */
  enum range_kind kind;
  struct sl_call *call;                 /* of an operation; NULL inside of another operation */
  struct sl_communicator *communicator; /* of an initialisation, and of an operation once its payload is read */
};

struct thread {
  uint32_t thread;
  struct range ranges[MAX_DEPTH];
  uint32_t depth;                    /* may exceed MAX_DEPTH: deeper ranges are counted only */
  struct range last;                 /* that of the range event just before: a payload belongs to it */
  bool last_is_open;                 /* and that event was its push */
  struct sl_batch *batch;            /* calls that are not launched yet, or to which a launch may still be added */
  struct thread *prev, *next;        /* those that have such calls */
  struct sl_communicator *works_for; /* of the innermost open range that has one; NULL: none */
  uint64_t launch_ns;                /* of its last launch */
  UT_hash_handle hh;
};

struct sl_collectives {
  const struct sl_log *log;
  struct sl_phases *phases;
  struct sl_collective_host host;
  struct sl_ledger_writer *writer;
  struct sl_nccl_schemas *schemas;
  struct sl_joiner *joiner;
  bool is_nccl[DOMAIN_LIMIT];
  bool ranges_seen;                 /* NVTX tells the calls */
  struct thread *threads, *waiting; /* waiting: those with a batch */
  struct sl_communicators *communicators;
  uint64_t last_id;
};

struct thread *sl_calls_thread(struct sl_collectives *c, uint32_t number); /* NULL: no memory */

/* The communicator that the thread's ranges say it works for; NULL: none does. */
struct sl_communicator *sl_calls_communicator(const struct thread *thread);

/* A call that the thread makes now. NULL: no memory. */
struct sl_call *sl_call_new(struct sl_collectives *c, const struct sl_event *event, const char *operation);

/*
 * Adds a call to what its thread will launch next; or, where only NCCL's profiler tells the calls, which it does behind
 * each launch, to what it has launched last. Takes it over. 0 or a negative errno.
 */
int sl_call_add(struct sl_collectives *c, struct thread *thread, struct sl_call *call, struct sl_error *error);

/* Collectives count within their communicator, sends and receives with their peer: so the two ends' numbers agree. */
int sl_call_number(struct sl_communicator *communicator, struct sl_collective_row *row, struct sl_error *error);

/* The batch (NULL: none) is the thread's now; and it ends. */
void sl_calls_batch_is(struct sl_collectives *c, struct thread *thread, struct sl_batch *batch);
int sl_calls_batch_end(struct sl_collectives *c, struct thread *thread, struct sl_error *error);

#endif
