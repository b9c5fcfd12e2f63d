/* Adds forwards and backwards before the optimizer's step (gradient accumulation). */
#include "change_accumulate.h"

#include "storage/grow.h"
#include "storage/predict/tape/gradient_names.h"
#include "storage/predict/tape/gradient_turn.h"
#include "storage/predict/tape/tape_marks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX };
enum part { PART_own, PART_gradient, PART_reduced, PART_carried, PART_kept, PART_once, PART_other };

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  uint64_t times;
  bool no_sync, at_latest;
  struct sl_tape_marks marks;
  struct sl_tape_ends *ends;
  struct sl_tape_use *uses; /* of each recorded allocation */
  size_t recorded;          /* allocations that were there */
  uint32_t nothing;
  uint32_t *before, *copies; /* of each recorded allocation: in the round before, and in this one */
  uint8_t *parts;            /* enum part */
  /* of the step that is looked at */
  const struct sl_tape_period *period;
  size_t *events, event_count, event_room; /* one round's, of sl_tape.events */
  uint32_t *carried, *given; /* objects that go over to the next round; those that came from the one before */
  size_t carried_count, given_count;
  size_t *ending, ending_count; /* places of those, in order */
  size_t *ends_before; /* of each event of a round that makes a gradient: before which one that ends; SIZE_MAX: none */
  uint64_t number;     /* of the round's last event: what is put follows it */
  int32_t offset;
};

static int refuse(const struct change *c, const char *what) {
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " %s", c->period->step, what);
}

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static bool is_category(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->categories, allocation(c, index)->category, name);
}

static bool is_phase(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->phases, allocation(c, index)->phase, name);
}

static struct sl_tape_event *event_at(const struct change *c, size_t place) {
  return &c->tape->events[c->events[place]];
}

/* ---- a round ---- */

static bool is_cleared(const struct change *c, uint64_t ns) {
  for (size_t i = 0; i < c->marks.count; i++) {
    const struct sl_tape_mark *mark = &c->marks.items[i];
    if (!mark->is_backward && mark->step == c->period->step && ns >= mark->start_ns && ns <= mark->end_ns)
      return true;
  }
  return false;
}

/* All of a step's events up to its optimizer, but for what zero_grad frees. */
static int round_read(struct change *c) {
  const struct sl_tape_optimizer_step *at = NULL;
  const struct sl_tape_mark *backward;
  size_t steps = 0;
  for (size_t i = 0; i < c->tape->optimizer_step_count; i++)
    if (c->tape->optimizer_steps[i].step == c->period->step) {
      steps++;
      at = &c->tape->optimizer_steps[i];
    }
  if (steps != 1 || sl_tape_backwards(&c->marks, c->period->step, &backward) != 1)
    return refuse(c, steps == 1 ? "backward does not run once" : "the optimizer does not step once");
  c->event_count = 0;
  for (size_t i = c->period->first; i < c->period->end; i++) {
    const struct sl_tape_event *event = &c->tape->events[i];
    if (event->ns >= at->start_ns)
      break;
    c->number = event->number;
    if (event->kind == SL_TAPE_segment || (event->kind != SL_TAPE_alloc && is_cleared(c, event->ns)))
      continue;
    size_t *added = SL_LIST_ADD_ROOM(c->events, c->event_count, &c->event_room);
    if (!added)
      return -ENOMEM;
    *added = i;
  }
  return c->event_count ? 0 : refuse(c, "nothing was made before the optimizer");
}

/* Where the next step ends; UINT64_MAX: there is none. What is freed by then goes from round to round. */
static uint64_t next_end(const struct change *c) {
  const struct sl_tape_period *end = c->tape->periods + c->tape->period_count;
  for (const struct sl_tape_period *period = c->period + 1; period < end; period++)
    if (strcmp(period->kind, "step") == 0)
      return period->end_event;
  return UINT64_MAX;
}

/* What is no part of the step that is looked at: made before it, as a copy of an earlier step's may be. */
static enum part part_at(const struct change *c, uint32_t index) {
  return index < c->recorded ? (enum part)c->parts[index] : PART_other;
}

static enum part part_of(const struct change *c, uint32_t index) {
  const struct sl_tape_allocation *a = allocation(c, index);
  const bool ends = a->free_event && a->free_event <= c->number;
  if (is_category(c, index, "workspace"))
    return PART_once;
  if (is_category(c, index, "sharded_grad"))
    return PART_reduced;
  if (is_category(c, index, "gradient") || (c->no_sync && is_category(c, index, "unsharded_grad")))
    return PART_gradient;
  if (ends)
    return PART_own;
  const uint64_t until = next_end(c);
  return until == UINT64_MAX || (a->free_event && a->free_event < until) ? PART_carried : PART_kept;
}

static int compare_frees(const void *left, const void *right, void *context) {
  const struct change *c = context;
  const uint64_t a = allocation(c, *(const uint32_t *)left)->free_event,
                 b = allocation(c, *(const uint32_t *)right)->free_event;
  return (a - 1 > b - 1) - (a - 1 < b - 1); /* none comes last */
}

static int parts_find(struct change *c) {
  c->carried_count = c->given_count = 0;
  memset(c->parts, PART_other, c->recorded);
  for (size_t i = 0; i < c->event_count; i++) {
    const struct sl_tape_event *event = event_at(c, i);
    const uint32_t index = event->index;
    if (event->kind == SL_TAPE_alloc) {
      c->parts[index] = (uint8_t)part_of(c, index);
      if (c->parts[index] == PART_carried)
        c->carried[c->carried_count++] = index;
    } else if (event->kind == SL_TAPE_free && part_at(c, index) == PART_other && !is_category(c, index, "gradient") &&
               !is_category(c, index, "sharded_grad")) {
      c->given[c->given_count++] = index;
    }
    if (event->kind == SL_TAPE_alloc && is_category(c, index, "unsharded_grad") && part_at(c, index) == PART_carried)
      return refuse(c, "gradients are not reduced");
  }
  qsort_r(c->carried, c->carried_count, sizeof *c->carried, compare_frees, c);
  return 0;
}

/* Whether what a round leaves to the next one is, one by one, what this one was left. */
static bool is_paired(const struct change *c) {
  if (c->carried_count != c->given_count)
    return false;
  for (size_t i = 0; i < c->carried_count; i++)
    if (allocation(c, c->carried[i])->category != allocation(c, c->given[i])->category)
      return false;
  return true;
}

/* ---- when gradients end that are added to others ---- */

/* A reduced one ends with the function that reduces: after the whole ones that end there, too. */
static size_t reduced_end(const struct change *c, size_t made) {
  size_t i = made + 1;
  while (i < c->event_count && event_at(c, i)->kind != SL_TAPE_alloc &&
         is_category(c, event_at(c, i)->index, "unsharded_grad"))
    i++;
  return i;
}

static int ends_find(struct change *c) {
  const struct sl_gradient_place place = {c->tape, c->uses, c->events, c->event_count, c->no_sync};
  free(c->ends_before);
  free(c->ending);
  c->ends_before = reallocarray(NULL, c->event_count + 1, sizeof *c->ends_before);
  c->ending = reallocarray(NULL, c->event_count + 1, sizeof *c->ending);
  c->ending_count = 0;
  if (!c->ends_before || !c->ending)
    return -ENOMEM;
  for (size_t i = 0; i < c->event_count; i++) {
    const struct sl_tape_event *event = event_at(c, i);
    c->ends_before[i] = SIZE_MAX;
    if (event->kind != SL_TAPE_alloc)
      continue;
    if (c->parts[event->index] == PART_gradient) {
      c->ends_before[i] = c->at_latest ? sl_gradient_turn_late(&place, i) : sl_gradient_turn_early(&place, i);
      sl_gradient_turn_doubt(c->tape);
    } else if (c->parts[event->index] == PART_reduced && !c->no_sync)
      c->ends_before[i] = reduced_end(c, i);
    if (c->ends_before[i] != SIZE_MAX)
      c->ending[c->ending_count++] = i;
  }
  return 0;
}

/* ---- putting ---- */

static int put(struct change *c, enum sl_tape_kind kind, uint32_t index) {
  return sl_tape_put(c->tape, kind, index, c->number, ++c->offset);
}

static int put_end(struct change *c, uint32_t index) {
  return sl_tape_put_end(c->tape, index, c->number, &c->offset);
}

/* Of an object of the round before that this one ends. */
static int carried_end(struct change *c, size_t place) {
  return c->before[c->carried[place]] == NONE ? 0 : put_end(c, c->before[c->carried[place]]);
}

static bool is_of_round(const struct change *c, uint32_t index, bool is_last) {
  return c->parts[index] != PART_once && (c->parts[index] != PART_kept || c->at_latest) &&
         (!c->no_sync || is_last || !is_phase(c, index, "reduce"));
}

static int alloc_again(struct change *c, uint32_t index, bool is_last) {
  struct sl_tape_allocation like = *allocation(c, index);
  c->copies[index] = NONE;
  if (!is_of_round(c, index, is_last))
    return 0;
  /* Kept: a cache, made once, or what piles up. Else it has an end, by events that are put, or is given one. */
  like.free_event = c->parts[index] != PART_kept;
  int r = 0;
  if (c->parts[index] == PART_gradient)
    r = sl_tape_category(c->tape, "temp", &like.category);
  r = r < 0 ? r : sl_tape_add(c->tape, &like, like.requested, &c->copies[index]);
  return r < 0 ? r : put(c, SL_TAPE_alloc, c->copies[index]);
}

static int end_again(struct change *c, const struct sl_tape_event *event, bool is_last, bool paired, size_t *given) {
  const uint32_t index = event->index;
  if (part_at(c, index) == PART_other) {
    if (event->kind == SL_TAPE_free && paired && *given < c->given_count && c->given[*given] == index)
      return carried_end(c, (*given)++);
    return 0;
  }
  if (c->parts[index] == PART_gradient) /* with no sync, the first round's end when the last one reduces */
    return c->no_sync && is_last ? put(c, (enum sl_tape_kind)event->kind, index) : 0;
  return c->copies[index] == NONE ? 0 : put(c, (enum sl_tape_kind)event->kind, c->copies[index]);
}

static int round_again(struct change *c, bool is_last) {
  const bool paired = is_paired(c);
  size_t given = 0;
  int r = 0;
  for (size_t i = 0; i < c->carried_count && r == 0 && !paired && !c->at_latest; i++)
    r = carried_end(c, i);
  for (size_t i = 0; i <= c->event_count && r == 0; i++) {
    for (size_t e = 0; e < c->ending_count && c->ending[e] < i && r == 0; e++) {
      const size_t made = c->ending[e];
      if (c->ends_before[made] == i && c->copies[event_at(c, made)->index] != NONE)
        r = put_end(c, c->copies[event_at(c, made)->index]);
    }
    if (r < 0 || i == c->event_count)
      break;
    const struct sl_tape_event event = *event_at(c, i);
    r = event.kind == SL_TAPE_alloc ? alloc_again(c, event.index, is_last)
                                    : end_again(c, &event, is_last, paired, &given);
  }
  for (size_t i = 0; i < c->carried_count && r == 0 && !paired && c->at_latest; i++)
    r = carried_end(c, i);
  for (size_t i = 0; i < c->event_count; i++)
    if (event_at(c, i)->kind == SL_TAPE_alloc)
      c->before[event_at(c, i)->index] = c->copies[event_at(c, i)->index];
  return r;
}

/* What ended it in the record ends the last round's. */
static void end_move(struct change *c, uint32_t from, uint32_t to) {
  const struct sl_tape_ends ends = c->ends[from];
  if (ends.free != SIZE_MAX)
    c->tape->events[ends.free].index = to;
  if (ends.complete != SIZE_MAX)
    c->tape->events[ends.complete].index = to;
  if (to == c->nothing)
    return;
  allocation(c, to)->free_event = allocation(c, from)->free_event;
  allocation(c, to)->complete_event = allocation(c, from)->complete_event;
}

static void first_round_change(struct change *c) {
  for (size_t i = 0; i < c->event_count; i++) {
    const struct sl_tape_event event = *event_at(c, i);
    if (event.kind != SL_TAPE_alloc || event.index >= c->recorded)
      continue;
    const uint32_t index = event.index;
    if (c->parts[index] == PART_carried) {
      end_move(c, index, c->copies[index]);
      allocation(c, index)->complete_event = allocation(c, index)->free_event + 1;
    } else if (c->no_sync && c->parts[index] == PART_reduced && c->copies[index] != NONE) {
      end_move(c, index, c->copies[index]);
      allocation(c, index)->dropped = true;
    } else if (c->no_sync && c->parts[index] == PART_gradient) {
      end_move(c, index, c->nothing);
    } else if (c->no_sync && is_phase(c, index, "reduce")) {
      allocation(c, index)->dropped = true;
    }
  }
}

static int step_change(struct change *c) {
  int r = round_read(c);
  r = r < 0 ? r : parts_find(c);
  r = r < 0 ? r : ends_find(c);
  for (size_t i = 0; i < c->event_count && r == 0; i++)
    if (event_at(c, i)->kind == SL_TAPE_alloc)
      c->before[event_at(c, i)->index] = event_at(c, i)->index;
  c->offset = 1;
  for (uint64_t round = 2; round <= c->times && r == 0; round++)
    r = round_again(c, round == c->times);
  if (r == 0)
    first_round_change(c);
  return r;
}

static int job_check(const struct change *c, const struct sl_shards *shards) {
  if (c->tape->world_size > 1 && !shards->unit_count)
    return sl_error_set(c->error, -ENOTSUP, "what several ranks do without FSDP2 when they accumulate is not known");
  if (c->no_sync && !shards->unit_count)
    return sl_error_set(c->error, -ENOTSUP,
                        "only FSDP2 (fully_shard) can leave out reductions, and it has no unit of it");
  for (size_t i = 0; i < shards->unit_count && c->no_sync; i++)
    if (*shards->units[i].reduce_dtype && strcmp(shards->units[i].reduce_dtype, shards->units[i].param_dtype) != 0)
      return sl_error_set(
          c->error, -ENOTSUP,
          "gradients are reduced in %s, and without a reduction FSDP2 keeps them in it, too: when it makes "
          "these is not in this record",
          shards->units[i].reduce_dtype);
  return 0;
}

static int room_make(struct change *c) {
  const size_t count = c->tape->allocation_count + 1;
  c->ends = sl_tape_ends(c->tape);
  c->before = calloc(count, sizeof *c->before);
  c->copies = calloc(count, sizeof *c->copies);
  c->parts = malloc(count);
  c->carried = calloc(count, sizeof *c->carried);
  c->given = calloc(count, sizeof *c->given);
  if (!c->ends || !c->before || !c->copies || !c->parts || !c->carried || !c->given || c->tape->allocation_count == 0)
    return -ENOMEM;
  memset(c->parts, PART_other, count);
  int r = sl_tape_add(c->tape, allocation(c, 0), 0, &c->nothing);
  if (r == 0)
    allocation(c, c->nothing)->dropped = true;
  return r;
}

int sl_change_accumulate(struct sl_db *db, struct sl_tape *tape, const struct sl_shards *shards, uint64_t times,
                         bool no_sync, bool at_latest, struct sl_error *error) {
  struct change c = {.tape = tape,
                     .error = error,
                     .times = times,
                     .no_sync = no_sync,
                     .at_latest = at_latest,
                     .recorded = tape->allocation_count};
  size_t changed = 0;
  int r = job_check(&c, shards);
  r = r < 0 ? r : sl_tape_marks(db, tape->rank, &c.marks, error);
  r = r < 0 ? r : sl_tape_uses(db, tape, &c.uses, error);
  r = r < 0 ? r : sl_gradient_names(tape);
  r = r < 0 ? r : room_make(&c);
  for (size_t i = 0; i < tape->period_count && r == 0; i++) {
    c.period = &tape->periods[i];
    if (strcmp(c.period->kind, "step") != 0 || c.period->same_as >= 0 || c.period->first == c.period->end)
      continue;
    changed++;
    r = step_change(&c);
  }
  if (r == 0 && !changed)
    r = sl_error_set(error, -ENOTSUP, "no step was recorded");
  if (r == 0)
    sl_tape_sort(tape);
  free(c.marks.items);
  free(c.ends);
  free(c.uses);
  free(c.before);
  free(c.copies);
  free(c.parts);
  free(c.carried);
  free(c.given);
  free(c.events);
  free(c.ends_before);
  free(c.ending);
  return r;
}
