/*
 * FSDP2 with reshard_after_forward=False: what a unit gathers for forward stays until its backward is over, and is not
 * gathered again.
 *
 *   recorded   gather ─ forward ─ freed        gather ─ backward ─ freed
 *   changed    gather ─ forward ────────────────────── backward ─ freed
 */
#ifndef SHARDLEDGER_CHANGE_RESHARD_H
#define SHARDLEDGER_CHANGE_RESHARD_H

#include "storage/predict/tape/tape.h"

/*
 * Changes the tape, in steps first to last. 0; -ENOTSUP, with the reason as the rest of a sentence in error, where
 * units do not gather twice, for forward and for backward, the same; or -ENOMEM.
 */
int sl_change_reshard_off(struct sl_tape *tape, int64_t first, int64_t last, struct sl_error *error);

#endif
