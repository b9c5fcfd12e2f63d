/* Recognises the recorded optimizer by what its steps ask for, parameter by parameter. */
#include "optimizer_record.h"

#include "change_steps.h"
#include "storage/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reading {
  const struct sl_tape *tape;
  struct sl_error *error;
  struct sl_optimizer_record *out;
  enum sl_optimizer from; /* of the optimizer that is looked at */
  size_t first;           /* its parameters, of all: from there on */
};

static int refuse(const struct reading *c, const struct sl_optimizer_window *w, const char *what) {
  return sl_error_set(c->error, -ENOTSUP,
                      "in step %" PRId64
                      " the optimizer is none of AdamW (foreach, fused, forloop) and SGD with momentum as "
                      "known: %s",
                      w->at->step, what);
}

static const struct sl_tape_allocation *allocation(const struct reading *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static bool is_state(const struct reading *c, uint32_t index, const char *name) {
  const uint32_t state = allocation(c, index)->state;
  return state && strcmp(c->tape->states.items[state - 1], name) == 0;
}

static int windows_find(struct reading *c, int64_t first, int64_t last) {
  for (size_t i = 0; i < c->tape->optimizer_step_count; i++) {
    const struct sl_tape_optimizer_step *at = &c->tape->optimizer_steps[i];
    if (at->step < first || at->step > last)
      continue;
    struct sl_optimizer_window *added = SL_LIST_ADD(c->out->windows, c->out->window_count);
    if (!added)
      return -ENOMEM;
    *added = (struct sl_optimizer_window){.at = at};
  }
  size_t w = 0;
  for (uint32_t i = 0; i < c->tape->allocation_count; i++) { /* by time, as windows are */
    const int64_t phase = c->tape->allocations[i].optimizer_step;
    if (!phase)
      continue;
    size_t found = w;
    while (found < c->out->window_count && c->out->windows[found].at->phase != phase)
      found++;
    if (found == c->out->window_count)
      continue; /* of another step */
    w = found;
    if (sl_index_add(&c->out->windows[w].made, &c->out->windows[w].count, i) < 0)
      return -ENOMEM;
  }
  return 0;
}

/* All states that were there are gone when new ones are made: they are another optimizer's. */
static bool is_another(const struct reading *c, const struct sl_optimizer_window *w) {
  if (!w->count || !allocation(c, w->made[0])->state)
    return false;
  for (size_t i = c->first; i < c->out->parameter_count; i++) {
    const uint64_t end = allocation(c, c->out->parameters[i].first)->free_event;
    if (!end || end > allocation(c, w->made[0])->alloc_event)
      return false;
  }
  return true;
}

/* The states that a window begins with, parameter by parameter. */
static int states_read(struct reading *c, struct sl_optimizer_window *w) {
  if (is_another(c, w)) {
    c->first = c->out->parameter_count;
    c->from = SL_OPTIMIZER_as_recorded;
  }
  while (w->states < w->count && allocation(c, w->made[w->states])->state) {
    struct sl_optimizer_parameter p = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
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
    struct sl_optimizer_parameter *added = SL_LIST_ADD(c->out->parameters, c->out->parameter_count);
    if (!added)
      return -ENOMEM;
    *added = p;
  }
  w->first = c->first;
  w->parameters = c->out->parameter_count - c->first;
  return 0;
}

/* One a parameter, all alive together, then freed, the last first. */
static bool is_foreach(const struct reading *c, const struct sl_optimizer_window *w) {
  const size_t count = w->parameters;
  if (w->count - w->states != count)
    return false;
  for (size_t i = 0; i < count; i++) {
    const struct sl_tape_allocation *a = sl_optimizer_temporary(c->tape, w, i);
    if (a->requested != sl_optimizer_bytes(c->tape, c->out, w, i) ||
        a->free_event <= sl_optimizer_temporary(c->tape, w, count - 1)->alloc_event ||
        a->complete_event != a->free_event + 1 ||
        (i && a->free_event >= sl_optimizer_temporary(c->tape, w, i - 1)->free_event))
      return false;
  }
  return true;
}

/* Two a parameter: the first is freed before the second of the parameter before. */
static bool is_forloop(const struct reading *c, const struct sl_optimizer_window *w) {
  const size_t count = w->parameters;
  if (w->count - w->states != 2 * count)
    return false;
  for (size_t i = 0; i < count; i++) {
    const struct sl_tape_allocation *a = sl_optimizer_temporary(c->tape, w, 2 * i),
                                    *b = sl_optimizer_temporary(c->tape, w, 2 * i + 1);
    const struct sl_tape_allocation *before = i ? sl_optimizer_temporary(c->tape, w, 2 * i - 1) : NULL;
    if (a->requested != sl_optimizer_bytes(c->tape, c->out, w, i) ||
        b->requested != sl_optimizer_bytes(c->tape, c->out, w, i) || a->free_event <= b->alloc_event ||
        a->complete_event != a->free_event + 1 || b->free_event <= a->free_event ||
        (before && before->free_event <= a->free_event))
      return false;
  }
  return true;
}

static int window_read(struct reading *c, struct sl_optimizer_window *w) {
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
  w->from = c->from;
  return w->states || before == c->from ? 0 : refuse(c, w, "it changes from step to step");
}

int sl_optimizer_record_read(const struct sl_tape *tape, int64_t first, int64_t last, struct sl_optimizer_record *out,
                             struct sl_error *error) {
  *out = (struct sl_optimizer_record){0};
  struct reading c = {.tape = tape, .error = error, .out = out};
  int r = sl_change_steps_check(tape, first, last, error);
  if (r == 0)
    r = windows_find(&c, first, last);
  if (r == 0 && !out->window_count)
    r = sl_error_set(error, -ENOTSUP, "no step of an optimizer was recorded in these steps");
  for (size_t i = 0; i < out->window_count && r == 0; i++)
    r = window_read(&c, &out->windows[i]);
  if (r < 0)
    sl_optimizer_record_free(out);
  return r;
}

void sl_optimizer_record_free(struct sl_optimizer_record *record) {
  for (size_t i = 0; i < record->window_count; i++)
    free(record->windows[i].made);
  free(record->windows);
  free(record->parameters);
  *record = (struct sl_optimizer_record){0};
}
