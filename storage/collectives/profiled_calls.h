/* What NCCL's profiler tells of a call: datatype, algorithm, buffers; and of a communicator: its name. */
#ifndef SHARDLEDGER_PROFILED_CALLS_H
#define SHARDLEDGER_PROFILED_CALLS_H

#include "collectives.h"

/* Takes an nccl_call event, and an nccl_communicator event. 0 or a negative errno. */
int sl_profiled_call(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error);
int sl_profiled_communicator(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error);

#endif
