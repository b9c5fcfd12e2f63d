/*
 * Modules whose activations were recomputed (torch.utils.checkpoint), and now are kept: change_recompute.h, the other
 * way.
 *
 *   recorded   forward: temporary      backward: forward again up to what is saved last ─ freed one by one
 *   changed    forward: saved ───────────────────────────────── backward: freed one by one
 *
 * What a recomputation makes must be what its forward made, in the same order and to the byte, up to where it stops.
 * Of each of these two twins:
 *
 *   the second one ended                                        so the first one, in the changed run
 *   within the recomputation, or before anything else is made   ends as it did: the code that ran held it, nobody saved
 * it later, in backward                                          is saved, and ends when its operator of backward is
 * over
 *
 * A saved tensor that was recomputed ends within its operator, since nobody else has it; one that was kept ends when
 * the operator is over. That is known at both ends, so there are two tapes (operators are taken to let go of what they
 * saved at once, not one by one):
 *
 *                                  at the earliest                          at the latest
 *   saved, in backward             as its twin did                          before what an operator after it had saved
 *   the module's input             as soon as the module runs, since who    as recorded
 *                                  recomputes holds it, but perhaps nobody
 *                                  saves it; where it is recorded that
 *                                  backward uses it, after that
 *   workspaces of cuBLAS that      not made                                 as recorded
 *   only the recomputation needed
 */
#ifndef SHARDLEDGER_CHANGE_RECOMPUTE_NONE_H
#define SHARDLEDGER_CHANGE_RECOMPUTE_NONE_H

#include "storage/predict/tape/tape.h"
#include "storage/tables/db.h"

#include <stdbool.h>

/*
 * Changes the tape to one end or the other. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or another
 * negative errno. sl_tape.doubt says what is taken for granted where a function may be recomputed that is more than a
 * module, or with use_reentrant=True.
 */
int sl_change_recompute_none(struct sl_db *db, struct sl_tape *tape, bool at_latest, struct sl_error *error);

#endif
