/*
 * The optimizer's states in the host's memory but for its steps: before each but the first all are copied to the
 * device, in the order in which they were made, and after each they are freed one by one:
 *
 *   for state in optimizer.state.values():
 *     for key, value in state.items():
 *       if value.dim(): state[key] = value.to(device)      # afterwards: .to("cpu")
 */
#ifndef SHARDLEDGER_CHANGE_OFFLOAD_H
#define SHARDLEDGER_CHANGE_OFFLOAD_H

#include "storage/predict/tape/tape.h"

/* Changes the tape. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or -ENOMEM. */
int sl_change_offload_optimizer(struct sl_tape *tape, struct sl_error *error);

#endif
