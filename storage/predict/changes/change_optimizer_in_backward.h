/*
 * The optimizer steps in backward, parameter by parameter, and each gradient is freed at once: one optimizer for each
 * parameter, of the same kind, in a hook that PyTorch calls when the parameter has its gradient:
 *
 *   optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}
 *   def step(p): optimizers[p].step(); optimizers[p].zero_grad()
 *   for p in optimizers: p.register_post_accumulate_grad_hook(step)
 *
 *   recorded   backward: gradients ─────────────── optimizer: states, temporaries of all ─ zero_grad: gradients freed
 *   changed    backward: gradient ─ its states, its temporaries ─ freed ─ gradient ─ …
 *
 * Where that is:
 *
 *   one device   where autograd adds the gradient (gradient_turn.h), which is known at two ends only. At the least the
 *                gradient ends at the first of them, states are made at the last, and temporaries where between them
 *                the least is alive; at the most it is the other way.
 *   FSDP2        while it reduces a unit: parameter by parameter, in their order, when all of the unit are reduced, on
 *                the stream of that. The unit's reduced gradients end with the function that reduces; those that are
 *                reduced among copies, too (HSDP), are kept to the end of backward.
 */
#ifndef SHARDLEDGER_CHANGE_OPTIMIZER_IN_BACKWARD_H
#define SHARDLEDGER_CHANGE_OPTIMIZER_IN_BACKWARD_H

#include "optimizer_record.h"
#include "storage/predict/tape/tape.h"
#include "storage/tables/db.h"

/*
 * to: another optimizer than the recorded one, or SL_OPTIMIZER_as_recorded; world_size: ranks that the tape is of.
 * Changes it to one end or the other. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or another
 * negative errno.
 */
int sl_change_optimizer_in_backward(struct sl_db *db, struct sl_tape *tape, uint64_t world_size, enum sl_optimizer to,
                                    bool at_most, struct sl_error *error);

#endif
