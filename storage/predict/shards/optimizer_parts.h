/*
 * Of which parameter is each allocation of an optimizer's step? States say it by their names. Temporaries are of the
 * optimizer's parameters in their order, each the same number of times: either one parameter after the other or all of
 * them again and again. Where sizes do not bear that out to the byte, nothing is told.
 */
#ifndef SHARDLEDGER_OPTIMIZER_PARTS_H
#define SHARDLEDGER_OPTIMIZER_PARTS_H

#include "shards.h"
#include "storage/predict/tape/tape.h"

/*
 * out: of each of the tape's allocations 1 + index of sl_shards.parameters; 0: of none. Elements of parts are those of
 * that rank of so many. 0; -ENOTSUP, with the reason as the rest of a sentence in error; or -ENOMEM.
 */
int sl_optimizer_parts(const struct sl_tape *tape, const struct sl_shards *shards, uint64_t ranks, uint32_t *out,
                       struct sl_error *error);

/* Elements of a parameter's part as the optimizer sees it, where parameters of units are split over so many ranks. */
uint64_t sl_optimizer_elements(const struct sl_shards *shards, uint32_t parameter, uint64_t ranks);

#endif
