/* Replaces the optimizer: its states and temporaries. */
#include "change_optimizer.h"

#include "change_steps.h"
#include "storage/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct parameter { /* by its states, of sl_tape.allocations; UINT32_MAX: has none such */
  uint32_t step, first, second;
};

struct window { /* one step of an optimizer: what was made in it, in order */
  const struct sl_tape_optimizer_step *at;
  uint32_t *made; /* of sl_tape.allocations */
  size_t count, states;
  size_t first, parameters; /* its optimizer's, of all */
};

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  enum sl_optimizer from, to;
  struct window *windows;
  size_t window_count;
  struct parameter *parameters;  /* in the order of their first step */
  size_t parameter_count, first; /* of the optimizer that is looked at: from there on */
};

static int refuse(const struct change *c, const struct window *w, const char *what) {
  return sl_error_set(c->error, -ENOTSUP,
                      "in step %" PRId64
                      " the optimizer is none of AdamW (foreach, fused, forloop) and SGD with momentum as "
                      "known: %s",
                      w->at->step, what);
}

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static bool is_state(const struct change *c, uint32_t index, const char *name) {
  const uint32_t state = allocation(c, index)->state;
  return state && strcmp(c->tape->states.items[state - 1], name) == 0;
}

/* ---- what was recorded ---- */

static int windows_find(struct change *c, int64_t first, int64_t last) {
  for (size_t i = 0; i < c->tape->optimizer_step_count; i++) {
    const struct sl_tape_optimizer_step *at = &c->tape->optimizer_steps[i];
    if (at->step < first || at->step > last)
      continue;
    struct window *grown = sl_list_grow(c->windows, c->window_count, sizeof *grown);
    if (!grown)
      return -ENOMEM;
    c->windows = grown;
    grown[c->window_count++] = (struct window){.at = at};
  }
  size_t w = 0;
  for (uint32_t i = 0; i < c->tape->allocation_count; i++) { /* by time, as windows are */
    const int64_t phase = c->tape->allocations[i].optimizer_step;
    if (!phase)
      continue;
    size_t found = w;
    while (found < c->window_count && c->windows[found].at->phase != phase)
      found++;
    if (found == c->window_count)
      continue; /* of another step */
    w = found;
    uint32_t *grown = sl_list_grow(c->windows[w].made, c->windows[w].count, sizeof *grown);
    if (!grown)
      return -ENOMEM;
    c->windows[w].made = grown;
    grown[c->windows[w].count++] = i;
  }
  return 0;
}

/* All states that were there are gone when new ones are made: they are another optimizer's. */
static bool is_another(const struct change *c, const struct window *w) {
  if (!w->count || !allocation(c, w->made[0])->state)
    return false;
  for (size_t i = c->first; i < c->parameter_count; i++) {
    const uint64_t end = allocation(c, c->parameters[i].first)->free_event;
    if (!end || end > allocation(c, w->made[0])->alloc_event)
      return false;
  }
  return true;
}

/* The states that a window begins with, parameter by parameter. */
static int states_read(struct change *c, struct window *w) {
  if (is_another(c, w)) {
    c->first = c->parameter_count;
    c->from = SL_OPTIMIZER_as_recorded;
  }
  while (w->states < w->count && allocation(c, w->made[w->states])->state) {
    struct parameter p = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const uint32_t *at = &w->made[w->states], *end = &w->made[w->count];
    enum sl_optimizer from = SL_OPTIMIZER_foreach; /* or forloop, which its temporaries tell */
    if (is_state(c, *at, "momentum_buffer")) {
      from = SL_OPTIMIZER_sgd;
      p.first = *at++;
    } else {
      if (is_state(c, *at, "step")) {
        from = SL_OPTIMIZER_fused;
        p.step = *at++;
      }
      if (at == end || !is_state(c, *at, "exp_avg"))
        return refuse(c, w, "it has other states");
      p.first = *at++;
      if (at == end || !is_state(c, *at, "exp_avg_sq") ||
          allocation(c, *at)->requested != allocation(c, p.first)->requested)
        return refuse(c, w, "it has other states");
      p.second = *at++;
    }
    if (c->from == SL_OPTIMIZER_forloop && from == SL_OPTIMIZER_foreach)
      from = SL_OPTIMIZER_forloop;
    if (c->from != SL_OPTIMIZER_as_recorded && c->from != from)
      return refuse(c, w, "its states change");
    c->from = from;
    w->states = (size_t)(at - w->made);
    struct parameter *grown = sl_list_grow(c->parameters, c->parameter_count, sizeof *grown);
    if (!grown)
      return -ENOMEM;
    c->parameters = grown;
    grown[c->parameter_count++] = p;
  }
  w->first = c->first;
  w->parameters = c->parameter_count - c->first;
  return 0;
}

/* The n-th parameter of a window's optimizer. */
static uint64_t bytes_of(const struct change *c, const struct window *w, size_t n) {
  return allocation(c, c->parameters[w->first + n].first)->requested;
}

static const struct sl_tape_allocation *temporary(const struct change *c, const struct window *w, size_t n) {
  return allocation(c, w->made[w->states + n]);
}

/* One a parameter, all alive together, then freed, the last first. */
static bool is_foreach(const struct change *c, const struct window *w) {
  const size_t count = w->parameters;
  if (w->count - w->states != count)
    return false;
  for (size_t i = 0; i < count; i++) {
    const struct sl_tape_allocation *a = temporary(c, w, i);
    if (a->requested != bytes_of(c, w, i) || a->free_event <= temporary(c, w, count - 1)->alloc_event ||
        a->complete_event != a->free_event + 1 || (i && a->free_event >= temporary(c, w, i - 1)->free_event))
      return false;
  }
  return true;
}

/* Two a parameter: the first is freed before the second of the parameter before. */
static bool is_forloop(const struct change *c, const struct window *w) {
  const size_t count = w->parameters;
  if (w->count - w->states != 2 * count)
    return false;
  for (size_t i = 0; i < count; i++) {
    const struct sl_tape_allocation *a = temporary(c, w, 2 * i), *b = temporary(c, w, 2 * i + 1);
    const struct sl_tape_allocation *before = i ? temporary(c, w, 2 * i - 1) : NULL;
    if (a->requested != bytes_of(c, w, i) || b->requested != bytes_of(c, w, i) || a->free_event <= b->alloc_event ||
        a->complete_event != a->free_event + 1 || b->free_event <= a->free_event ||
        (before && before->free_event <= a->free_event))
      return false;
  }
  return true;
}

static int window_read(struct change *c, struct window *w) {
  const enum sl_optimizer before = c->from;
  int r = states_read(c, w);
  if (r < 0)
    return r;
  if (!w->parameters)
    return refuse(c, w, "it has no states of its own here, or none that are tagged");
  for (size_t n = w->states; n < w->count; n++)
    if (allocation(c, w->made[n])->state)
      return refuse(c, w, "parameters are in several groups");
  if (c->from == SL_OPTIMIZER_foreach || c->from == SL_OPTIMIZER_forloop) {
    c->from = is_foreach(c, w)   ? SL_OPTIMIZER_foreach
              : is_forloop(c, w) ? SL_OPTIMIZER_forloop
                                 : SL_OPTIMIZER_as_recorded;
    if (c->from == SL_OPTIMIZER_as_recorded)
      return refuse(c, w, "its temporaries are others");
  } else if (w->count > w->states) {
    return refuse(c, w, "its temporaries are others");
  }
  return w->states || before == c->from ? 0 : refuse(c, w, "it changes from step to step");
}

/* ---- what takes its place ---- */

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

static void states_drop(struct change *c, const struct parameter *p) {
  const uint32_t states[] = {p->step, p->first, p->second};
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
    if (states[i] != UINT32_MAX)
      allocation(c, states[i])->dropped = true;
}

static int states_change(struct change *c) {
  for (size_t i = 0; i < c->parameter_count; i++) {
    const struct parameter p = c->parameters[i];
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
static int place_find(const struct change *c, const struct window *w, uint64_t *number, int32_t *offset) {
  enum { AFTER_STATES = 16, BEFORE = -SL_TAPE_MIDDLE / 2 };
  *offset = BEFORE;
  if (w->count > w->states) {
    *number = temporary(c, w, 0)->alloc_event;
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
  return refuse(c, w, "nothing else is made in its step");
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

static int temporaries_add(struct change *c, const struct window *w) {
  struct putting p = {.change = c, .like = *allocation(c, c->parameters[w->first].first)};
  p.r = place_find(c, w, &p.number, &p.offset);
  if (p.r == 0)
    p.r = sl_tape_category(c->tape, "temp", &p.like.category);
  p.like.state = 0;
  p.like.free_event = p.like.alloc_event; /* has an end, by events that are put */
  uint32_t *made = reallocarray(NULL, w->parameters, sizeof *made);
  if (!made)
    return -ENOMEM;
  for (size_t i = 0; i < w->parameters && p.r == 0; i++) {
    const uint32_t first = make(&p, bytes_of(c, w, i));
    if (c->to == SL_OPTIMIZER_foreach) {
      made[i] = first;
      continue;
    }
    made[i] = make(&p, bytes_of(c, w, i));
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
  for (size_t i = 0; i < c->window_count && r == 0; i++) {
    struct window *w = &c->windows[i];
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
  int r = sl_change_steps_check(tape, first, last, error);
  if (r == 0)
    r = windows_find(&c, first, last);
  if (r == 0 && !c.window_count)
    r = sl_error_set(error, -ENOTSUP, "no step of an optimizer was recorded in these steps");
  for (size_t i = 0; i < c.window_count && r == 0; i++)
    r = window_read(&c, &c.windows[i]);
  if (r == 0)
    r = apply(&c);
  if (r == 0)
    sl_tape_sort(tape);
  for (size_t i = 0; i < c.window_count; i++)
    free(c.windows[i].made);
  free(c.windows);
  free(c.parameters);
  return r;
}
