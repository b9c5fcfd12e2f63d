/*
 * Gradients accumulated over several forwards and backwards before the optimizer's step, of which the recorded step has
 * one. Each later one is as the first, of the same batch size, but for gradients, which are there already:
 *
 *   one device       what backward makes is added to the first one's, and ends when the operator that made it is over
 *   FSDP2            the reduced gradient is added, and ends at once
 *   FSDP2, no sync   nothing is reduced but in the last one; until then whole gradients stay, as on one device
 *
 * When a gradient is added no record tells (gradient_turn.h), nor whether what is never freed is made once or each
 * time. So, as in change_recompute.h, there is a tape for each end.
 */
#ifndef SHARDLEDGER_CHANGE_ACCUMULATE_H
#define SHARDLEDGER_CHANGE_ACCUMULATE_H

#include "storage/predict/shards/shards.h"
#include "storage/predict/tape/tape.h"
#include "storage/tables/db.h"

/*
 * times: forwards and backwards a step. Changes the tape to one end or the other. 0; -ENOTSUP, with the reason as the
 * rest of a sentence in error; or another negative errno.
 */
int sl_change_accumulate(struct sl_db *db, struct sl_tape *tape, const struct sl_shards *shards, uint64_t times,
                         bool no_sync, bool at_latest, struct sl_error *error);

#endif
