/* As an earlier step went on: its requests from the same one on, and its frees of what it and the others had made. */
#include "continuation_cut.h"

#include "storage/allocator/allocator_config.h"
#include "storage/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct made {      /* what a period made, in order */
  uint32_t *items; /* of sl_tape.allocations */
  size_t count;
};

struct joining {
  struct sl_tape *tape;
  const struct sl_goal *goal;
  struct sl_cut cut;
  size_t period; /* whose rest it becomes, of sl_tape.periods; its own rows are those of rows */
  size_t rows;
  struct made here, there;
  uint32_t *as; /* of each allocation that was recorded: the one that stands for it here; UINT32_MAX: none */
  size_t known; /* entries of as */
};

/* The period that a period's rows are in. */
static size_t rows_of(const struct sl_tape *tape, size_t period) {
  const int64_t same_as = tape->periods[period].same_as;
  const struct sl_tape_period *other = same_as >= 0 ? sl_tape_period_find(tape, same_as) : NULL;
  return other ? (size_t)(other - tape->periods) : period;
}

/*
 * What the process makes once and keeps, in whichever step that happens: cuBLAS's workspaces and the optimizer's
 * states. before: the end of what is looked at.
 */
static bool is_once(const struct sl_tape *tape, const struct sl_tape_allocation *a, uint64_t before) {
  const char *category = tape->categories.items[a->category];
  return (strcmp(category, "workspace") == 0 || strcmp(category, "optstate") == 0) &&
         (!a->free_event || a->free_event >= before);
}

static int made_read(const struct sl_tape *tape, size_t period, uint64_t before, struct made *out) {
  const struct sl_tape_period *p = &tape->periods[period];
  const uint64_t end = before < p->end_event ? before : p->end_event;
  for (uint32_t i = 0; i < tape->allocation_count; i++) {
    const struct sl_tape_allocation *a = &tape->allocations[i];
    if (a->alloc_event < p->first_event || a->alloc_event >= end || is_once(tape, a, end))
      continue;
    uint32_t *place = SL_LIST_ADD(out->items, out->count);
    if (!place)
      return -ENOMEM;
    /* They mostly come in order. */
    for (; place > out->items && tape->allocations[place[-1]].alloc_event > a->alloc_event; place--)
      *place = place[-1];
    *place = i;
  }
  return 0;
}

static void made_free(struct made *made) {
  free(made->items);
  *made = (struct made){0};
}

static const struct sl_tape_allocation *at(const struct joining *j, const struct made *made, size_t i) {
  return &j->tape->allocations[made->items[i]];
}

/* Whether the other step asked for the same until then, had freed the same of it, and asked next for what was refused.
 */
static bool is_same_so_far(const struct joining *j) {
  struct sl_allocator_config config;
  sl_allocator_config_parse(j->tape->config, &config);
  if (j->there.count <= j->here.count)
    return false;
  const struct sl_tape_allocation *next = at(j, &j->there, j->here.count);
  if (sl_allocator_round(&config, next->requested) != j->goal->refused_bytes)
    return false;
  for (size_t i = 0; i < j->here.count; i++) {
    const struct sl_tape_allocation *a = at(j, &j->here, i), *b = at(j, &j->there, i);
    const bool freed = a->free_event && a->free_event < j->cut.event,
               freed_there = b->free_event && b->free_event < next->alloc_event;
    if (a->requested != b->requested || a->place != b->place || freed != freed_there)
      return false;
  }
  return true;
}

/* What is like it here, of something made in an earlier period than the other step: in its place in the period as far
 * back. */
static int older_find(struct joining *j, uint32_t index, uint32_t *out) {
  const struct sl_tape *tape = j->tape;
  const struct sl_tape_allocation *a = &tape->allocations[index];
  struct made theirs = {0}, ours = {0};
  size_t made_in = 0;
  *out = UINT32_MAX;
  if (!a->alloc_event)
    return 0;
  while (made_in + 1 < tape->period_count && tape->periods[made_in + 1].first_event <= a->alloc_event)
    made_in++;
  if (made_in >= j->rows)
    return 0;
  int r = made_read(tape, made_in, UINT64_MAX, &theirs);
  if (r == 0)
    r = made_read(tape, rows_of(tape, made_in + (j->cut.period - j->rows)), j->cut.event, &ours);
  for (size_t i = 0; i < theirs.count && i < ours.count && r == 0; i++) {
    const struct sl_tape_allocation *b = &tape->allocations[ours.items[i]];
    if (theirs.items[i] == index && b->requested == a->requested && b->place == a->place && !b->free_event)
      *out = ours.items[i];
  }
  made_free(&theirs);
  made_free(&ours);
  return r;
}

/* The optimizer's step that an allocation of the rest is in: this step's own, or a new one like the other's. */
static int optimizer_step_of(struct joining *j, const struct sl_tape_allocation *a, uint64_t shift, int64_t *out) {
  struct sl_tape *tape = j->tape;
  const int64_t step = tape->periods[j->cut.period].step;
  size_t there = 0, here = 0, place = SIZE_MAX;
  *out = 0;
  if (!a->optimizer_step)
    return 0;
  while (there < tape->optimizer_step_count && tape->optimizer_steps[there].phase != a->optimizer_step)
    there++;
  if (there == tape->optimizer_step_count)
    return 0;
  for (size_t i = 0; i <= there; i++)
    place += tape->optimizer_steps[i].step == tape->optimizer_steps[there].step;
  for (size_t i = 0; i < tape->optimizer_step_count; i++) {
    if (tape->optimizer_steps[i].step != step || here++ != place)
      continue;
    *out = tape->optimizer_steps[i].phase;
    return 0;
  }
  const struct sl_tape_optimizer_step like = tape->optimizer_steps[there];
  struct sl_tape_optimizer_step *added = SL_LIST_ADD(tape->optimizer_steps, tape->optimizer_step_count);
  if (!added)
    return -ENOMEM;
  *out = -like.phase; /* no phase of the ledger */
  *added = (struct sl_tape_optimizer_step){*out, step, like.start_ns + shift, like.end_ns + shift};
  return 0;
}

static int request_add(struct joining *j, uint32_t like, uint64_t shift) {
  struct sl_tape_allocation copy = j->tape->allocations[like];
  uint32_t made = 0;
  int64_t optimizer_step = 0;
  int r = optimizer_step_of(j, &copy, shift, &optimizer_step);
  copy.optimizer_step = optimizer_step;
  copy.step = j->tape->periods[j->cut.period].step;
  copy.free_event = copy.complete_event = 0;
  copy.id = 0;
  r = r < 0 ? r : sl_tape_add(j->tape, &copy, copy.requested, &made);
  r = r < 0 ? r : sl_cut_put(j->tape, &j->cut, SL_TAPE_alloc, made);
  j->as[like] = made;
  return r;
}

/* 1: all of it has its place; 0: something is freed that is not known here. */
static int rest_add(struct joining *j, const struct sl_tape_event *events, size_t count) {
  const struct sl_tape_period *rows = &j->tape->periods[j->rows];
  const uint64_t end = rows->end_event, shift = j->cut.ns - events[0].ns;
  for (size_t i = 0; i < count; i++) {
    const struct sl_tape_event *event = &events[i];
    const struct sl_tape_allocation a = j->tape->allocations[event->index];
    uint32_t as = j->as[event->index];
    int r = 0;
    j->cut.ns = event->ns + shift;
    if (is_once(j->tape, &a, end))
      continue;
    if (event->kind == SL_TAPE_alloc) {
      r = request_add(j, event->index, shift);
    } else {
      if (as == UINT32_MAX && event->kind == SL_TAPE_free)
        r = older_find(j, event->index, &as);
      if (r == 0 && as == UINT32_MAX)
        return 0;
      j->as[event->index] = as;
      r = r < 0 ? r : sl_cut_put(j->tape, &j->cut, (enum sl_tape_kind)event->kind, as);
    }
    if (r < 0)
      return r;
  }
  return 1;
}

/* What waits for the optimizer there does here. */
static void gradients_mark(struct joining *j) {
  for (size_t i = 0; i < j->here.count; i++) {
    struct sl_tape_allocation *here = &j->tape->allocations[j->here.items[i]];
    const struct sl_tape_allocation *there = at(j, &j->there, i);
    if (!sl_tape_is(&j->tape->categories, there->category, "gradient"))
      continue;
    here->category = there->category;
    here->parameter = there->parameter;
  }
}

static int join(struct joining *j) {
  struct sl_tape *tape = j->tape;
  struct sl_tape_event *events = NULL;
  size_t count = 0;
  j->known = tape->allocation_count;
  j->as = reallocarray(NULL, j->known + 1, sizeof *j->as);
  if (!j->as)
    return -ENOMEM;
  memset(j->as, 0xff, (j->known + 1) * sizeof *j->as);
  for (size_t i = 0; i < j->here.count; i++)
    j->as[j->there.items[i]] = j->here.items[i];
  gradients_mark(j);
  const uint64_t from = at(j, &j->there, j->here.count)->alloc_event;
  const struct sl_tape_period *rows = &tape->periods[j->rows];
  for (size_t i = rows->first; i < rows->end; i++) {
    if (tape->events[i].number < from || tape->events[i].kind == SL_TAPE_segment)
      continue;
    struct sl_tape_event *added = SL_LIST_ADD(events, count);
    if (!added) {
      free(events);
      return -ENOMEM;
    }
    *added = tape->events[i];
  }
  sl_cut_apply(tape, &j->cut);
  tape->rest = (struct sl_tape_rest){.is_one = true,
                                     .step = tape->periods[j->cut.period].step,
                                     .like_step = rows->step,
                                     .from_ns = events[0].ns,
                                     .shift_ns = j->cut.ns - events[0].ns};
  int r = rest_add(j, events, count);
  free(events);
  sl_tape_sort(tape);
  return r;
}

static int try_as(struct sl_tape *tape, const struct sl_goal *goal, const struct sl_cut *cut, size_t period,
                  bool *same) {
  struct joining j = {.tape = tape, .goal = goal, .cut = *cut, .period = period, .rows = rows_of(tape, period)};
  struct sl_tape whole = {0};
  int r = made_read(tape, cut->period, cut->event, &j.here);
  if (r == 0)
    r = made_read(tape, j.rows, UINT64_MAX, &j.there);
  if (r == 0 && is_same_so_far(&j)) {
    *same = true;
    r = sl_tape_copy(tape, &whole); /* which it is again where something is not known */
    if (r == 0 && (r = join(&j)) == 0) {
      sl_tape_free(tape);
      *tape = whole;
    } else {
      sl_tape_free(&whole);
    }
  }
  made_free(&j.here);
  made_free(&j.there);
  free(j.as);
  return r;
}

int sl_continue_as_step(struct sl_tape *tape, const struct sl_goal *goal, const struct sl_cut *cut,
                        struct sl_continuation *out) {
  bool same = false;
  int r = 0;
  for (size_t p = cut->period; p-- > 0 && r == 0;) {
    if (strcmp(tape->periods[p].kind, "step") != 0)
      continue;
    const int64_t step = tape->periods[p].step;
    r = try_as(tape, goal, cut, p, &same);
    if (r > 0) {
      out->rest = SL_REST_step;
      out->as_step = step;
    }
  }
  if (r == 0)
    snprintf(out->why, sizeof out->why, "%s",
             same ? "an earlier step asked for the same, and then freed what has nothing like it here"
                  : "no earlier step asked for the same");
  return r;
}
