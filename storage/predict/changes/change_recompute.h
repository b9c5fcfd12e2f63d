/*
 * Modules whose activations are not kept but recomputed (torch.utils.checkpoint with use_reentrant=False, early stop):
 *
 *   recorded   forward: saved ───────────────────────────────── backward: freed one by one
 *   changed    forward: temporary      backward: forward again up to what is saved last ─ freed one by one
 *
 * When within forward a saved tensor was used last is in no record, nor when within an operator of backward its saved
 * ones are unpacked. So there are two tapes: in one all of that ends as early as it can, in the other as late. Outside
 * of these modules they are the same.
 *
 *                                  at the earliest                          at the latest
 *   saved, in forward              as soon as it is made                    where the module's forward ends
 *   recomputation                  before the module's first allocation of backward, or after all that come before the
 *                                  first saved one is freed
 *   how far                        to the last that is saved                all but the output
 *   saved, in backward             after the saved one before it            as recorded
 *   the module's input             as recorded                              where its backward ends
 *
 * Where uses of operators are recorded (tape_uses.h), the earliest of these is not before what used it last: in
 * forward, in backward, and for the recomputation, which is over when something saved is used.
 *
 * The autograd thread gets the workspaces of cuBLAS that the module's forward needed, where it has none such.
 */
#ifndef SHARDLEDGER_CHANGE_RECOMPUTE_H
#define SHARDLEDGER_CHANGE_RECOMPUTE_H

#include "storage/predict/tape/tape.h"
#include "storage/tables/db.h"

#include <stdbool.h>

/*
 * modules: "all", which is each numbered entry of the outermost lists (blocks.0), or patterns as blocks.[0-3],head.
 * Changes the tape to one end or the other. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or another
 * negative errno.
 */
int sl_change_recompute(struct sl_db *db, struct sl_tape *tape, const char *modules, bool at_latest,
                        struct sl_error *error);

#endif
