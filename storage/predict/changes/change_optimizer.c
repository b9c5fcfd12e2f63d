/* Replaces the optimizer: its states and temporaries. */
#include "change_optimizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  enum sl_optimizer to;
  struct sl_optimizer_record record;
};

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

/* Beside a state of the same parameter: made before it (or after), and freed as it is. */
static int state_add(struct change *c, uint32_t beside, uint64_t bytes, bool before) {
  const struct sl_tape_allocation like = *allocation(c, beside);
  uint32_t made = 0;
  int r = sl_tape_add(c->tape, &like, bytes, &made);
  r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_alloc, made, like.alloc_event, before ? -1 : 1);
  if (r < 0 || !like.free_event)
    return r;
  const uint64_t number = before ? like.free_event : like.complete_event;
  r = sl_tape_put(c->tape, SL_TAPE_free, made, number, before ? -2 : 1);
  return r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_complete, made, number, before ? -1 : 2);
}

static void states_drop(struct change *c, const struct sl_optimizer_parameter *p) {
  const uint32_t states[] = {p->step, p->first, p->second};
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
    if (states[i] != UINT32_MAX)
      allocation(c, states[i])->dropped = true;
}

static int states_change(struct change *c) {
  for (size_t i = 0; i < c->record.parameter_count; i++) {
    const struct sl_optimizer_parameter p = c->record.parameters[i];
    const uint64_t bytes = allocation(c, p.first)->requested;
    int r = 0;
    if (c->to == SL_OPTIMIZER_host) {
      states_drop(c, &p);
      continue;
    }
    if (p.step != UINT32_MAX && c->to != SL_OPTIMIZER_fused)
      allocation(c, p.step)->dropped = true;
    if (p.step == UINT32_MAX && c->to == SL_OPTIMIZER_fused)
      r = state_add(c, p.first, 4, true);
    if (p.second != UINT32_MAX && c->to == SL_OPTIMIZER_sgd)
      allocation(c, p.second)->dropped = true;
    if (p.second == UINT32_MAX && c->to != SL_OPTIMIZER_sgd && r == 0)
      r = state_add(c, p.first, bytes, false);
    if (r < 0)
      return r;
  }
  return 0;
}

/* Where a window's temporaries come: before its first one, after its last state, or where it begins. */
static int place_find(const struct change *c, const struct sl_optimizer_window *w, uint64_t *number, int32_t *offset) {
  enum { AFTER_STATES = 16, BEFORE = -SL_TAPE_MIDDLE / 2 };
  *offset = BEFORE;
  if (w->count > w->states) {
    *number = sl_optimizer_temporary(c->tape, w, 0)->alloc_event;
    return 0;
  }
  if (w->states) {
    *number = allocation(c, w->made[w->states - 1])->alloc_event;
    *offset = AFTER_STATES;
    return 0;
  }
  const struct sl_tape *tape = c->tape;
  for (size_t i = 0; i < tape->period_count; i++) {
    const struct sl_tape_period *period = &tape->periods[i];
    if (strcmp(period->kind, "step") != 0 || period->step != w->at->step || period->first == period->end)
      continue;
    size_t event = period->first;
    while (event < period->end && tape->events[event].ns < w->at->start_ns)
      event++;
    if (event == period->end)
      *offset = AFTER_STATES;
    *number = tape->events[event - (event == period->end)].number;
    return 0;
  }
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " nothing else than the optimizer's step was recorded",
                      w->at->step);
}

struct putting { /* temporaries, one event after the other */
  struct change *change;
  struct sl_tape_allocation like;
  uint64_t number;
  int32_t offset;
  int r;
};

static uint32_t make(struct putting *p, uint64_t bytes) {
  uint32_t made = 0;
  if (p->r == 0)
    p->r = sl_tape_add(p->change->tape, &p->like, bytes, &made);
  if (p->r == 0)
    p->r = sl_tape_put(p->change->tape, SL_TAPE_alloc, made, p->number, ++p->offset);
  return made;
}

static void end(struct putting *p, uint32_t made) {
  if (p->r == 0)
    p->r = sl_tape_put(p->change->tape, SL_TAPE_free, made, p->number, ++p->offset);
  if (p->r == 0)
    p->r = sl_tape_put(p->change->tape, SL_TAPE_complete, made, p->number, ++p->offset);
}

static int temporaries_add(struct change *c, const struct sl_optimizer_window *w) {
  struct putting p = {.change = c, .like = *allocation(c, c->record.parameters[w->first].first)};
  p.r = place_find(c, w, &p.number, &p.offset);
  if (p.r == 0)
    p.r = sl_tape_category(c->tape, "temp", &p.like.category);
  p.like.state = 0;
  p.like.free_event = p.like.alloc_event; /* has an end, by events that are put */
  uint32_t *made = reallocarray(NULL, w->parameters, sizeof *made);
  if (!made)
    return -ENOMEM;
  for (size_t i = 0; i < w->parameters && p.r == 0; i++) {
    const uint32_t first = make(&p, sl_optimizer_bytes(c->tape, &c->record, w, i));
    if (c->to == SL_OPTIMIZER_foreach) {
      made[i] = first;
      continue;
    }
    made[i] = make(&p, sl_optimizer_bytes(c->tape, &c->record, w, i));
    end(&p, first);
    if (i)
      end(&p, made[i - 1]);
  }
  if (c->to == SL_OPTIMIZER_forloop)
    end(&p, made[w->parameters - 1]);
  for (size_t i = w->parameters; c->to == SL_OPTIMIZER_foreach && i-- > 0;)
    end(&p, made[i]);
  free(made);
  return p.r;
}

static int apply(struct change *c) {
  int r = states_change(c);
  for (size_t i = 0; i < c->record.window_count && r == 0; i++) {
    struct sl_optimizer_window *w = &c->record.windows[i];
    for (size_t n = w->states; n < w->count; n++)
      allocation(c, w->made[n])->dropped = true;
    if (c->to == SL_OPTIMIZER_foreach || c->to == SL_OPTIMIZER_forloop)
      r = temporaries_add(c, w);
  }
  return r;
}

int sl_change_optimizer(struct sl_tape *tape, enum sl_optimizer optimizer, int64_t first, int64_t last,
                        struct sl_error *error) {
  struct change c = {.tape = tape, .error = error, .to = optimizer};
  int r = sl_optimizer_record_read(tape, first, last, &c.record, error);
  if (r == 0)
    r = apply(&c);
  if (r == 0)
    sl_tape_sort(tape);
  sl_optimizer_record_free(&c.record);
  return r;
}
