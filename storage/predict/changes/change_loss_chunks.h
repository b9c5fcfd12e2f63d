/*
 * The model's last layer and the loss on pieces of its rows, one after the other, each made again in backward:
 *
 *   sum(checkpoint(loss_of, h, t, use_reentrant=False) for h, t in zip(hidden.chunk(8), labels.chunk(8)))
 *
 *   recorded   output, what the loss makes of it ── backward: the same, and gradients of all rows
 *   changed    a piece, and over ── … ── backward: a piece again, its gradients ── … ── the pieces' gradients together
 *
 * What is in pieces is what is made from the output on, which is made last in forward, up to where backward frees what
 * the last layer was given. It is recognised where something as large as the output is made before backward: outside of
 * modules, or by the outermost one itself, as where a model computes its loss. Gradients of the layer's own parameters
 * are whole: the first piece's is kept, and each later one is added to it. Nothing of it is proven, and there are two
 * tapes:
 *
 *                                  at least                        at most
 *   what is saved, in forward      as soon as it is made           until the piece is over
 *   what reductions stage          nothing, as of few rows         as recorded
 *   autograd's thread lacks        what the loss itself had made   whatever forward's thread has
 *     workspaces of cuBLAS
 *   all else                       in proportion to rows           in proportion to rows
 */
#ifndef SHARDLEDGER_CHANGE_LOSS_CHUNKS_H
#define SHARDLEDGER_CHANGE_LOSS_CHUNKS_H

#include "storage/predict/tape/tape.h"
#include "storage/tables/db.h"

/*
 * Changes the tape to one end or the other. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or another
 * negative errno.
 */
int sl_change_loss_chunks(struct sl_db *db, struct sl_tape *tape, uint64_t chunks, bool at_most,
                          struct sl_error *error);

#endif
