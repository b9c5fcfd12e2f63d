/* Moves each parameter's part of the optimizer's step to where its gradient is made, and frees the gradient there. */
#include "change_optimizer_in_backward.h"

#include "storage/grow.h"
#include "storage/predict/shards/unit_sizes.h"
#include "storage/predict/tape/gradient_names.h"
#include "storage/predict/tape/gradient_turn.h"
#include "storage/predict/tape/tape_marks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { AFTER = 1 << 22 }; /* among what changes put at one event */

struct turn {              /* of one parameter's optimizer */
  size_t parameter, order; /* of the record's; among the step's */
  uint32_t gradient;
  size_t states_at, temporaries_at, ends_at; /* after these events of the step */
  bool ends_gradient, is_of_unit;            /* a unit's reduced gradient ends after the last one's turn */
};

struct change {
  struct sl_tape *tape;
  struct sl_shards shards;
  struct sl_error *error;
  uint64_t ranks;
  enum sl_optimizer to;
  bool at_most;
  struct sl_optimizer_record record;
  struct sl_tape_marks marks;
  struct sl_tape_use *uses;
  struct sl_tape_ends *ends;
  uint32_t nothing, temp, all_reduced; /* all_reduced: 1 + the place of what is reduced among copies; 0: none yet */
  uint32_t *whose;                     /* of each sl_tape.parameters: 1 + index of the record's */
  size_t recorded;                     /* allocations and events that were there */
  int32_t put;
  /* of the step that is looked at */
  const struct sl_optimizer_window *window;
  size_t *events, event_count, event_room;
  struct turn *turns;
  size_t turn_count;
};

static int refuse(const struct change *c, const char *what) {
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " %s", c->window->at->step, what);
}

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static const struct sl_tape_event *event_at(const struct change *c, size_t i) {
  return &c->tape->events[c->events[i]];
}

static bool is_category(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->categories, allocation(c, index)->category, name);
}

static const struct sl_optimizer_parameter *parameter_of(const struct change *c, const struct turn *turn) {
  return &c->record.parameters[turn->parameter];
}

/* ---- what the job is ---- */

static int job_check(const struct change *c) {
  if (c->tape->world_size > 1 && !c->shards.unit_count)
    return sl_error_set(c->error, -ENOTSUP, "no unit of FSDP2 (fully_shard) was recorded with its shapes");
  for (size_t i = 0; i < c->shards.unit_count; i++)
    if (c->shards.units[i].is_offloaded)
      return sl_error_set(c->error, -ENOTSUP, "a unit of FSDP2 has its parameters in the host's memory");
  return 0;
}

/* When a step's backward ended: where it was over when the rest begins, its own; else that of the step it goes on as.
 */
static bool backward_end(const struct change *c, uint64_t *end_ns) {
  const struct sl_tape_mark *backward;
  const struct sl_tape_rest *rest = &c->tape->rest;
  const size_t count = sl_tape_backwards(&c->marks, c->window->at->step, &backward);
  const bool is_rest = rest->is_one && c->window->at->step == rest->step;
  *end_ns = count ? backward->end_ns : 0;
  if (count > 1 || !is_rest || (count && backward->end_ns < rest->from_ns + rest->shift_ns))
    return count == 1;
  if (sl_tape_backwards(&c->marks, rest->like_step, &backward) != 1)
    return false;
  *end_ns = backward->end_ns + rest->shift_ns;
  return true;
}

static int backward_check(const struct change *c) {
  uint64_t end_ns;
  if (!backward_end(c, &end_ns))
    return refuse(c, "backward does not run once, or when it ran is not recorded");
  for (size_t i = 0; i < c->event_count; i++)
    if (event_at(c, i)->kind == SL_TAPE_alloc && event_at(c, i)->ns > end_ns)
      return refuse(c, "something is made between backward and the optimizer's step, such as to clip gradients: that "
                       "needs all of them");
  return 0;
}

static size_t windows_of(const struct change *c, int64_t step) {
  size_t count = 0;
  for (size_t i = 0; i < c->record.window_count; i++)
    count += c->record.windows[i].at->step == step;
  return count;
}

/* Each backward is followed by one step of the optimizer: there are no gradients that it leaves as they are. */
static int steps_check(const struct change *c) {
  const struct sl_tape_mark *backward;
  for (size_t i = 0; i < c->tape->period_count; i++) {
    const struct sl_tape_period *period = &c->tape->periods[i];
    if (strcmp(period->kind, "step") == 0 && period->same_as < 0 &&
        sl_tape_backwards(&c->marks, period->step, &backward) && windows_of(c, period->step) != 1)
      return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " backward runs, and the optimizer does not step once",
                          period->step);
  }
  return 0;
}

static int whose_find(struct change *c) {
  c->whose = calloc(c->tape->parameters.count + 1, sizeof *c->whose);
  if (!c->whose)
    return -ENOMEM;
  for (size_t i = 0; i < c->record.parameter_count; i++) {
    const uint32_t name = allocation(c, c->record.parameters[i].first)->parameter;
    if (!name)
      return sl_error_set(c->error, -ENOTSUP, "of a state of the optimizer it is not recorded whose it is");
    c->whose[name - 1] = (uint32_t)i + 1; /* of several optimizers, one after the other: the last */
  }
  return 0;
}

/* ---- a step ---- */

static int events_read(struct change *c) {
  c->event_count = c->turn_count = 0;
  const struct sl_tape_period *period = NULL;
  for (size_t i = 0; i < c->tape->period_count && !period; i++)
    if (strcmp(c->tape->periods[i].kind, "step") == 0 && c->tape->periods[i].step == c->window->at->step &&
        c->tape->periods[i].first < c->tape->periods[i].end)
      period = &c->tape->periods[i];
  for (size_t i = period ? period->first : 0; period && i < period->end; i++) {
    if (c->tape->events[i].ns >= c->window->at->start_ns)
      break;
    if (c->tape->events[i].kind == SL_TAPE_segment)
      continue;
    size_t *added = SL_LIST_ADD_ROOM(c->events, c->event_count, &c->event_room);
    if (!added)
      return -ENOMEM;
    *added = i;
  }
  return c->event_count ? 0 : refuse(c, "nothing was made before the optimizer");
}

static int turn_add(struct change *c, const struct turn *turn) {
  for (size_t i = 0; i < c->turn_count; i++)
    if (c->turns[i].parameter == turn->parameter)
      return refuse(c, "a parameter has two gradients");
  struct turn *added = SL_LIST_ADD(c->turns, c->turn_count);
  if (!added)
    return -ENOMEM;
  *added = *turn;
  added->order = c->turn_count - 1;
  return 0;
}

/* The record's parameter of that name; SIZE_MAX: it has none in this step. */
static size_t parameter_find(const struct change *c, const char *name) {
  for (size_t i = 0; i < c->tape->parameters.count; i++)
    if (strcmp(c->tape->parameters.items[i], name) == 0 && c->whose[i]) {
      const size_t found = c->whose[i] - 1;
      return found >= c->window->first && found < c->window->first + c->window->parameters ? found : SIZE_MAX;
    }
  return SIZE_MAX;
}

/* ---- one device ---- */

/* Between two events the one after which the least is alive, or the most; gradients count at the most only. */
static size_t extreme_find(const struct change *c, size_t from, size_t to) {
  int64_t alive = 0, best = 0;
  size_t found = from;
  for (size_t i = from + 1; i <= to; i++) {
    const struct sl_tape_event *event = event_at(c, i);
    const int64_t bytes = (int64_t)allocation(c, event->index)->requested;
    if (event->kind == SL_TAPE_complete || (!c->at_most && is_category(c, event->index, "gradient")))
      continue;
    alive += event->kind == SL_TAPE_alloc ? bytes : -bytes;
    if (c->at_most ? alive > best : alive <= best) {
      best = alive;
      found = i;
    }
  }
  if (found < to && event_at(c, found + 1)->kind == SL_TAPE_complete)
    found++;
  return found;
}

static bool makes_something(const struct change *c, size_t from, size_t to) {
  for (size_t i = from + 1; i <= to; i++)
    if (event_at(c, i)->kind == SL_TAPE_alloc)
      return true;
  return false;
}

static int gradient_turn(struct change *c, const struct sl_gradient_place *place, size_t made) {
  const uint32_t gradient = event_at(c, made)->index, name = allocation(c, gradient)->parameter;
  const size_t parameter = name ? parameter_find(c, c->tape->parameters.items[name - 1]) : SIZE_MAX;
  if (parameter == SIZE_MAX)
    return 0;
  const size_t early = sl_gradient_turn_early(place, made) - 1, until = sl_gradient_turn_late(place, made) - 1;
  const size_t late = until > early ? until : early;
  sl_gradient_turn_doubt(c->tape);
  struct turn turn = {.parameter = parameter,
                      .gradient = gradient,
                      .states_at = early,
                      .temporaries_at = extreme_find(c, early, late),
                      .ends_at = late,
                      .ends_gradient = true};
  if (!c->at_most) {
    turn.states_at = late;
    if (makes_something(c, early, late))
      turn.ends_at = early;
    else /* where only something is freed between, the least is at the end, with the gradient still there */
      turn.temporaries_at = late;
  }
  return turn_add(c, &turn);
}

/* ---- FSDP2 ---- */

/* Elements of a unit's trained parameters must be what it reduces: all of them have a gradient. */
static bool is_whole(const struct change *c, const struct sl_shard_unit *unit, uint32_t gradient) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < unit->count; i++) {
    const struct sl_shard_parameter *p = &c->shards.parameters[unit->parameters[i]];
    bytes += p->is_trained ? sl_shard_padded(p, c->ranks) * p->element_bytes : 0;
  }
  return bytes == allocation(c, gradient)->requested;
}

/* The event after which the reduced gradient is as the optimizer sees it: what it was cast from may end before. */
static size_t reduced_at(const struct change *c, size_t made, bool *is_cast) {
  *is_cast = made + 2 < c->event_count && event_at(c, made + 1)->kind == SL_TAPE_free &&
             is_category(c, event_at(c, made + 1)->index, "reduce_scatter") &&
             allocation(c, event_at(c, made + 1)->index)->place == allocation(c, event_at(c, made)->index)->place;
  return *is_cast ? made + 2 : made;
}

/* After the whole gradients that end with the function that reduces. */
static size_t reduced_end(const struct change *c, size_t at) {
  while (at + 1 < c->event_count && event_at(c, at + 1)->kind != SL_TAPE_alloc &&
         is_category(c, event_at(c, at + 1)->index, "unsharded_grad"))
    at++;
  return at;
}

static size_t last_reduced(const struct change *c) {
  size_t last = 0;
  for (size_t i = 0; i < c->event_count; i++)
    if (event_at(c, i)->kind == SL_TAPE_alloc && is_category(c, event_at(c, i)->index, "sharded_grad"))
      last = i;
  return last;
}

/* The stream on which copies are reduced, which none of the recorded ones need be. */
static int all_reduced_find(struct change *c) {
  if (c->all_reduced)
    return 0;
  uint64_t stream = 1; /* no address */
  for (size_t i = 0; i < c->tape->place_count; i++)
    stream = c->tape->places[i].stream == stream ? stream + 2 : stream;
  struct sl_tape_place *added = SL_LIST_ADD(c->tape->places, c->tape->place_count);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_tape_place){.stream = stream};
  c->all_reduced = (uint32_t)c->tape->place_count;
  return 0;
}

static int unit_turn(struct change *c, size_t made) {
  const uint32_t gradient = event_at(c, made)->index;
  const struct sl_shard_unit *unit = sl_shards_unit(&c->shards, allocation(c, gradient)->module_id);
  if (!unit || !is_whole(c, unit, gradient))
    return refuse(c, "a unit of FSDP2 does not reduce the gradients of all that is trained of it");
  bool is_cast;
  const size_t at = reduced_at(c, made, &is_cast), before = c->turn_count;
  const bool is_kept = unit->replicas > 1 && !is_cast;
  const size_t end = reduced_end(c, is_kept ? last_reduced(c) : at);
  for (size_t i = 0; i < unit->count; i++) {
    const struct sl_shard_parameter *p = &c->shards.parameters[unit->parameters[i]];
    if (!p->is_trained || !sl_shard_own(p, c->ranks, c->shards.rank % c->ranks))
      continue;
    const struct turn turn = {.parameter = parameter_find(c, p->name),
                              .gradient = gradient,
                              .states_at = at,
                              .temporaries_at = at,
                              .ends_at = end,
                              .is_of_unit = true};
    if (turn.parameter == SIZE_MAX)
      return refuse(c, "the optimizer does not step for a parameter that has a gradient");
    const int r = turn_add(c, &turn);
    if (r < 0)
      return r;
  }
  if (c->turn_count > before)
    c->turns[c->turn_count - 1].ends_gradient = true;
  return is_kept ? all_reduced_find(c) : 0;
}

static int turns_find(struct change *c) {
  const struct sl_gradient_place place = {c->tape, c->uses, c->events, c->event_count, false};
  int r = 0;
  for (size_t i = 0; i < c->event_count && r == 0; i++) {
    if (event_at(c, i)->kind != SL_TAPE_alloc)
      continue;
    if (is_category(c, event_at(c, i)->index, "gradient"))
      r = gradient_turn(c, &place, i);
    else if (is_category(c, event_at(c, i)->index, "sharded_grad"))
      r = unit_turn(c, i);
  }
  if (r == 0 && c->turn_count != c->window->parameters)
    return refuse(c, "it is not recorded of each parameter that the optimizer steps for when its gradient is made");
  return r;
}

/* ---- putting ---- */

static int put(struct change *c, size_t at, enum sl_tape_kind kind, uint32_t index) {
  const struct sl_tape_event *event = event_at(c, at);
  return sl_tape_put(c->tape, kind, index, event->number, (int32_t)event->place - SL_TAPE_MIDDLE + AFTER + ++c->put);
}

static int end_put(struct change *c, size_t at, uint32_t index) {
  allocation(c, index)->free_event = 1; /* has an end, by events that are put */
  allocation(c, index)->complete_event = 2;
  const int r = put(c, at, SL_TAPE_free, index);
  return r < 0 ? r : put(c, at, SL_TAPE_complete, index);
}

static void event_drop(struct change *c, size_t event) {
  if (event != SIZE_MAX)
    c->tape->events[event].index = c->nothing;
}

/* The place of what the optimizer makes: that of what reduced the gradient. */
static uint32_t place_of(const struct change *c, const struct turn *turn) {
  const struct sl_tape_allocation *a = allocation(c, turn->gradient);
  const struct sl_shard_unit *unit = turn->is_of_unit ? sl_shards_unit(&c->shards, a->module_id) : NULL;
  return unit && unit->replicas > 1 && c->all_reduced ? c->all_reduced - 1 : a->place;
}

static int state_put(struct change *c, const struct turn *turn, uint32_t index) {
  if (index < c->recorded)
    event_drop(c, c->ends[index].alloc);
  allocation(c, index)->place = place_of(c, turn);
  allocation(c, index)->dropped = false;
  return put(c, turn->states_at, SL_TAPE_alloc, index);
}

/* A recorded state, or one like it. */
static int state_make(struct change *c, const struct turn *turn, uint32_t recorded, uint32_t like, uint64_t bytes) {
  uint32_t made = recorded;
  if (recorded != UINT32_MAX)
    return state_put(c, turn, recorded);
  const struct sl_tape_ends ends = c->ends[like];
  int r = sl_tape_add(c->tape, allocation(c, like), bytes, &made);
  r = r < 0 ? r : state_put(c, turn, made);
  if (r == 0 && ends.free != SIZE_MAX) {
    const struct sl_tape_event event = c->tape->events[ends.free];
    int32_t offset = (int32_t)event.place - SL_TAPE_MIDDLE - 3;
    r = sl_tape_put_end(c->tape, made, event.number, &offset);
  }
  return r;
}

static bool has_states(const struct change *c, const struct turn *turn) {
  const uint32_t first = parameter_of(c, turn)->first;
  return allocation(c, first)->optimizer_step == c->window->at->phase;
}

static int states_make(struct change *c, const struct turn *turn, enum sl_optimizer to) {
  const struct sl_optimizer_parameter p = *parameter_of(c, turn);
  const uint32_t states[] = {p.step, p.first, p.second};
  const uint64_t bytes = allocation(c, p.first)->requested;
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
    if (states[i] != UINT32_MAX)
      allocation(c, states[i])->dropped = true;
  int r = 0;
  if (to == SL_OPTIMIZER_host)
    return 0;
  if (to == SL_OPTIMIZER_fused)
    r = state_make(c, turn, p.step, p.first, 4);
  r = r < 0 ? r : state_make(c, turn, p.first, p.first, bytes);
  if (r == 0 && to != SL_OPTIMIZER_sgd)
    r = state_make(c, turn, p.second, p.first, bytes);
  return r;
}

static int temporaries_make(struct change *c, const struct turn *turn, enum sl_optimizer to) {
  const size_t count = to == SL_OPTIMIZER_foreach ? 1 : to == SL_OPTIMIZER_forloop ? 2 : 0;
  struct sl_tape_allocation like = *allocation(c, turn->gradient);
  uint32_t made[2];
  int r = 0;
  like.place = place_of(c, turn);
  like.category = c->temp;
  like.parameter = 0;
  like.free_event = 1;
  for (size_t i = 0; i < count && r == 0; i++) {
    r = sl_tape_add(c->tape, &like, allocation(c, parameter_of(c, turn)->first)->requested, &made[i]);
    r = r < 0 ? r : put(c, turn->temporaries_at, SL_TAPE_alloc, made[i]);
  }
  for (size_t i = 0; i < count && r == 0; i++)
    r = end_put(c, turn->temporaries_at, made[i]);
  return r;
}

static int gradient_end(struct change *c, const struct turn *turn) {
  event_drop(c, c->ends[turn->gradient].free);
  event_drop(c, c->ends[turn->gradient].complete);
  return end_put(c, turn->ends_at, turn->gradient);
}

static uint64_t bytes_of(const struct change *c, const struct turn *turn) {
  return allocation(c, parameter_of(c, turn)->first)->requested;
}

/* Of those of one operator, in which order is not known: the smallest first takes the least. */
static int compare_turns(const void *left, const void *right, void *context) {
  const struct change *c = context;
  const struct turn *a = left, *b = right;
  const uint64_t one = bytes_of(c, a), other = bytes_of(c, b);
  if (a->is_of_unit != b->is_of_unit)
    return a->is_of_unit ? -1 : 1;
  if (a->is_of_unit || one == other)
    return (a->order > b->order) - (a->order < b->order);
  return (c->at_most ? one < other : one > other) ? 1 : -1;
}

static int step_change(struct change *c) {
  const enum sl_optimizer to = c->to == SL_OPTIMIZER_as_recorded ? c->window->from : c->to;
  int r = events_read(c);
  r = r < 0 ? r : backward_check(c);
  r = r < 0 ? r : turns_find(c);
  if (r < 0)
    return r;
  for (size_t n = c->window->states; n < c->window->count; n++)
    allocation(c, c->window->made[n])->dropped = true;
  qsort_r(c->turns, c->turn_count, sizeof *c->turns, compare_turns, c);
  for (size_t i = 0; i < c->turn_count && r == 0; i++) {
    if (has_states(c, &c->turns[i]))
      r = states_make(c, &c->turns[i], to);
    r = r < 0 ? r : temporaries_make(c, &c->turns[i], to);
    if (r == 0 && c->turns[i].ends_gradient)
      r = gradient_end(c, &c->turns[i]);
  }
  return r;
}

static int room_make(struct change *c) {
  c->recorded = c->tape->allocation_count;
  c->ends = sl_tape_ends(c->tape);
  int r = c->ends ? sl_tape_category(c->tape, "temp", &c->temp) : -ENOMEM;
  r = r < 0 ? r : sl_tape_add(c->tape, allocation(c, 0), 0, &c->nothing);
  if (r == 0)
    allocation(c, c->nothing)->dropped = true;
  return r;
}

static int steps_change(struct change *c) {
  int r = 0;
  for (size_t i = 0; i < c->record.window_count && r == 0; i++) {
    c->window = &c->record.windows[i];
    r = step_change(c);
  }
  return r;
}

int sl_change_optimizer_in_backward(struct sl_db *db, struct sl_tape *tape, uint64_t world_size, enum sl_optimizer to,
                                    bool at_most, struct sl_error *error) {
  struct change c = {.tape = tape, .error = error, .to = to, .at_most = at_most};
  int r = sl_shards_read(db, tape->rank, &c.shards, error);
  if (r < 0)
    return r;
  c.ranks = world_size / sl_shards_replicas(&c.shards);
  r = job_check(&c);
  r = r < 0 ? r : sl_optimizer_record_read(tape, 0, INT64_MAX, &c.record, error);
  r = r < 0 ? r : sl_tape_marks(db, tape->rank, &c.marks, error);
  r = r < 0 ? r : steps_check(&c);
  r = r < 0 ? r : sl_tape_uses(db, tape, &c.uses, error);
  r = r < 0 ? r : sl_gradient_names(tape);
  r = r < 0 ? r : whose_find(&c);
  r = r < 0 ? r : room_make(&c);
  r = r < 0 ? r : steps_change(&c);
  if (r == 0)
    sl_tape_sort(tape);
  sl_shards_free(&c.shards);
  sl_optimizer_record_free(&c.record);
  free(c.marks.items);
  free(c.uses);
  free(c.ends);
  free(c.whose);
  free(c.events);
  free(c.turns);
  return r;
}
