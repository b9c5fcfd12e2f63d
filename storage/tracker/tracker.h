/*
 * What PyTorch's FSDPMemTracker or MemTracker would show: a second pass over the items of a step that keeps the
 * tracker's sums, under the labels that the tracker gives (tracker_label.h). It only serves to compare; nothing in the
 * ledger depends on it.
 *
 * A step goes: attribute its allocations, run this pass, apply the user's rules, of which trackers know nothing, sweep.
 * The sweep then reports snapshots and windows in the order in which this pass has taken them.
 */
#ifndef SHARDLEDGER_TRACKER_H
#define SHARDLEDGER_TRACKER_H

#include "storage/attribution/attribution.h"
#include "storage/attribution/item.h"

enum sl_tracker_kind {
  SL_TRACKER_fsdp,   /* FSDPMemTracker */
  SL_TRACKER_module, /* MemTracker */
};

struct sl_tracker;

/* phases stay the caller's and must outlive the tracker. NULL: no memory. */
struct sl_tracker *sl_tracker_new(const struct sl_phases *phases);
struct sl_tracker *sl_tracker_free(struct sl_tracker *tracker); /* returns NULL; no allocation has its `tracked` then */

/* Runs over the items of one step in order. 0 or -ENOMEM. */
int sl_tracker_run(struct sl_tracker *tracker, enum sl_tracker_kind kind, const struct sl_item *items, size_t count);

/*
 * The tracker's bytes by category, SL_CATEGORY_limit entries, of the next snapshot, or of the highest point that it saw
 * in the next window that closes. Valid until the next call.
 */
const uint64_t *sl_tracker_next(struct sl_tracker *tracker);

/* The step that the facts are of has ended: the next one's tracker will not meet all of these allocations. */
void sl_tracker_step_ended(struct sl_tracker *tracker, struct sl_allocation *const *allocations, size_t count,
                           const struct sl_step_facts *facts);

/* The allocation goes. */
void sl_tracker_forget(struct sl_tracker *tracker, struct sl_allocation *allocation);

#endif
