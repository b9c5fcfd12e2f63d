/*
 * FSDP2 with another MixedPrecisionPolicy. What its units gather, copy and reduce follows from shapes (shards.h), and
 * so do the casts before they gather. The types of activations are in no record, nor what a program casts itself: a
 * cast to float32 does nothing, and leaves no trace, where all is float32 already. So there are two tapes:
 *
 *                                            the least                        the most
 *   made in forward and backward, outside    in the new type                  as recorded
 *   of units' own phases
 *   what reductions stage (staging.h)        as recorded                      as recorded
 *   what the model returns                   in the new type                  and a float32 copy of it until it ends
 *
 * and from a smaller type to a larger one likewise, as recorded or in the new type. Neither is proven: kernels are
 * chosen by type.
 */
#ifndef SHARDLEDGER_CHANGE_MIXED_PRECISION_H
#define SHARDLEDGER_CHANGE_MIXED_PRECISION_H

#include "storage/predict/shards/shards.h"
#include "storage/predict/tape/tape.h"

/*
 * dtype: of parameters where they are gathered, as PyTorch names it (bfloat16); reduce_dtype: of gradients where they
 * are reduced. ranks: that share a unit's
 * parameters. Changes the tape to one end or the other. 0; -ENOTSUP, with the reason
 * as the rest of a sentence in error; or -ENOMEM.
 */
int sl_change_mixed_precision(struct sl_tape *tape, const struct sl_shards *before, struct sl_shards *after,
                              uint64_t ranks, const char *dtype, const char *reduce_dtype, bool at_most,
                              struct sl_error *error);

#endif
