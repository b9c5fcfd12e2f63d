/* Keeps activations that were recomputed. */
#include "change_recompute_none.h"

#include "storage/grow.h"
#include "storage/predict/tape/tape_uses.h"
#include "storage/rules/categories.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = -SL_TAPE_MIDDLE / 2 };

struct call {
  int64_t step, forward_tid, tid;
  char module[160];
  uint64_t forward_ns, forward_end_ns, start_ns, end_ns, backward_end_ns;
  int64_t before_ns, after_ns; /* of the forwards beside it; -1: not known */
  bool is_wrapped;
};

struct list {
  uint32_t *items;
  size_t count, room;
};

struct moment { /* where an event is put */
  uint64_t number;
  bool is_before; /* what happens then; else it follows */
};

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  bool at_latest;
  struct call *calls;
  size_t call_count;
  struct sl_tape_ends *ends;
  uint64_t *numbers;        /* of each event, as they were before any was moved */
  struct sl_tape_use *uses; /* of each allocation */
  uint32_t recorded, nothing;
  struct list made, again; /* by a call's forward, and by its recomputation */
  uint64_t forward_end;    /* the number of the last event of that forward */
  uint64_t step_end;       /* of the first one after its step */
  int32_t before, after;   /* places of what is put last */
  bool is_cut;             /* some recomputation stopped early, as use_reentrant=False does */
  bool is_open;            /* some may be of more than the module */
};

/* ---- calls ---- */

static int call_add(struct change *c, struct sl_statement *row) {
  const char *name = sl_column_text(row, 1);
  struct call *last = c->call_count ? &c->calls[c->call_count - 1] : NULL;
  const int64_t step = sl_column_int(row, 0);
  if (last && last->step == step && (uint64_t)sl_column_int(row, 5) < last->end_ns)
    return 0; /* within one that is recomputed as a whole */
  if (sl_column_int(row, 12))
    return sl_error_set(c->error, -ENOTSUP,
                        "in step %" PRId64 " %s ran forward %" PRId64
                        " times before it is recomputed: which one that is can't be told",
                        step, name, sl_column_int(row, 12));
  if (sl_column_is_null(row, 2) || sl_column_is_null(row, 3))
    return sl_error_set(c->error, -ENOTSUP,
                        "in step %" PRId64 " %s is recomputed, and no forward of it was recorded: it may be a part of "
                        "what is recomputed together",
                        step, name);
  if (last && last->step == step && (uint64_t)sl_column_int(row, 2) > last->forward_end_ns &&
      (uint64_t)sl_column_int(row, 2) < last->start_ns)
    return sl_error_set(
        c->error, -ENOTSUP,
        "in step %" PRId64
        " a function is recomputed that runs %s and then %s: where else it begins and ends is not recorded",
        step, last->module, name);
  struct call *call = SL_LIST_ADD(c->calls, c->call_count);
  if (!call)
    return -ENOMEM;
  *call = (struct call){.step = step,
                        .forward_ns = (uint64_t)sl_column_int(row, 2),
                        .forward_end_ns = (uint64_t)sl_column_int(row, 3),
                        .forward_tid = sl_column_int(row, 4),
                        .start_ns = (uint64_t)sl_column_int(row, 5),
                        .end_ns = (uint64_t)sl_column_int(row, 6),
                        .tid = sl_column_int(row, 7),
                        .before_ns = sl_column_int(row, 8),
                        .after_ns = sl_column_int(row, 9),
                        .backward_end_ns = (uint64_t)sl_column_int(row, 10),
                        .is_wrapped = sl_column_int(row, 11) != 0};
  strncpy(call->module, name, sizeof call->module - 1);
  return 0;
}

static int record_read(struct sl_db *db, struct change *c) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(db, sl_tape_recomputes_sql, SL_WITH(SL_NUMBER(":rank", c->tape->rank)), &row, c->error);
  while (r >= 0 && (r = sl_statement_step(row, c->error)) > 0)
    if ((r = call_add(c, row)) == -ENOMEM)
      r = sl_no_memory(c->error);
  row = sl_statement_close(row);
  if (r == 0 && !c->call_count)
    r = sl_error_set(c->error, -ENOTSUP, "no module was recorded to be recomputed in a step");
  return r < 0 ? r : sl_tape_uses(db, c->tape, &c->uses, c->error);
}

/* ---- what a call makes, and once more ---- */

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static bool is_phase(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->phases, allocation(c, index)->phase, name);
}

static bool is_workspace(const struct change *c, uint32_t index) {
  return sl_tape_is(&c->tape->categories, allocation(c, index)->category, sl_categories[SL_CATEGORY_workspace].name);
}

static const struct sl_tape_event *event_at(const struct change *c, size_t event) {
  return &c->tape->events[event];
}

/* What a thread makes within a stretch of time, in order. */
static int made_read(const struct change *c, uint64_t start_ns, uint64_t end_ns, int64_t tid, struct list *out) {
  out->count = 0;
  for (size_t e = sl_tape_event_from(c->tape, c->tape->event_count, start_ns);
       e < c->tape->event_count && event_at(c, e)->ns <= end_ns; e++) {
    const uint32_t index = event_at(c, e)->index;
    if (event_at(c, e)->kind != SL_TAPE_alloc || allocation(c, index)->dropped || allocation(c, index)->tid != tid)
      continue;
    uint32_t *added = SL_LIST_ADD_ROOM(out->items, out->count, &out->room);
    if (!added)
      return -ENOMEM;
    *added = index;
  }
  return 0;
}

/* Keeps what is neither a workspace nor what FSDP makes around the forward. */
static void own_keep(const struct change *c, struct list *list) {
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++)
    if (!is_workspace(c, list->items[i]) &&
        (is_phase(c, list->items[i], "forward") || is_phase(c, list->items[i], "user")))
      list->items[kept++] = list->items[i];
  list->count = kept;
}

/* Of a recomputation: what else was made within it is not understood. */
static int again_keep(struct change *c, const struct call *call) {
  size_t kept = 0;
  for (size_t i = 0; i < c->again.count; i++) {
    const uint32_t index = c->again.items[i];
    if (is_workspace(c, index)) {
      allocation(c, index)->dropped = !c->at_latest;
      continue;
    }
    if (!is_phase(c, index, "recompute") && !is_phase(c, index, "user"))
      return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " what is recomputed of %s includes '%s'", call->step,
                          call->module, c->tape->phases.items[allocation(c, index)->phase]);
    c->again.items[kept++] = index;
  }
  c->again.count = kept;
  return 0;
}

static uint64_t step_end(const struct change *c, int64_t step) {
  for (size_t i = 0; i < c->tape->period_count; i++)
    if (c->tape->periods[i].step == step && strcmp(c->tape->periods[i].kind, "step") == 0)
      return c->tape->periods[i].end_event;
  return 0;
}

/* Made once, as a workspace that is in no category: not freed by the step's end. */
static bool is_lasting(const struct change *c, uint32_t index) {
  const size_t freed = c->ends[index].free;
  return freed == SIZE_MAX || event_at(c, freed)->number >= c->step_end;
}

static bool is_twin(const struct change *c, uint32_t made, uint32_t again) {
  return allocation(c, again)->requested == allocation(c, made)->requested &&
         allocation(c, again)->place == allocation(c, made)->place &&
         is_lasting(c, again) <= (is_lasting(c, made) || allocation(c, made)->free_event > c->forward_end);
}

/*
 * Leaves both lists with twins at the same places, and what forward made beyond the last one. What lasts and has no
 * twin is as a workspace: either thread may be the first that needs it.
 */
static int twins_find(struct change *c, const struct call *call) {
  size_t made = 0, again = 0, count = 0, rest;
  while (again < c->again.count && made < c->made.count) {
    const uint32_t one = c->made.items[made], other = c->again.items[again];
    if (is_twin(c, one, other)) {
      c->made.items[count] = one;
      c->again.items[count++] = other;
      made++;
      again++;
    } else if (is_lasting(c, other)) {
      allocation(c, other)->dropped = !c->at_latest;
      again++;
    } else if (is_lasting(c, one)) {
      made++;
    } else {
      break;
    }
  }
  if (again < c->again.count)
    return sl_error_set(c->error, -ENOTSUP,
                        "in step %" PRId64 " what is recomputed of %s is not what its forward made: it differs from "
                        "allocation %zu on",
                        call->step, call->module, again + 1);
  for (rest = count; made < c->made.count;)
    c->made.items[rest++] = c->made.items[made++];
  c->made.count = rest;
  c->again.count = count;
  return 0;
}

static bool is_as_large(const struct change *c, size_t one, size_t other) {
  return one < c->tape->event_count && other < c->tape->event_count &&
         allocation(c, event_at(c, one)->index)->requested == allocation(c, event_at(c, other)->index)->requested;
}

/* A thread's first allocation after an instant, and its last one before: of events; the count: none. */
static size_t alloc_after(const struct change *c, uint64_t ns, int64_t tid) {
  size_t e = sl_tape_event_from(c->tape, c->tape->event_count, ns + 1);
  while (e < c->tape->event_count &&
         (event_at(c, e)->kind != SL_TAPE_alloc || allocation(c, event_at(c, e)->index)->tid != tid))
    e++;
  return e;
}

static size_t alloc_before(const struct change *c, uint64_t ns, int64_t tid) {
  size_t e = sl_tape_event_from(c->tape, c->tape->event_count, ns);
  while (e-- > 0)
    if (event_at(c, e)->kind == SL_TAPE_alloc && allocation(c, event_at(c, e)->index)->tid == tid)
      return e;
  return c->tape->event_count;
}

/*
 * Whether more than the module may be checkpointed: its caller makes something beside it, and something as large was
 * made beside the recomputation.
 */
static bool is_open(const struct change *c, const struct call *call) {
  if (call->is_wrapped)
    return false;
  const size_t before = alloc_before(c, call->forward_ns, call->forward_tid);
  if (before < c->tape->event_count && (int64_t)event_at(c, before)->ns > call->before_ns &&
      is_as_large(c, before, alloc_before(c, call->start_ns, call->tid)))
    return true;
  if (c->again.count < c->made.count)
    return false; /* it ended within */
  const size_t after = alloc_after(c, call->forward_end_ns, call->forward_tid);
  return after < c->tape->event_count && (call->after_ns < 0 || (int64_t)event_at(c, after)->ns < call->after_ns) &&
         is_as_large(c, after, alloc_after(c, call->end_ns, call->tid));
}

/* ---- ends ---- */

/* Before what an operator after this one had saved ends: something is made between. Else when backward is over. */
static struct moment operator_over(const struct change *c, const struct call *call, size_t event) {
  bool is_later = false;
  for (size_t e = event + 1; e < c->tape->event_count && event_at(c, e)->ns <= call->backward_end_ns; e++) {
    const uint32_t index = event_at(c, e)->index;
    if (event_at(c, e)->kind == SL_TAPE_alloc)
      is_later |= allocation(c, index)->tid == call->tid;
    else if (event_at(c, e)->kind == SL_TAPE_free && is_later &&
             (is_phase(c, index, "forward") || is_phase(c, index, "recompute") || is_phase(c, index, "user")))
      return (struct moment){c->numbers[e], true};
  }
  return (struct moment){sl_tape_event_until(c->tape, c->tape->event_count, call->backward_end_ns), false};
}

static void end_put(struct change *c, uint32_t index, struct moment moment) {
  const struct sl_tape_ends ends = c->ends[index];
  struct sl_tape_allocation *a = allocation(c, index);
  struct sl_tape_event *events = c->tape->events;
  int32_t *place = moment.is_before ? &c->before : &c->after;
  const bool is_deferred = a->complete_event != a->free_event + 1;
  events[ends.free].number = a->free_event = moment.number;
  events[ends.free].place = (uint32_t)(SL_TAPE_MIDDLE + ++*place);
  if (ends.complete == SIZE_MAX || (is_deferred && events[ends.complete].number > moment.number))
    return;
  events[ends.complete].number = moment.number;
  a->complete_event = moment.number + 1; /* no other stream uses it */
  events[ends.complete].place = (uint32_t)(SL_TAPE_MIDDLE + ++*place);
}

/* What ended the second twin ends the first one. */
static void end_take(struct change *c, uint32_t made, uint32_t again) {
  struct sl_tape_event *events = c->tape->events;
  const struct sl_tape_ends from = c->ends[again], own = c->ends[made];
  struct sl_tape_allocation *a = allocation(c, made);
  if (own.free != SIZE_MAX)
    events[own.free].index = c->nothing;
  if (own.complete != SIZE_MAX)
    events[own.complete].index = c->nothing;
  if (from.free != SIZE_MAX)
    events[from.free].index = made;
  if (from.complete != SIZE_MAX)
    events[from.complete].index = made;
  c->ends[made].free = from.free;
  c->ends[made].complete = from.complete;
  c->ends[again].free = c->ends[again].complete = SIZE_MAX;
  a->free_event = allocation(c, again)->free_event;
  a->complete_event = allocation(c, again)->complete_event;
  a->category = allocation(c, again)->category;
}

static uint64_t free_number(const struct change *c, uint32_t index) {
  return c->ends[index].free == SIZE_MAX ? UINT64_MAX : event_at(c, c->ends[index].free)->number;
}

/*
 * What was there before the call and ends in its backward may be held for the recomputation alone: then it ends as the
 * call begins, or after the last operator of this backward that used it.
 */
static void inputs_end(struct change *c, const struct call *call, size_t region_end) {
  const uint64_t forward = sl_tape_event_until(c->tape, c->tape->event_count, call->forward_ns);
  const size_t begin = sl_tape_event_from(c->tape, c->tape->event_count, call->end_ns);
  for (size_t e = begin; e < region_end; e++) {
    const uint32_t index = event_at(c, e)->index;
    if (event_at(c, e)->kind != SL_TAPE_free || index >= c->recorded || index == c->nothing ||
        c->ends[index].free != e || c->ends[index].complete == SIZE_MAX)
      continue;
    const struct sl_tape_allocation *a = allocation(c, index);
    const size_t made = c->ends[index].alloc;
    if (a->dropped || a->step != call->step || made == SIZE_MAX || event_at(c, made)->ns >= call->forward_ns ||
        !(is_phase(c, index, "forward") || is_phase(c, index, "step") || is_phase(c, index, "user")))
      continue;
    uint64_t until = forward;
    if (c->uses[index].last_ns > call->end_ns)
      until = sl_tape_event_until(c->tape, c->tape->event_count, c->uses[index].last_ns);
    if (until < a->free_event && until >= a->alloc_event)
      end_put(c, index, (struct moment){until, false});
  }
}

static int call_change(struct change *c, const struct call *call) {
  int r = made_read(c, call->forward_ns, call->forward_end_ns, call->forward_tid, &c->made);
  r = r < 0 ? r : made_read(c, call->start_ns, call->end_ns, call->tid, &c->again);
  if (r < 0)
    return sl_no_memory(c->error);
  own_keep(c, &c->made);
  c->forward_end = sl_tape_event_until(c->tape, c->tape->event_count, call->forward_end_ns);
  if (call == c->calls || call->step != call[-1].step)
    c->step_end = step_end(c, call->step);
  r = again_keep(c, call);
  r = r < 0 ? r : twins_find(c, call);
  if (r < 0)
    return r;
  c->is_cut |= c->again.count < c->made.count;
  c->is_open |= is_open(c, call);
  const size_t first = alloc_after(c, call->end_ns, call->tid);
  const uint64_t first_number = first < c->tape->event_count ? event_at(c, first)->number : UINT64_MAX;
  size_t last_saved = 0, region_end = 0;
  for (size_t i = 0; i < c->again.count; i++) {
    const uint32_t made = c->made.items[i], again = c->again.items[i];
    const size_t event = c->ends[again].free;
    if (free_number(c, again) >= first_number) {
      const struct moment over = event == SIZE_MAX ? (struct moment){UINT64_MAX, false}
                                 : c->at_latest    ? operator_over(c, call, event)
                                                   : (struct moment){event_at(c, event)->number, false};
      if (free_number(c, made) < over.number) {
        end_take(c, made, again);
        if (event != SIZE_MAX && c->at_latest)
          end_put(c, made, over);
      }
      if (event != SIZE_MAX && event > last_saved)
        last_saved = event;
    }
    allocation(c, again)->dropped = true;
  }
  if (c->at_latest || !last_saved)
    return 0;
  const struct moment over = operator_over(c, call, last_saved);
  for (region_end = last_saved;
       region_end < c->tape->event_count &&
       (c->numbers[region_end] < over.number || (c->numbers[region_end] == over.number && !over.is_before));)
    region_end++;
  inputs_end(c, call, region_end);
  return 0;
}

static int room_make(struct change *c) {
  if (!c->recorded)
    return sl_error_set(c->error, -ENOTSUP, "no allocation was recorded");
  int r = sl_tape_add(c->tape, allocation(c, 0), 0, &c->nothing);
  if (r < 0)
    return sl_no_memory(c->error);
  allocation(c, c->nothing)->dropped = true;
  c->ends = sl_tape_ends(c->tape);
  c->numbers = reallocarray(NULL, c->tape->event_count + 1, sizeof *c->numbers);
  for (size_t e = 0; e < c->tape->event_count && c->numbers; e++)
    c->numbers[e] = event_at(c, e)->number;
  return c->ends && c->numbers ? 0 : sl_no_memory(c->error);
}

int sl_change_recompute_none(struct sl_db *db, struct sl_tape *tape, bool at_latest, struct sl_error *error) {
  struct change c = {.tape = tape,
                     .error = error,
                     .at_latest = at_latest,
                     .recorded = (uint32_t)tape->recorded_count,
                     .before = BEFORE};
  int r = record_read(db, &c);
  r = r < 0 ? r : room_make(&c);
  for (size_t i = 0; i < c.call_count && r == 0; i++)
    r = call_change(&c, &c.calls[i]);
  if (r == 0 && (c.is_open || !c.is_cut))
    sl_tape_doubt(tape, "%s",
                  c.is_open ? "what is recomputed is taken to be the modules and nothing around them"
                            : "it is taken to be recomputed with use_reentrant=False");
  for (size_t i = 0; i < tape->event_count && r == 0; i++)
    if (tape->events[i].place != SL_TAPE_MIDDLE)
      tape->events[i].ns = 0; /* that of where it is now */
  if (r == 0)
    sl_tape_sort(tape);
  free(c.calls);
  free(c.ends);
  free(c.numbers);
  free(c.uses);
  free(c.made.items);
  free(c.again.items);
  return r;
}
