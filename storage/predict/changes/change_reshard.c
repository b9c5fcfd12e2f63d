/* Keeps what FSDP2 gathered from forward to backward. */
#include "change_reshard.h"

#include "change_steps.h"
#include "storage/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct unit { /* what a unit gathers in a step, in order */
  int64_t step, module;
  uint32_t *buffers, *copies; /* all-gathers; what is copied out of them: parameters and the copy's own temporaries */
  size_t buffer_count, copy_count;
};

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  struct unit *units;
  size_t unit_count, changed;
  uint32_t *ends_as; /* of each allocation: another one, when whose end it ends; UINT32_MAX: as it was */
};

static int refuse(const struct change *c, const struct unit *unit, const char *what) {
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " a unit's parameters are not gathered as FSDP2 does: %s",
                      unit->step, what);
}

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

/* Of the step that goes on: from the latest. */
static struct unit *unit_of(struct change *c, int64_t step, int64_t module) {
  for (size_t i = c->unit_count; i-- > 0 && c->units[i].step == step;)
    if (c->units[i].module == module)
      return &c->units[i];
  struct unit *added = SL_LIST_ADD(c->units, c->unit_count);
  if (!added)
    return NULL;
  *added = (struct unit){.step = step, .module = module};
  return added;
}

static int units_find(struct change *c, int64_t first, int64_t last) {
  for (uint32_t i = 0; i < c->tape->allocation_count; i++) {
    const struct sl_tape_allocation *a = &c->tape->allocations[i];
    const char *phase = c->tape->phases.items[a->phase];
    const bool is_copy = strcmp(phase, "unshard_copy_out") == 0;
    if (a->dropped || a->step < first || a->step > last || !a->module_id || (!is_copy && strcmp(phase, "unshard") != 0))
      continue;
    struct unit *unit = unit_of(c, a->step, a->module_id);
    int r = !unit     ? -ENOMEM
            : is_copy ? sl_index_add(&unit->copies, &unit->copy_count, i)
                      : sl_index_add(&unit->buffers, &unit->buffer_count, i);
    if (r < 0)
      return r;
  }
  return 0;
}

/* What backward copied out goes; what forward did ends as that did. Temporaries of a copy end in it, both times. */
static int copies_join(struct change *c, const struct unit *unit, const uint32_t *forward, const uint32_t *backward,
                       size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct sl_tape_allocation *a = allocation(c, forward[i]), *b = allocation(c, backward[i]);
    if (a->requested != b->requested || a->place != b->place || a->category != b->category)
      return refuse(c, unit, "backward's are not forward's");
    if (!a->free_event || a->free_event >= b->alloc_event || !b->free_event)
      return refuse(c, unit, "forward's are still there when backward's come, or backward's stay");
    b->dropped = true;
    if (sl_tape_is(&c->tape->categories, a->category, "unsharded_param"))
      c->ends_as[forward[i]] = backward[i];
  }
  return 0;
}

static int unit_change(struct change *c, const struct unit *unit) {
  const size_t gathers = unit->buffer_count;
  if (gathers < 2)
    return 0; /* it is not given back after forward, as the root is not */
  if (gathers % 2 || unit->copy_count % gathers || !unit->copy_count)
    return refuse(c, unit, "not once for each forward and each backward");
  const size_t each = unit->copy_count / gathers;
  for (size_t i = 0; i < gathers; i += 2) {
    if (allocation(c, unit->buffers[i])->tid == allocation(c, unit->buffers[i + 1])->tid)
      return refuse(c, unit, "twice for forward");
    int r = copies_join(c, unit, unit->copies + i * each, unit->copies + (i + 1) * each, each);
    if (r < 0)
      return r;
    allocation(c, unit->buffers[i + 1])->dropped = true;
  }
  c->changed++;
  return 0;
}

static void ends_move(struct change *c) {
  struct sl_tape *tape = c->tape;
  for (size_t i = 0; i < tape->event_count; i++) {
    struct sl_tape_event *event = &tape->events[i];
    if ((event->kind != SL_TAPE_free && event->kind != SL_TAPE_complete) || c->ends_as[event->index] == UINT32_MAX)
      continue;
    const struct sl_tape_allocation *other = &tape->allocations[c->ends_as[event->index]];
    event->number = event->kind == SL_TAPE_free ? other->free_event : other->complete_event;
  }
  for (size_t i = 0; i < tape->allocation_count; i++) {
    if (c->ends_as[i] == UINT32_MAX)
      continue;
    tape->allocations[i].free_event = tape->allocations[c->ends_as[i]].free_event;
    tape->allocations[i].complete_event = tape->allocations[c->ends_as[i]].complete_event;
  }
}

int sl_change_reshard_off(struct sl_tape *tape, int64_t first, int64_t last, struct sl_error *error) {
  struct change c = {.tape = tape, .error = error};
  int r = sl_change_steps_check(tape, first, last, error);
  c.ends_as = reallocarray(NULL, tape->allocation_count + 1, sizeof *c.ends_as);
  if (!c.ends_as)
    r = -ENOMEM;
  else
    memset(c.ends_as, 0xff, (tape->allocation_count + 1) * sizeof *c.ends_as);
  if (r == 0)
    r = units_find(&c, first, last);
  for (size_t i = 0; i < c.unit_count && r == 0; i++)
    r = unit_change(&c, &c.units[i]);
  if (r == 0 && !c.changed)
    r = sl_error_set(error, -ENOTSUP,
                     "nothing is gathered twice in a step: no unit of FSDP2 gives its parameters back "
                     "after forward");
  if (r == 0) {
    ends_move(&c);
    sl_tape_sort(tape);
  }
  for (size_t i = 0; i < c.unit_count; i++) {
    free(c.units[i].buffers);
    free(c.units[i].copies);
  }
  free(c.units);
  free(c.ends_as);
  return r;
}
