/* Segments in their order: what is reserved after each, and which are given back in a row. */
#include "reserved.h"

#include <string.h>

static const struct sl_tape_segment *segment_at(const struct sl_tape *tape, size_t event) {
  return &tape->segments[tape->events[event].index];
}

static uint64_t reserved_first(const struct sl_tape *tape) {
  uint64_t now = 0;
  for (size_t i = 0; i < tape->segment_count; i++)
    now += tape->segments[i].action == SL_TAPE_existing ? tape->segments[i].bytes : 0;
  return now;
}

static uint64_t reserved_after(const struct sl_tape *tape, size_t event, uint64_t now) {
  const struct sl_tape_segment *segment = segment_at(tape, event);
  now += segment->action == SL_TAPE_taken ? segment->bytes : 0;
  return now - (segment->action == SL_TAPE_returned ? segment->bytes : 0);
}

/* The event after those that are given back in a row from this one on. */
static size_t row_end(const struct sl_tape *tape, size_t first) {
  const struct sl_tape_event *events = tape->events;
  size_t end = first;
  while (end < tape->event_count && events[end].kind == SL_TAPE_segment &&
         (end == first || events[end].number == events[end - 1].number + 1) &&
         segment_at(tape, end)->action == SL_TAPE_returned)
    end++;
  return end;
}

struct sl_reserved sl_reserved_below(const struct sl_tape *tape, uint64_t limit) {
  uint64_t now = reserved_first(tape);
  struct sl_reserved found = {.most = now};
  for (size_t i = 0; i < tape->event_count; i++) {
    if (tape->events[i].kind != SL_TAPE_segment)
      continue;
    const bool was_over = now > limit;
    const size_t end = row_end(tape, i);
    now = reserved_after(tape, i, now);
    for (; i + 1 < end; i++)
      now = reserved_after(tape, i + 1, now);
    if (was_over && now <= limit)
      found = (struct sl_reserved){.most = now, .from = tape->events[i].number + 1};
    if (now > found.most)
      found.most = now;
  }
  return found;
}

void sl_sweeps_under(const struct sl_tape *tape, const uint8_t *sweeps, uint64_t limit, uint64_t from, uint8_t *out) {
  uint64_t now = reserved_first(tape);
  memcpy(out, sweeps, tape->segment_count + 1);
  for (size_t i = 0; i < tape->event_count; i++) {
    if (tape->events[i].kind != SL_TAPE_segment)
      continue;
    const size_t end = row_end(tape, i);
    const bool then_takes = end > i && end < tape->event_count && tape->events[end].kind == SL_TAPE_segment &&
                            segment_at(tape, end)->action == SL_TAPE_taken &&
                            tape->events[end].number == tape->events[end - 1].number + 1;
    if (then_takes && tape->events[i].number >= from && now + segment_at(tape, end)->bytes > limit)
      out[tape->events[i].index] = SL_SWEEP_within_request;
    now = reserved_after(tape, i, now);
    for (; i + 1 < end; i++)
      now = reserved_after(tape, i + 1, now);
  }
}
