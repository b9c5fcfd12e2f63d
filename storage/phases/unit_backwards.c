/*
 * A unit that has given up its parameters may or may not reduce its gradients next. So its backward waits, ended but
 * not closed, for the range that follows.
 */
#include "unit_backwards.h"

#include <errno.h>

int sl_unit_backward_before(struct sl_phases *phases, const struct sl_event *event, uint64_t at,
                            enum sl_phase_point point, uint32_t module) {
  if (point == SL_POINT_pre_backward && !sl_module_backwards_of(&phases->module_backwards, module)) {
    const struct sl_module_info *info = sl_module_table_find(phases->modules, module);
    struct sl_phase *parent = phases->whole_backward ? phases->whole_backward : phases->step;
    struct sl_phase *phase =
        sl_phase_open(phases, event, at, SL_KIND_backward,
                      info ? (*info->fqn ? info->fqn : info->class_name) : "backward", module, parent);
    if (!phase || sl_phases_backward_begins(phases, phase) < 0)
      return -ENOMEM;
    phase->derived = true;
    sl_phase_tell(phases, phase);
  }
  struct sl_phase *reduced =
      point == SL_POINT_reduce_scatter ? sl_module_backwards_of(&phases->module_backwards, module) : NULL;
  if (reduced && reduced->resharded)
    sl_module_backwards_reduce(&phases->module_backwards, reduced);
  return 0;
}

void sl_unit_backward_after(struct sl_phases *phases, enum sl_phase_point point, uint32_t module, uint64_t time_ns,
                            uint64_t at) {
  if (point != SL_POINT_reduce_scatter && point != SL_POINT_post_backward_reshard)
    return;
  struct sl_module_backwards *backwards = &phases->module_backwards;
  struct sl_phase *phase = sl_module_backwards_of(backwards, module);
  if (!phase)
    return;
  if (point == SL_POINT_reduce_scatter) {
    sl_phase_close(phases, phase, time_ns, at);
    return;
  }
  /* Closed by the next range of another unit, unless its reduce comes first. */
  struct sl_phase *first = backwards->resharded_count == SL_RESHARDED_MAX ? backwards->resharded[0] : NULL;
  if (first && !phase->resharded)
    sl_phase_close(phases, first, first->end_ns, first->end_at);
  sl_module_backwards_reshard(backwards, phase, time_ns, at);
}

void sl_unit_backwards_settle(struct sl_phases *phases, uint32_t reducing_module) {
  const struct sl_module_backwards *backwards = &phases->module_backwards;
  struct sl_phase *latest;
  do {
    latest = NULL;
    for (size_t i = 0; i < backwards->resharded_count; i++) {
      struct sl_phase *phase = backwards->resharded[i];
      if (phase->module != reducing_module && (!latest || phase->id > latest->id))
        latest = phase;
    }
    if (latest)
      sl_phase_close(phases, latest, latest->end_ns, latest->end_at);
  } while (latest);
}

void sl_unit_backwards_end(struct sl_phases *phases, uint64_t time_ns, uint64_t at) {
  for (struct sl_phase *phase; (phase = sl_module_backwards_newest(&phases->module_backwards));)
    sl_phase_close(phases, phase, phase->resharded ? phase->end_ns : time_ns, phase->resharded ? phase->end_at : at);
}
