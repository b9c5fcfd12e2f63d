/* Keeps the optimizer's states on the host between its steps. */
#include "change_offload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Places among what changes put at one event: before all else, and after it. */
enum { FIRST = -3 * (SL_TAPE_MIDDLE / 4), BEGIN_LAST = 1 << 27, END_LAST = 1 << 28 };

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  struct sl_tape_ends *ends;
  uint32_t *states,
      *copies; /* in the order in which they were made; where they are now, UINT32_MAX: not on the device */
  size_t state_count;
  uint32_t nothing;
};

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

/* Counts of steps are single numbers, which stay. */
static bool is_state(const struct change *c, uint32_t index) {
  const struct sl_tape_allocation *a = allocation(c, index);
  return !a->dropped && a->state && strcmp(c->tape->states.items[a->state - 1], "step") != 0;
}

static const struct sl_tape_period *period_of(const struct change *c, const struct sl_tape_optimizer_step *at) {
  for (size_t i = 0; i < c->tape->period_count; i++) {
    const struct sl_tape_period *period = &c->tape->periods[i];
    if (strcmp(period->kind, "step") == 0 && period->step == at->step && period->first < period->end)
      return period;
  }
  return NULL;
}

/* Where a step of the optimizer begins and ends, as events and what follows or comes before them. */
struct place {
  uint64_t number;
  int32_t offset;
};

static int places_find(const struct change *c, const struct sl_tape_optimizer_step *at, struct place *begin,
                       struct place *end) {
  const struct sl_tape_period *period = period_of(c, at);
  *begin = *end = (struct place){0};
  if (!period)
    return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " nothing else than the optimizer's step was recorded",
                        at->step);
  for (size_t i = period->first; i < period->end; i++) {
    const struct sl_tape_event *event = &c->tape->events[i];
    if (event->ns >= at->start_ns && !begin->number)
      *begin = (struct place){event->number, FIRST};
    if (event->ns <= at->end_ns)
      *end = (struct place){event->number, END_LAST};
  }
  if (!end->number)
    *end = *begin;
  if (!begin->number || begin->number > end->number) /* it makes nothing */
    *begin = (struct place){end->number, BEGIN_LAST};
  return 0;
}

static int begin_put(struct change *c, struct place at) {
  int r = 0;
  for (size_t i = 0; i < c->state_count && r == 0; i++) {
    struct sl_tape_allocation like = *allocation(c, c->states[i]);
    like.free_event = 1; /* has an end, by events that are put */
    r = sl_tape_add(c->tape, &like, like.requested, &c->copies[i]);
    r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_alloc, c->copies[i], at.number, ++at.offset);
  }
  return r;
}

static int end_put(struct change *c, struct place at) {
  int r = 0;
  for (size_t i = 0; i < c->state_count && r == 0; i++) {
    r = sl_tape_put(c->tape, SL_TAPE_free, c->copies[i], at.number, ++at.offset);
    r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_complete, c->copies[i], at.number, ++at.offset);
  }
  return r;
}

static int compare_allocs(const void *left, const void *right, void *context) {
  const struct change *c = context;
  const size_t a = c->ends[*(const uint32_t *)left].alloc, b = c->ends[*(const uint32_t *)right].alloc;
  return (a > b) - (a < b);
}

/* Those that a step makes are there from then on. */
static void states_add(struct change *c, const struct sl_tape_optimizer_step *at, size_t recorded) {
  const size_t first = c->state_count;
  for (uint32_t i = 0; i < recorded; i++) {
    if (!is_state(c, i) || allocation(c, i)->optimizer_step != at->phase)
      continue;
    c->states[c->state_count++] = i;
    if (c->ends[i].free != SIZE_MAX)
      c->tape->events[c->ends[i].free].index = c->nothing;
    if (c->ends[i].complete != SIZE_MAX)
      c->tape->events[c->ends[i].complete].index = c->nothing;
    allocation(c, i)->free_event = 1;
    allocation(c, i)->complete_event = 2;
  }
  qsort_r(c->states + first, c->state_count - first, sizeof *c->states, compare_allocs, c);
  memcpy(c->copies + first, c->states + first, (c->state_count - first) * sizeof *c->states);
}

static int check(const struct change *c) {
  const struct sl_tape *tape = c->tape;
  size_t states = 0;
  for (uint32_t i = 0; i < tape->allocation_count; i++) {
    if (!is_state(c, i))
      continue;
    states++;
    if (!allocation(c, i)->optimizer_step)
      return sl_error_set(c->error, -ENOTSUP, "states of the optimizer were made outside of its steps");
  }
  if (!states)
    return sl_error_set(c->error, -ENOTSUP, "no state of an optimizer is on the device");
  for (size_t i = 1; i < tape->optimizer_step_count; i++)
    if (tape->optimizer_steps[i].step == tape->optimizer_steps[i - 1].step)
      return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " the optimizer does not step once",
                          tape->optimizer_steps[i].step);
  return 0;
}

int sl_change_offload_optimizer(struct sl_tape *tape, struct sl_error *error) {
  struct change c = {.tape = tape, .error = error};
  const size_t recorded = tape->allocation_count;
  int r = check(&c);
  if (r < 0)
    return r;
  c.ends = sl_tape_ends(tape);
  c.states = calloc(recorded + 1, sizeof *c.states);
  c.copies = calloc(recorded + 1, sizeof *c.copies);
  r = c.ends && c.states && c.copies ? sl_tape_add(tape, &tape->allocations[0], 0, &c.nothing) : -ENOMEM;
  if (r == 0)
    tape->allocations[c.nothing].dropped = true;
  for (size_t i = 0; i < tape->optimizer_step_count && r == 0; i++) {
    struct place begin, end;
    r = places_find(&c, &tape->optimizer_steps[i], &begin, &end);
    r = r < 0 ? r : begin_put(&c, begin);
    if (r == 0)
      states_add(&c, &tape->optimizer_steps[i], recorded);
    r = r < 0 ? r : end_put(&c, end);
  }
  if (r == 0)
    sl_tape_sort(tape);
  free(c.ends);
  free(c.states);
  free(c.copies);
  return r;
}
