/*
 * FSDP2 with reshard_after_forward=True, of a run without: but for the root's, what a unit gathers for forward goes
 * when its forward is over, and is gathered again for backward. When is in the record: FSDP2 marks the end of each
 * unit's forward, where it would prefetch it, and where its backward begins, also when there is nothing to do.
 *
 *   recorded   gather ─ forward ────────────────────────── backward ─ freed
 *   changed    gather ─ forward ─ freed   gather (prefetch) ─ copy ─ backward ─ freed
 */
#ifndef SHARDLEDGER_CHANGE_RESHARD_ON_H
#define SHARDLEDGER_CHANGE_RESHARD_ON_H

#include "storage/predict/tape/tape.h"
#include "storage/tables/db.h"

/* Changes the tape. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or another negative errno. */
int sl_change_reshard_on(struct sl_db *db, struct sl_tape *tape, struct sl_error *error);

#endif
