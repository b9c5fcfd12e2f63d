#include "tracker_label.h"

#include "allocator_config.h"
#include "attribution.h"

void sl_tracker_label(struct sl_allocation *allocation, bool unit_recomputed) {
  bool in_backward = sl_phase_enclosing(allocation->phase, SL_KIND_backward) != NULL;
  int passing = in_backward && !unit_recomputed ? SL_CATEGORY_temp : SL_CATEGORY_activation;
  uint64_t unit = SL_ALLOCATOR_MIN_BLOCK;
  allocation->tracker_bytes = (allocation->requested_bytes + unit - 1) / unit * unit;
  allocation->tracker_later = -1;
  switch (allocation->category) {
  case SL_CATEGORY_other:
  case SL_CATEGORY_unattributed: allocation->tracker_label = -1; return;
  case SL_CATEGORY_activation: allocation->tracker_label = passing; return;
  case SL_CATEGORY_temp:
    allocation->tracker_label =
        sl_phase_enclosing(allocation->phase, SL_KIND_optimizer_step) ? SL_CATEGORY_optstate : passing;
    return;
  case SL_CATEGORY_all_gather:
    allocation->tracker_label = allocation->rule == SL_RULE_fsdp_all_gather_cast ? passing : SL_CATEGORY_all_gather;
    return;
  case SL_CATEGORY_reduce_scatter:
    allocation->tracker_label =
        allocation->rule == SL_RULE_fsdp_reduce_staging ? SL_CATEGORY_temp : SL_CATEGORY_reduce_scatter;
    return;
  case SL_CATEGORY_unsharded_grad:
  case SL_CATEGORY_sharded_grad:
    allocation->tracker_label = in_backward ? SL_CATEGORY_temp : allocation->category;
    allocation->tracker_later = in_backward ? allocation->category : -1;
    return;
  default: allocation->tracker_label = allocation->category; return;
  }
}
