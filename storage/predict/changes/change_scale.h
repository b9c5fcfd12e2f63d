/*
 * Larger or smaller batches, or longer or shorter sequences, from several runs of one job that differ in this alone.
 * Each allocation's like is looked for in the other runs, period by period and in order (of the same phase and module);
 * where sizes differ, a polynomial goes through them: a line through two runs, a parabola through three.
 *
 * Nothing of it is proven. Kernels are chosen by size, so a larger job may make what none of the runs does, and sizes
 * may step: sl_tape.doubt says how many allocations had no like, which are taken to grow with it.
 */
#ifndef SHARDLEDGER_CHANGE_SCALE_H
#define SHARDLEDGER_CHANGE_SCALE_H

#include "storage/predict/tape/tape.h"

enum { SL_SCALE_RUNS = 2 };

struct sl_scale_run {
  const struct sl_tape *tape; /* of the same rank */
  double factor;              /* its batch, or its length, over the recorded one; neither 0 nor 1 */
};

/*
 * Changes the tape to one with factor times the batch or the length. 0; -ENOTSUP, with the reason as the rest of a
 * sentence in error; or -ENOMEM.
 */
int sl_change_scale(struct sl_tape *tape, const struct sl_scale_run *runs, size_t count, double factor, bool at_most,
                    struct sl_error *error);

#endif
