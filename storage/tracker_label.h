/*
 * What PyTorch's FSDPMemTracker would call an allocation, and when: its labels change as it learns more, and it can't
 * see everything. The ledger's own categories are decided with hindsight; these labels only serve to compare.
 *
 * Where the two differ, and why:
 *   gradients          the tracker says Temp until their unit's post-backward begins, then Unsharded Grad
 *   sharded gradients  Temp until their unit's post-backward ends, then Sharded Grad
 *   optimizer scratch  OptState, also for the temporaries of foreach implementations
 *   all-gather casts   Activation in forward, Temp in backward
 *   forward scratch    Activation: the tracker does not know what dies soon
 *   recomputation      Temp, unless an FSDP unit itself is called again (then Activation)
 *   workspaces         not seen: libraries allocate them below the dispatcher
 *   what is kept       not seen when it was made in an earlier step, outside of the tracker
 *   bytes              requests rounded up to 512, where the allocator may hand out a larger block
 */
#ifndef SHARDLEDGER_TRACKER_LABEL_H
#define SHARDLEDGER_TRACKER_LABEL_H

#include "allocation.h"

/*
 * Sets tracker_label, tracker_later and tracker_bytes of a decided allocation whose phases are still there.
 * unit_recomputed: an FSDP unit's recomputation encloses it.
 */
void sl_tracker_label(struct sl_allocation *allocation, bool unit_recomputed);

#endif
