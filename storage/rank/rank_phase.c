/* In which phase an event happened. */
#include "rank_builder.h"

bool sl_rank_phase_find(const struct sl_rank_builder *b, const struct sl_event *event, struct sl_phase **out) {
  *out = event->past ? NULL : sl_phases_current(b->phases, event->thread);
  return event->past == SL_PAST_not || (event->past == SL_PAST_placed && sl_phases_current_of_any(b->phases, out));
}

struct sl_phase *sl_rank_phase_of(const struct sl_rank_builder *b, const struct sl_event *event) {
  struct sl_phase *phase;
  sl_rank_phase_find(b, event, &phase);
  return phase;
}
