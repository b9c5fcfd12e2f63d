/* Names the gradients of a step by those of one in which they were recorded. */
#include "gradient_names.h"

#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>

struct waiting {   /* gradients of a step, in order */
  uint32_t *items; /* of sl_tape.allocations */
  size_t count;
};

static const struct sl_tape_optimizer_step *optimizer_of(const struct sl_tape *tape, int64_t step) {
  for (size_t i = 0; i < tape->optimizer_step_count; i++)
    if (tape->optimizer_steps[i].step == step)
      return &tape->optimizer_steps[i];
  return NULL;
}

static int waiting_find(const struct sl_tape *tape, const struct sl_tape_ends *ends,
                        const struct sl_tape_period *period, struct waiting *out) {
  const struct sl_tape_optimizer_step *at = optimizer_of(tape, period->step);
  size_t end = period->first;
  out->count = 0;
  while (at && end < period->end && tape->events[end].ns < at->start_ns)
    end++;
  for (size_t i = period->first; i < end; i++) {
    const struct sl_tape_event *event = &tape->events[i];
    if (event->kind != SL_TAPE_alloc)
      continue;
    const size_t freed = ends[event->index].free; /* SIZE_MAX: it is not */
    if (!sl_tape_is(&tape->categories, tape->allocations[event->index].category, "gradient") || freed < end)
      continue;
    if (sl_index_add(&out->items, &out->count, event->index) < 0)
      return -ENOMEM;
  }
  return 0;
}

static bool has_names(const struct sl_tape *tape, const struct waiting *w) {
  for (size_t i = 0; i < w->count; i++)
    if (tape->allocations[w->items[i]].parameter)
      return true;
  return false;
}

static bool is_alike(const struct sl_tape *tape, const struct waiting *one, const struct waiting *other) {
  if (one->count != other->count)
    return false;
  for (size_t i = 0; i < one->count; i++)
    if (tape->allocations[one->items[i]].requested != tape->allocations[other->items[i]].requested)
      return false;
  return true;
}

int sl_gradient_names(struct sl_tape *tape) {
  struct waiting named = {0}, here = {0};
  struct sl_tape_ends *ends = sl_tape_ends(tape);
  int r = ends ? 0 : -ENOMEM;
  for (size_t p = 0; p < tape->period_count && r == 0; p++) {
    const struct sl_tape_period *period = &tape->periods[p];
    if (strcmp(period->kind, "step") != 0 || period->first == period->end ||
        (r = waiting_find(tape, ends, period, &here)) < 0)
      continue;
    if (has_names(tape, &here)) {
      const struct waiting other = named;
      named = here;
      here = other;
    } else if (is_alike(tape, &here, &named)) {
      for (size_t i = 0; i < here.count; i++)
        tape->allocations[here.items[i]].parameter = tape->allocations[named.items[i]].parameter;
    }
  }
  free(ends);
  free(named.items);
  free(here.items);
  return r;
}
