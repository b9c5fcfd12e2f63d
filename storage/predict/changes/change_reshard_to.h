/*
 * FSDP2 with reshard_after_forward=N, of a run that reshards to all ranks: after forward each unit but the root keeps
 * an N-th of each gathered parameter, in the type that it is computed in, until it is gathered again for backward.
 *
 *   forward's end   for each parameter: its part is made, and what was gathered is freed
 *   backward        gathered from the parts (a cast of them first, where types differ) and copied out; then the parts
 * go
 */
#ifndef SHARDLEDGER_CHANGE_RESHARD_TO_H
#define SHARDLEDGER_CHANGE_RESHARD_TO_H

#include "storage/predict/shards/shards.h"
#include "storage/predict/tape/tape.h"

/*
 * ranks: of the job, as the tape is. Changes the tape. 0; -ENOTSUP, with the reason as the rest of a sentence in error;
 * or -ENOMEM.
 */
int sl_change_reshard_to(struct sl_tape *tape, const struct sl_shards *shards, uint64_t ranks, uint64_t kept_ranks,
                         struct sl_error *error);

#endif
