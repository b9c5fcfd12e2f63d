/* The backward of FSDP's units, which FSDP's own ranges show: from pre_backward to the last post_backward range. */
#ifndef SHARDLEDGER_UNIT_BACKWARDS_H
#define SHARDLEDGER_UNIT_BACKWARDS_H

#include "open_phases.h"

/* Before a range opens: it may open its unit's backward, or reopen it for the reduce. 0 or -ENOMEM. */
int sl_unit_backward_before(struct sl_phases *phases, const struct sl_event *event, uint64_t at,
                            enum sl_phase_point point, uint32_t module);

/* After a range has closed: a unit's backward ends with its reduce; without one (no gradient sync) with its reshard. */
void sl_unit_backward_after(struct sl_phases *phases, enum sl_phase_point point, uint32_t module, uint64_t time_ns,
                            uint64_t at);

/*
 * Closes module backwards that ended with their reshard, the latest first, now that something else than their reduce
 * follows.
 */
void sl_unit_backwards_settle(struct sl_phases *phases, uint32_t reducing_module);

/* Closes what a backward pass left open when it ends. */
void sl_unit_backwards_end(struct sl_phases *phases, uint64_t time_ns, uint64_t at);

#endif
