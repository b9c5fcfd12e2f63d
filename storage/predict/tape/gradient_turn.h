/*
 * When autograd adds a gradient to its parameter's (AccumulateGrad): as soon as the operator of backward is over that
 * made the last part of it, before anything else is made. When that is no record tells, so there are two ends.
 *
 * At the earliest it is when the gradient is made, and not before what the operator surely goes on with: another
 * gradient of the same module that is made at once, with nothing freed; a workspace of cuBLAS; what its reduction
 * stages (staging.h). Where uses of operators are recorded, the operator goes on until it lets go of a saved tensor
 * that it used.
 *
 * At the latest it is before the first allocation that follows a freed saved tensor, as an operator lets go of these
 * when it is over. As a parameter may be used twice, any later temporary of the gradient's size may be another part of
 * it, which is added as soon as its own operator is over, unless it was staged, or one operator at least has ended
 * while it lived: something was freed then that was saved, or that was made by an operator before its own, and
 * something made after that. Code that torch.compile made lets go of tensors within one operator: there neither end is
 * proven.
 */
#ifndef SHARDLEDGER_GRADIENT_TURN_H
#define SHARDLEDGER_GRADIENT_TURN_H

#include "tape.h"
#include "tape_uses.h"

struct sl_gradient_place { /* the events of a step up to its optimizer, in order */
  const struct sl_tape *tape;
  const struct sl_tape_use *uses; /* of its recorded allocations */
  const size_t *events;           /* of sl_tape.events */
  size_t count;
  bool unsharded_too; /* whole gradients of FSDP2 are what is added to */
};

/* The event before which it is, at the earliest and at the latest, of a gradient that the one at made makes. */
size_t sl_gradient_turn_early(const struct sl_gradient_place *place, size_t made);
size_t sl_gradient_turn_late(const struct sl_gradient_place *place, size_t made);

/* For a change that has used them: where they are not proven, says so in sl_tape.doubt. */
void sl_gradient_turn_doubt(struct sl_tape *tape);

#endif
