/*
 * What PyTorch's FSDPMemTracker, or for models without FSDP2 its MemTracker, would call an allocation, and when: their
 * labels change as they learn more, and they can't see everything. The ledger's own categories are decided with
 * hindsight; these labels only serve to compare.
 *
 * Where the two differ, and why:
 *   gradients          the tracker says Temp until their unit's post-backward begins, then Unsharded Grad; MemTracker
 *                      says Gradient as soon as backward's function that made one has ended
 *   sharded gradients  Temp until their unit's post-backward ends, then Sharded Grad
 *   optimizer scratch  OptState, also for the temporaries of foreach implementations
 *   all-gather casts   Activation in forward, Temp in backward
 *   collective buffers  the same, until their all-gather or reduce-scatter is issued; to their end where there is
 *                      none (one shard), and for gathers that are prefetched explicitly in backward
 *   DDP buckets        not seen until the first gradient goes in, then Temp; where gradients are views of them,
 *                      Gradient like these
 *   gathered params    Activation when they are first gathered in forward (not seen when that was before the step),
 *                      until the pre-forward that waits for them ends
 *   forward scratch    Activation: the tracker does not know what dies soon
 *   recomputation      Temp, unless an FSDP unit itself is called again (then Activation); MemTracker: Activation
 *   inputs             Activation: MemTracker has no word for them
 *   kernel scratch     not seen: what an operation allocates and frees again before it returns
 *   workspaces         not seen: libraries allocate them below the dispatcher
 *   what is kept       Activation or Temp in the step that made it; not seen when that was outside of the tracker
 *   other models       FSDPMemTracker follows the one that it was given. What another one makes while that runs is
 *                      whatever passes (Activation, in backward Temp), and what it had before is not seen, but for
 *                      a Linear's weight that stays gathered, of which each call takes a view (Activation)
 *   bytes              requests rounded up to 512, where the allocator may hand out a larger block
 */
#ifndef SHARDLEDGER_TRACKER_LABEL_H
#define SHARDLEDGER_TRACKER_LABEL_H

#include "storage/attribution/attribution.h"
#include "storage/attribution/item.h"
#include "tracker.h"

struct sl_tracked { /* one allocation, as the tracker has it */
  const struct sl_allocation *allocation;
  int label;      /* category that it shows at first; -1: it does not see this */
  int later;      /* and once it has recognised what this is; -1: the same */
  bool soon;      /* which is when backward's function that made it has ended, not later */
  bool bucket;    /* which is when the first gradient goes into it: one of DistributedDataParallel's buckets */
  bool scratch;   /* made and freed within one operation, as far as can be told */
  uint64_t bytes; /* as the tracker counts them */

  int counted;         /* the label under which its sums have it now; -1: they don't */
  size_t unrecognised; /* place among those whose label it will learn, from 1; 0: none of them */
  bool in_buckets;
  struct sl_tracked *next; /* of those that are free for use */
};

/*
 * Sets scratch of what was made and freed again without anything between that goes beyond it: neither a module
 * state nor the making or freeing of something that the rest of the program can see. items: those of one step, in
 * order, whose allocations are all tracked.
 */
void sl_tracker_find_scratch(const struct sl_item *items, size_t count);

/* Says what an allocation is called that has just been decided, whose phases are still there and scratch is known. */
void sl_tracker_label(struct sl_tracked *tracked, enum sl_tracker_kind kind, const struct sl_phases *phases);

/* The same after a later tag gave it another category; aside: the tracker followed another model then. */
void sl_tracker_relabel(struct sl_tracked *tracked, bool aside, const struct sl_phases *phases);

/*
 * Whether a tracker that starts in the next step will not meet this allocation, which outlives the step that the facts
 * are of: what passes, and a gradient that no parameter has any more.
 */
bool sl_tracker_loses_sight(const struct sl_tracked *tracked, const struct sl_step_facts *facts,
                            const struct sl_phases *phases);

#endif
