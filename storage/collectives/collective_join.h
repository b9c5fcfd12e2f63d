/*
 * Which kernel ran which NCCL call?
 *
 * Calls that were made together (one call alone, or those between ncclGroupStart and ncclGroupEnd) form a batch; NCCL
 * launches one or more kernels for it, and each launch tells the correlation id by which the kernel's time arrives
 * later. Where launches were not recorded, the n-th call of an operation is taken for the n-th kernel of that name, but
 * only if that leaves no doubt: as many kernels as calls, all on one stream, none before its call.
 *
 * A call's row is written when its batch's kernels are known, else at the end of the log.
 */
#ifndef SHARDLEDGER_COLLECTIVE_JOIN_H
#define SHARDLEDGER_COLLECTIVE_JOIN_H

#include "plugin/format/events.h"
#include "storage/error.h"
#include "storage/tables/ledger_writer.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_launch;

struct sl_batch; /* calls launched together */

struct sl_call {
  struct sl_collective_row row;
  int kind;                       /* of kernels that run it: sl_kernel_kind of the operation; -1: none */
  bool detailed;                  /* NCCL's profiler has told about it */
  const struct sl_launch *launch; /* that runs it, where that is certain; NULL: any of its batch */
  struct sl_call *next;           /* of its batch */
  struct sl_batch *batch;
};

struct sl_joiner;

/* Rows go to the sink. NULL: no memory. Freeing it drops what has not gone there. */
struct sl_joiner *sl_joiner_new(sl_collective_sink *sink, void *context);
struct sl_joiner *sl_joiner_free(struct sl_joiner *joiner); /* returns NULL */

/* The process ended in order: no time is still to come. */
void sl_joiner_ended(struct sl_joiner *joiner);

/* So many calls, and kernels, may wait for a partner; older ones are given up: 2^20 without this. */
void sl_joiner_limit(struct sl_joiner *joiner, uint32_t waiting);

/* NULL: no memory. */
struct sl_batch *sl_batch_new(struct sl_joiner *joiner);

/* Takes the call over. */
void sl_batch_add(struct sl_batch *batch, struct sl_call *call);

/* Takes the last call out again, for the caller to add to another batch. */
struct sl_call *sl_batch_take_last(struct sl_batch *batch);

struct sl_call *sl_batch_calls(const struct sl_batch *batch); /* in order, ->next; NULL: none */
struct sl_call *sl_batch_undetailed(struct sl_batch *batch);  /* the first that the profiler has not told about */
bool sl_batch_launched(const struct sl_batch *batch);

/* The launch that was added last; NULL: none. Valid as long as the batch. */
const struct sl_launch *sl_batch_last_launch(const struct sl_batch *batch);

/* A kernel was launched for the batch. 0 or -ENOMEM. */
int sl_batch_launch(struct sl_joiner *joiner, struct sl_batch *batch, uint32_t correlation, struct sl_error *error);

/* No call and no launch will be added; the batch and its calls may be gone afterwards. 0 or a negative errno. */
int sl_batch_close(struct sl_joiner *joiner, struct sl_batch *batch, struct sl_error *error);

/* A kernel's times. Kernels that are not NCCL's are ignored. */
int sl_joiner_kernel(struct sl_joiner *joiner, const struct sl_event_kernel *kernel, const char *name,
                     struct sl_error *error);

/* The log has ended, all batches are closed: writes what is left. */
int sl_joiner_finish(struct sl_joiner *joiner, struct sl_error *error);

#endif
