/* One rule a category, since each is told by something else in the tracker's code. */
#include "tracker_label.h"

#include "storage/allocator/allocator_config.h"
#include "storage/attribution/module_states.h"

#include <string.h>

enum { MAX_SCRATCH = 64 }; /* allocations of one operation that are open at once */

void sl_tracker_find_scratch(const struct sl_item *items, size_t count) {
  struct sl_allocation *open[MAX_SCRATCH]; /* what may still turn out to be scratch, as a stack */
  size_t depth = 0;
  for (size_t i = 0; i < count; i++) {
    const struct sl_item *item = &items[i];
    if (item->type == SL_ITEM_none || item->type == SL_ITEM_retag)
      continue;
    if (item->type == SL_ITEM_alloc) {
      depth = depth < MAX_SCRATCH ? depth : 0;
      open[depth++] = item->allocation;
    } else if (item->type == SL_ITEM_free && depth && open[depth - 1] == item->allocation) {
      item->allocation->tracked->scratch = true;
      depth--;
    } else {
      depth = 0;
    }
  }
}

/* What the tracker takes everything for that it knows nothing else of. */
static int passing_label(const struct sl_allocation *allocation, enum sl_tracker_kind kind,
                         const struct sl_phases *phases) {
  if (!sl_phase_enclosing(allocation->phase, SL_KIND_backward))
    return SL_CATEGORY_activation;
  bool again = kind == SL_TRACKER_fsdp ? sl_unit_called_again(phases, allocation->phase)
                                       : sl_phase_enclosing(allocation->phase, SL_KIND_recompute) != NULL;
  return again ? SL_CATEGORY_activation : SL_CATEGORY_temp;
}

/* The first gather of the step, by its unit's own call: until then the tracker does not know the parameter's storage.
 */
static bool is_first_gather(const struct sl_allocation *allocation) {
  for (const struct sl_phase *phase = allocation->phase; phase; phase = phase->parent)
    if (phase->kind == SL_KIND_forward && phase->module == allocation->module)
      return phase->call_index == 0;
  return true;
}

static void label(struct sl_tracked *tracked, int at_first, int later) {
  tracked->label = at_first;
  tracked->later = later == at_first ? -1 : later;
}

void sl_tracker_label(struct sl_tracked *tracked, enum sl_tracker_kind kind, const struct sl_phases *phases) {
  const struct sl_allocation *allocation = tracked->allocation;
  bool in_backward = sl_phase_enclosing(allocation->phase, SL_KIND_backward) != NULL;
  bool in_optimizer = sl_phase_enclosing(allocation->phase, SL_KIND_optimizer_step) != NULL;
  int passing = passing_label(allocation, kind, phases), category = allocation->category;
  uint64_t unit = SL_ALLOCATOR_MIN_BLOCK;
  tracked->bytes = (allocation->requested_bytes + unit - 1) / unit * unit;
  tracked->soon = tracked->bucket = false;
  if (tracked->scratch && !in_optimizer) {
    label(tracked, -1, -1); /* within the optimizer it is one of a list of temporaries, which die in reverse */
    return;
  }
  if (category == SL_CATEGORY_other || category == SL_CATEGORY_unattributed || category == SL_CATEGORY_workspace) {
    bool survivor = allocation->rule == SL_RULE_forward_survivor || allocation->rule == SL_RULE_step_survivor;
    label(tracked, survivor ? passing : -1, -1);
    return;
  }
  if (kind == SL_TRACKER_fsdp && sl_phases_is_aside(phases, allocation->module)) {
    label(tracked, allocation->step < 0 ? -1 : in_optimizer ? SL_CATEGORY_optstate : passing, -1);
    return;
  }
  switch (category) {
  case SL_CATEGORY_activation: label(tracked, passing, -1); return;
  case SL_CATEGORY_program: label(tracked, allocation->rule == SL_RULE_program_kept ? -1 : passing, -1); return;
  case SL_CATEGORY_temp: label(tracked, in_optimizer ? SL_CATEGORY_optstate : passing, -1); return;
  case SL_CATEGORY_input: label(tracked, kind == SL_TRACKER_module ? SL_CATEGORY_activation : category, -1); return;
  case SL_CATEGORY_unsharded_param:
    if (allocation->step < 0)
      label(tracked, -1, category);
    else
      label(tracked, in_backward || !is_first_gather(allocation) ? category : SL_CATEGORY_activation, category);
    return;
  case SL_CATEGORY_all_gather:
    label(tracked, passing, allocation->rule == SL_RULE_fsdp_all_gather_cast ? -1 : category);
    return;
  case SL_CATEGORY_reduce_scatter:
    label(tracked, SL_CATEGORY_temp, allocation->rule == SL_RULE_fsdp_reduce_staging ? -1 : category);
    return;
  case SL_CATEGORY_unsharded_grad:
  case SL_CATEGORY_sharded_grad: label(tracked, in_backward ? SL_CATEGORY_temp : category, category); return;
  case SL_CATEGORY_gradient:
    if (allocation->rule == SL_RULE_ddp_bucket) {
      label(tracked, -1, SL_CATEGORY_temp);
      tracked->bucket = true;
      return;
    }
    label(tracked, in_backward && kind == SL_TRACKER_module ? SL_CATEGORY_temp : category, category);
    tracked->soon = true;
    return;
  default: label(tracked, category, -1); return;
  }
}

/* A weight that stays gathered after its step, and of which every call of its module takes a view. */
static bool is_viewed_in_each_step(const struct sl_allocation *allocation, const struct sl_phases *phases) {
  if (allocation->tag_category != SL_CATEGORY_unsharded_param)
    return false;
  const struct sl_module_info *holder = sl_phases_module_holding(phases, allocation->module, allocation->tag_name);
  return holder && strcmp(holder->class_name, "Linear") == 0;
}

void sl_tracker_relabel(struct sl_tracked *tracked, bool aside, const struct sl_phases *phases) {
  const struct sl_allocation *allocation = tracked->allocation;
  int of_another = is_viewed_in_each_step(allocation, phases) ? SL_CATEGORY_activation : -1;
  label(tracked, aside ? of_another : allocation->category, -1);
  tracked->bucket = false;
}

bool sl_tracker_loses_sight(const struct sl_tracked *tracked, const struct sl_step_facts *facts,
                            const struct sl_phases *phases) {
  const struct sl_allocation *allocation = tracked->allocation;
  if (is_viewed_in_each_step(allocation, phases))
    return false;
  switch (tracked->counted) { /* as the tracker had it at last */
  case SL_CATEGORY_activation:
  case SL_CATEGORY_temp:
  case SL_CATEGORY_input: return true;
  case SL_CATEGORY_gradient:
  case SL_CATEGORY_sharded_grad: /* this step's gradients were tagged, and this was not among them */
    return facts->gradients_tagged && allocation->tag_category >= 0 && allocation->tag_step < facts->step;
  default: return false;
  }
}
