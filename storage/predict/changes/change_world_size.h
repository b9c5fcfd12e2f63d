/*
 * Another number of ranks, of a job whose parameters FSDP2 splits over all of them: shards, what is gathered and
 * reduced, gradients and the optimizer's states take what shards.h says, in the recorded order. First the recorded run
 * must be, in each of these allocations, what the same rules say of its own number, to the byte.
 *
 * What batches, activations and workspaces take does not depend on it. What the program itself makes after backward or
 * outside of steps (clipped norms, copies of shards) may: then no figure is proven, and sl_tape.doubt says so.
 */
#ifndef SHARDLEDGER_CHANGE_WORLD_SIZE_H
#define SHARDLEDGER_CHANGE_WORLD_SIZE_H

#include "storage/predict/shards/shards.h"
#include "storage/predict/tape/tape.h"

/* Changes the tape. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or -ENOMEM. */
int sl_change_world_size(struct sl_tape *tape, const struct sl_shards *shards, uint64_t ranks, struct sl_error *error);

#endif
