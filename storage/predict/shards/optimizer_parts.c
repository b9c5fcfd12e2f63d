/* Tells of which parameter each allocation of an optimizer's step is. */
#include "optimizer_parts.h"

#include "storage/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct finding {
  const struct sl_tape *tape;
  const struct sl_shards *shards;
  uint64_t ranks;
  uint32_t *out;
  uint32_t *names;                 /* of each sl_tape.parameters: 1 + index of sl_shards.parameters */
  uint32_t *order;                 /* the optimizer's parameters, group after group */
  size_t *group_ends, order_count; /* in order */
  uint32_t *temporaries;           /* of the step that is looked at */
  size_t temporary_count, temporary_room;
  struct sl_error *error;
};

uint64_t sl_optimizer_elements(const struct sl_shards *shards, uint32_t parameter, uint64_t ranks) {
  const struct sl_shard_parameter *p = &shards->parameters[parameter];
  return sl_shard_own(p, p->unit ? ranks : 1, p->unit ? shards->rank : 0);
}

static int refuse(const struct finding *f, const struct sl_tape_optimizer_step *at, const char *what) {
  return sl_error_set(f->error, -ENOTSUP, "in step %" PRId64 " the optimizer makes what is not of its parameters: %s",
                      at->step, what);
}

static uint64_t bytes_of(const struct finding *f, uint32_t parameter) {
  return sl_optimizer_elements(f->shards, parameter, f->ranks) * f->shards->parameters[parameter].element_bytes;
}

/* ---- what is known of the optimizer ---- */

static int names_find(struct finding *f) {
  f->names = calloc(f->tape->parameters.count + 1, sizeof *f->names);
  if (!f->names)
    return -ENOMEM;
  size_t at = 0; /* they come in the same order, mostly */
  for (size_t i = 0; i < f->tape->parameters.count; i++)
    for (size_t tried = 0; tried < f->shards->parameter_count; tried++, at++) {
      at = at >= f->shards->parameter_count ? 0 : at;
      if (strcmp(f->tape->parameters.items[i], f->shards->parameters[at].name) == 0) {
        f->names[i] = (uint32_t)at + 1;
        break;
      }
    }
  return 0;
}

static int order_find(struct finding *f) {
  size_t count = 0;
  for (size_t i = 0; i < f->shards->group_count; i++) {
    const struct sl_shard_group *group = &f->shards->groups[i];
    if (group->optimizer != f->shards->groups[0].optimizer)
      return sl_error_set(f->error, -ENOTSUP, "it has several optimizers");
    if (!group->is_whole)
      return sl_error_set(f->error, -ENOTSUP, "not all parameters of its optimizer are known");
    count += group->count;
  }
  f->order = calloc(count + 1, sizeof *f->order);
  f->group_ends = calloc(f->shards->group_count + 1, sizeof *f->group_ends);
  if (!f->order || !f->group_ends)
    return -ENOMEM;
  for (size_t i = 0; i < f->shards->group_count; i++) {
    const struct sl_shard_group *group = &f->shards->groups[i];
    memcpy(f->order + f->order_count, group->parameters, group->count * sizeof *f->order);
    f->order_count += group->count;
    f->group_ends[i] = f->order_count;
  }
  return 0;
}

/* ---- a step ---- */

static int state_find(struct finding *f, const struct sl_tape_optimizer_step *at, uint32_t index) {
  static const char *const like_parameters[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"};
  const struct sl_tape_allocation *a = &f->tape->allocations[index];
  const char *name = f->tape->states.items[a->state - 1];
  if (strcmp(name, "step") == 0)
    return a->requested == 4 ? 0 : refuse(f, at, "its count of steps is no single number");
  const uint32_t parameter = a->parameter ? f->names[a->parameter - 1] : 0;
  bool is_like = false;
  for (size_t i = 0; i < sizeof like_parameters / sizeof like_parameters[0]; i++)
    is_like |= strcmp(name, like_parameters[i]) == 0;
  if (!is_like || !parameter || bytes_of(f, parameter - 1) != a->requested)
    return refuse(f, at, "it has other states than AdamW, Adam, and SGD with momentum");
  f->out[index] = parameter;
  return 0;
}

/* Each parameter so many times, one after the other, or all of a group again and again. */
static bool is_repeated(struct finding *f, size_t times, bool one_by_one) {
  size_t at = 0, first = 0;
  for (size_t g = 0; g < f->shards->group_count; first = f->group_ends[g++]) {
    const size_t count = f->group_ends[g] - first;
    for (size_t i = 0; i < times * count; i++, at++) {
      const uint32_t parameter = f->order[first + (one_by_one ? i / times : i % count)];
      if (f->tape->allocations[f->temporaries[at]].requested != bytes_of(f, parameter))
        return false;
      f->out[f->temporaries[at]] = parameter + 1;
    }
  }
  return true;
}

static int step_find(struct finding *f, const struct sl_tape_optimizer_step *at) {
  if (!f->temporary_count)
    return 0;
  if (!f->order_count)
    return refuse(f, at, "its parameters were not recorded");
  const size_t times = f->temporary_count / f->order_count;
  if (f->temporary_count % f->order_count || (!is_repeated(f, times, true) && !is_repeated(f, times, false)))
    return refuse(f, at, "its temporaries are others");
  return 0;
}

static int steps_find(struct finding *f) {
  const struct sl_tape_optimizer_step *at = NULL;
  size_t next = 0;
  int r = 0;
  for (uint32_t i = 0; i < f->tape->allocation_count && r == 0; i++) { /* by time, as steps are */
    const struct sl_tape_allocation *a = &f->tape->allocations[i];
    if (!a->optimizer_step || a->dropped)
      continue;
    if (!at || at->phase != a->optimizer_step) {
      r = at ? step_find(f, at) : 0;
      f->temporary_count = 0;
      while (next < f->tape->optimizer_step_count && f->tape->optimizer_steps[next].phase != a->optimizer_step)
        next++;
      if (next == f->tape->optimizer_step_count)
        return sl_error_set(f->error, -ENOTSUP, "steps of its optimizer lie in each other");
      at = &f->tape->optimizer_steps[next];
    }
    if (r < 0)
      break;
    if (a->state) {
      r = state_find(f, at, i);
      continue;
    }
    uint32_t *added = SL_LIST_ADD_ROOM(f->temporaries, f->temporary_count, &f->temporary_room);
    if (!added)
      return -ENOMEM;
    *added = i;
  }
  return r < 0 || !at ? r : step_find(f, at);
}

int sl_optimizer_parts(const struct sl_tape *tape, const struct sl_shards *shards, uint64_t ranks, uint32_t *out,
                       struct sl_error *error) {
  struct finding f = {.tape = tape, .shards = shards, .ranks = ranks, .out = out, .error = error};
  int r = names_find(&f);
  r = r < 0 ? r : order_find(&f);
  r = r < 0 ? r : steps_find(&f);
  free(f.names);
  free(f.order);
  free(f.group_ends);
  free(f.temporaries);
  return r;
}
