/*
 * SHARDLEDGER_STEPS: the steps whose device times (kernels, copies, memsets) are recorded. Allocations and ranges
 * always are: the replay is exact only from the beginning.
 *
 * Timing every kernel costs a step some per cent (docs/overhead.md), so by default only a sample of steps is timed.
 */
#ifndef SHARDLEDGER_STEP_WINDOW_H
#define SHARDLEDGER_STEP_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

enum {
  SL_TIMED_FIRST_STEPS = 10, /* auto: so many steps from the first, */
  SL_TIMED_EVERY = 20,       /* then one of so many */
};

/* A step's range begins. True when device times are wanted from now on and were not before, or the other way round. */
bool sl_step_window_begin(uint64_t step);

/* Whether device times are wanted now. Before the first step: whether they are in step 0. */
bool sl_step_window_open(void);

/* What is recorded, in words for the user; "" for everything. */
const char *sl_step_window_words(void);

#endif
