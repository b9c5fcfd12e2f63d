/* Where something belongs now, and how a phase begins and ends. */
#include "open_phases.h"

#include <errno.h>
#include <stdlib.h>

int64_t sl_phases_step(const struct sl_phases *phases) {
  return phases->step ? phases->step->step : -1;
}

/* What runs between a unit's reshard and its reduce is the unit's own ranges: anything else comes after its backward.
 */
static struct sl_phase *current_within(struct sl_phases *phases, struct sl_phase *top) {
  if (top && top != phases->whole_backward)
    return top;
  struct sl_phase *backward = sl_module_backwards_innermost(&phases->module_backwards);
  if (backward && (phases->whole_backward || !top))
    return backward;
  return top ? top : phases->whole_backward ? phases->whole_backward : phases->step;
}

struct sl_phase *sl_phases_current(struct sl_phases *phases, uint32_t thread) {
  return current_within(phases, sl_open_ranges_top(&phases->ranges, thread));
}

bool sl_phases_current_of_any(struct sl_phases *phases, struct sl_phase **out) {
  struct sl_phase *top;
  *out = NULL;
  if (!sl_open_ranges_only_top(&phases->ranges, phases->whole_backward, &top))
    return false;
  *out = current_within(phases, top);
  return true;
}

struct sl_phase *sl_phase_open(struct sl_phases *phases, const struct sl_event *event, uint64_t at, enum sl_kind kind,
                               const char *name, uint32_t module, struct sl_phase *parent) {
  const struct sl_phase facts = {
      .kind = kind,
      .name = name,
      .module = module,
      .tid = event->tid,
      .thread = event->thread,
      .step = sl_phases_step(phases),
      .start_ns = event->time_ns,
      .start_at = at,
      .user_rule = phases->names ? sl_user_rule_cache_find(phases->names, name).category : NULL,
  };
  struct sl_phase *phase = sl_phase_list_add(&phases->list, &facts, parent);
  if (!phase)
    return NULL;
  uint64_t key = (uint64_t)kind << 32 | module;
  struct call_count *call;
  SL_HASH_FIND_OR_ADD(phases->calls, key, key, call);
  if (!call)
    return NULL;
  if (call->era != phases->calls_era) {
    call->era = phases->calls_era;
    call->count = 0;
  }
  phase->call_index = call->count++;
  return phase;
}

void sl_phase_end(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at) {
  phase->end_ns = time_ns;
  phase->end_at = at;
  sl_open_ranges_forget(&phases->ranges, phase);
  sl_module_backwards_forget(&phases->module_backwards, phase);
  if (phases->whole_backward == phase)
    phases->whole_backward = NULL;
  if (phases->step == phase)
    phases->step = NULL;
  sl_phase_list_close(&phases->list, phase);
}

void sl_phase_close(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at) {
  sl_phase_end(phases, phase, time_ns, at);
  if (phases->r == 0)
    phases->r = phases->listener.closed(phases->listener.context, phase);
}

void sl_phase_tell(struct sl_phases *phases, struct sl_phase *phase) {
  if (phases->r == 0)
    phases->r = phases->listener.opened(phases->listener.context, phase);
}

int sl_phases_backward_begins(struct sl_phases *phases, struct sl_phase *phase) {
  sl_module_table_saw_backward(phases->modules, phase->module);
  return sl_module_backwards_add(&phases->module_backwards, phase);
}
