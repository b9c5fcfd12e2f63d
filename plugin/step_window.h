/*
 * SHARDLEDGER_STEPS: the steps whose device times (kernels, copies, memsets) are kept. Allocations and ranges are
 * always recorded: the replay is exact only from the beginning.
 */
#ifndef SHARDLEDGER_STEP_WINDOW_H
#define SHARDLEDGER_STEP_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* A step's range begins; at_ns: CLOCK_REALTIME. Cheap: two comparisons when the option is not set. */
void sl_step_window_begin(uint64_t step, uint64_t at_ns);

/* Whether something that happened then belongs to a step that is wanted. One or two relaxed loads. */
bool sl_step_window_has(uint64_t at_ns);

#endif
