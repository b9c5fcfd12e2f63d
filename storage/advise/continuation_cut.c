/* Where a tape ends, and what is put behind it. */
#include "continuation_cut.h"

bool sl_cut_find(const struct sl_tape *tape, const struct sl_goal *goal, struct sl_cut *out) {
  for (size_t i = tape->event_count; i-- > 0;) {
    const struct sl_tape_event *event = &tape->events[i];
    if (event->kind != SL_TAPE_segment)
      continue;
    const struct sl_tape_segment *segment = &tape->segments[event->index];
    if (segment->action != SL_TAPE_refused || segment->bytes != goal->refused_bytes)
      continue;
    *out = (struct sl_cut){.event = event->number, .number = event->number, .ns = event->ns};
    for (size_t p = 0; p < tape->period_count && tape->periods[p].first_event <= event->number; p++)
      out->period = p;
    return true;
  }
  return false;
}

void sl_cut_apply(struct sl_tape *tape, const struct sl_cut *cut) {
  size_t kept = 0;
  for (size_t i = 0; i < tape->allocation_count; i++) {
    struct sl_tape_allocation *a = &tape->allocations[i];
    a->dropped |= a->alloc_event > cut->event;
    if (a->free_event > cut->event)
      a->free_event = a->complete_event = 0;
    if (a->complete_event > cut->event)
      a->complete_event = 0;
  }
  for (size_t i = 0; i < tape->event_count; i++)
    if (tape->events[i].number < cut->event)
      tape->events[kept++] = tape->events[i];
  tape->event_count = kept;
  tape->period_count = cut->period + 1;
  tape->periods[cut->period].end_event = UINT64_MAX;
}

int sl_cut_put(struct sl_tape *tape, struct sl_cut *cut, enum sl_tape_kind kind, uint32_t allocation) {
  struct sl_tape_allocation *a = &tape->allocations[allocation];
  const uint64_t number = cut->number++;
  if (kind == SL_TAPE_alloc)
    a->alloc_event = number;
  else if (kind == SL_TAPE_free)
    a->free_event = number;
  else
    a->complete_event = number;
  int r = sl_tape_put(tape, kind, allocation, number, 0);
  if (r == 0)
    tape->events[tape->event_count - 1].ns = cut->ns;
  return r;
}
