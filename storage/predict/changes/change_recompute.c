/* Recomputes activations that were kept. */
#include "change_recompute.h"

#include "storage/grow.h"
#include "storage/predict/tape/tape_uses.h"
#include "storage/predict/tape/thread_workspaces.h"
#include "storage/rules/categories.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = -SL_TAPE_MIDDLE / 2 };

struct call { /* of a module that is to be recomputed */
  int64_t step, tid;
  char module[160];
  uint64_t start_ns, end_ns, backward_ns, backward_end_ns;
};

struct made { /* in a call's forward, in order */
  uint32_t index;
  bool is_saved, is_output;
  bool is_kept;  /* beyond the call's backward, by somebody else */
  uint32_t copy; /* made again: of sl_tape.allocations */
  uint64_t free_event;
};

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  const char *modules;
  bool at_latest;
  struct call *calls;
  size_t call_count;
  bool is_recomputed; /* some of them are already */
  struct sl_tape_ends *ends;
  struct sl_tape_use *uses; /* of each recorded allocation */
  size_t recorded;          /* events and allocations that were there: those of changes follow */
  uint32_t recorded_allocations, nothing;
  struct made *made;
  size_t made_count, made_room, saved_count, last_saved;
  uint64_t anchor; /* the number of the first allocation in the call's backward */
  int32_t offset;  /* of what is put there last */
  int64_t backward_tid;
};

/* ---- which calls ---- */

/* "blocks.0" of all: the first part that is a number is the last one. */
static bool is_entry(const char *name) {
  for (const char *part = name; part; part = strchr(part, '.') ? strchr(part, '.') + 1 : NULL) {
    const size_t length = strcspn(part, "."), digits = strspn(part, "0123456789");
    if (length == digits && length)
      return !part[length] && part != name;
  }
  return false;
}

static bool is_chosen(const char *modules, const char *name) {
  if (strcmp(modules, "all") == 0)
    return is_entry(name);
  for (const char *at = modules; *at; at += strcspn(at, ","), at += *at == ',') {
    char pattern[160];
    const size_t length = strcspn(at, ",");
    if (length >= sizeof pattern)
      continue;
    memcpy(pattern, at, length);
    pattern[length] = '\0';
    if (fnmatch(pattern, name, 0) == 0)
      return true;
  }
  return false;
}

static int call_add(struct change *c, struct sl_statement *row) {
  const char *name = sl_column_text(row, 1);
  if (!is_chosen(c->modules, name))
    return 0;
  if (sl_column_int(row, 8))
    return sl_error_set(c->error, -ENOTSUP,
                        "in step %" PRId64 " %s ran forward %" PRId64
                        " times before a backward: which one's that is can't be told",
                        sl_column_int(row, 0), name, sl_column_int(row, 8));
  for (int i = 2; i <= 6; i++)
    if (sl_column_is_null(row, i))
      return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " it is not known when %s ran", sl_column_int(row, 0),
                          name);
  struct call *last = c->call_count ? &c->calls[c->call_count - 1] : NULL;
  if (sl_column_int(row, 7)) {
    c->is_recomputed = true;
    return 0;
  }
  if (last && last->step == sl_column_int(row, 0) && (uint64_t)sl_column_int(row, 2) < last->end_ns)
    return 0; /* within one that is recomputed as a whole */
  struct call *call = SL_LIST_ADD(c->calls, c->call_count);
  if (!call)
    return -ENOMEM;
  *call = (struct call){.step = sl_column_int(row, 0),
                        .tid = sl_column_int(row, 4),
                        .start_ns = (uint64_t)sl_column_int(row, 2),
                        .end_ns = (uint64_t)sl_column_int(row, 3),
                        .backward_ns = (uint64_t)sl_column_int(row, 5),
                        .backward_end_ns = (uint64_t)sl_column_int(row, 6)};
  strncpy(call->module, name, sizeof call->module - 1);
  return 0;
}

static int calls_read(struct sl_db *db, struct change *c) {
  struct sl_statement *row = NULL;
  const struct sl_tape_rest *rest = &c->tape->rest;
  int r = sl_db_ask(db, sl_tape_calls_sql,
                    SL_WITH(SL_NUMBER(":rank", c->tape->rank), SL_NUMBER(":step", rest->is_one ? rest->step : -1),
                            SL_NUMBER(":like", rest->is_one ? rest->like_step : -1),
                            SL_NUMBER(":from", (int64_t)rest->from_ns), SL_NUMBER(":shift", (int64_t)rest->shift_ns)),
                    &row, c->error);
  while (r >= 0 && (r = sl_statement_step(row, c->error)) > 0)
    if ((r = call_add(c, row)) == -ENOMEM)
      r = sl_no_memory(c->error);
  row = sl_statement_close(row);
  if (r == 0 && !c->call_count)
    r = sl_error_set(c->error, -ENOTSUP,
                     c->is_recomputed ? "the modules that '%s' names are recomputed already"
                                      : "no module that '%s' names was recorded with its forward and backward",
                     c->modules);
  return r;
}

/* ---- what a call makes ---- */

static int refuse(const struct change *c, const struct call *call, const char *what) {
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " %s %s", call->step, call->module, what);
}

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static bool is_phase(const struct change *c, const struct sl_tape_allocation *a, const char *name) {
  return sl_tape_is(&c->tape->phases, a->phase, name);
}

static bool is_workspace(const struct change *c, const struct sl_tape_allocation *a) {
  return sl_tape_is(&c->tape->categories, a->category, sl_categories[SL_CATEGORY_workspace].name);
}

static uint64_t ns_of(const struct change *c, size_t event) {
  return event == SIZE_MAX ? UINT64_MAX : c->tape->events[event].ns;
}

static int made_add(struct change *c, const struct call *call, uint32_t index) {
  struct made *made = SL_LIST_ADD_ROOM(c->made, c->made_count, &c->made_room);
  if (!made)
    return -ENOMEM;
  const uint64_t free_ns = ns_of(c, c->ends[index].free);
  *made = (struct made){.index = index,
                        .is_output = free_ns > call->end_ns && free_ns < call->backward_ns,
                        .is_saved = free_ns >= call->backward_ns && free_ns <= call->backward_end_ns,
                        .is_kept = free_ns > call->backward_end_ns,
                        .free_event = allocation(c, index)->free_event};
  if (made->is_saved) {
    c->saved_count++;
    c->last_saved = c->made_count - 1;
  }
  return 0;
}

/* What forward made, and where backward begins. Allocations come by time. */
static int call_read(struct change *c, const struct call *call) {
  bool has_output = false;
  c->made_count = c->saved_count = 0;
  c->anchor = 0;
  c->backward_tid = 0;
  for (size_t e = sl_tape_event_from(c->tape, c->recorded, call->start_ns); e < c->recorded && !c->anchor; e++) {
    const uint32_t i = c->tape->events[e].index;
    if (c->tape->events[e].kind != SL_TAPE_alloc || i >= c->recorded_allocations)
      continue;
    const struct sl_tape_allocation *a = allocation(c, i);
    const uint64_t ns = c->tape->events[e].ns;
    if (a->dropped || is_workspace(c, a))
      continue;
    if (ns <= call->end_ns && a->tid == call->tid && is_phase(c, a, "forward")) {
      int r = made_add(c, call, i);
      if (r < 0)
        return r;
      has_output |= c->made[c->made_count - 1].is_output;
    } else if (ns >= call->backward_ns && is_phase(c, a, "backward")) {
      c->anchor = a->alloc_event;
      c->backward_tid = a->tid;
    }
  }
  if (!c->saved_count)
    return 0;
  if (!has_output)
    return refuse(c, call, "makes no output that could be told from what it saves");
  return c->anchor ? 0 : refuse(c, call, "has no backward that allocates");
}

/* ---- putting ---- */

static int put_new(struct change *c, const struct sl_tape_allocation *like, uint64_t number, int32_t *offset,
                   uint32_t *out) {
  struct sl_tape_allocation made = *like;
  made.tid = c->backward_tid;
  made.free_event = 1; /* has an end, by events that are put */
  int r = sl_tape_add(c->tape, &made, like->requested, out);
  return r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_alloc, *out, number, ++*offset);
}

/* The last event that is not after the last use of one, of its step's forward or of all: 0: that is not known. */
static uint64_t use_number(const struct change *c, uint32_t index, bool in_forward) {
  const struct sl_tape_use none = {0}, *use = index < c->tape->recorded_count ? &c->uses[index] : &none;
  const uint64_t ns = in_forward ? use->forward_ns : use->last_ns;
  return ns ? sl_tape_event_until(c->tape, c->recorded, ns) : 0;
}

/* In forward: what was saved ends there; what ended it in backward now ends what is made again. */
static int forward_end(struct change *c, const struct call *call) {
  const uint64_t last = sl_tape_event_until(c->tape, c->recorded, call->end_ns);
  int32_t offset = 1;
  int r = 0;
  for (size_t i = 0; i < c->made_count && r == 0; i++) {
    struct made *made = &c->made[i];
    if (!made->is_saved)
      continue;
    const uint64_t made_at = allocation(c, made->index)->alloc_event, used_at = use_number(c, made->index, true);
    const uint64_t first = used_at > made_at && used_at < last ? used_at : made_at;
    r = sl_tape_put_end(c->tape, made->index, c->at_latest ? last : first, &offset);
    allocation(c, made->index)->complete_event = allocation(c, made->index)->free_event + 1;
  }
  return r;
}

static int compare_frees(const void *left, const void *right) {
  const struct made *a = *(const struct made *const *)left, *b = *(const struct made *const *)right;
  return (a->free_event > b->free_event) - (a->free_event < b->free_event);
}

/* Forward once more, from its first to its last: temporaries only, or with what is saved. */
static int forward_again(struct change *c, const struct call *call, uint64_t number, int32_t *offset, bool saved_too) {
  const size_t end = c->at_latest ? c->made_count : c->last_saved + 1;
  const uint64_t last = sl_tape_event_until(c->tape, c->recorded, call->end_ns);
  int r = 0;
  for (size_t i = 0; i < end && r == 0; i++) {
    struct made *made = &c->made[i];
    made->copy = UINT32_MAX;
    /* Temporaries that ended before this one is made. */
    const uint64_t now = allocation(c, made->index)->alloc_event;
    for (size_t j = 0; j < i && r == 0; j++)
      if (c->made[j].copy != UINT32_MAX && !c->made[j].is_saved && c->made[j].free_event < now &&
          c->made[j].free_event <= last) {
        r = sl_tape_put_end(c->tape, c->made[j].copy, number, offset);
        c->made[j].copy = UINT32_MAX;
      }
    if (r < 0 || made->is_output || (made->is_kept && !c->at_latest) || (made->is_saved && !saved_too))
      continue;
    const struct sl_tape_allocation like = *allocation(c, made->index);
    r = put_new(c, &like, number, offset, &made->copy);
    if (made->is_kept) {
      allocation(c, made->copy)->free_event = 0; /* once more, and kept as well */
      made->copy = UINT32_MAX;
    }
  }
  for (size_t i = 0; i < end && r == 0; i++)
    if (c->made[i].copy != UINT32_MAX && !c->made[i].is_saved)
      r = sl_tape_put_end(c->tape, c->made[i].copy, number, offset);
  return r;
}

/* When surely all is made again: one of it was used, or is freed. */
static uint64_t again_by(const struct change *c, const struct call *call, struct made **order) {
  uint64_t number = order[0]->free_event + 1; /* frees come with a number more for their completion */
  for (size_t i = 0; i < c->saved_count; i++) {
    const uint64_t used_at = use_number(c, order[i]->index, false);
    if (used_at > c->anchor && used_at < number && c->uses[order[i]->index].last_ns > call->backward_ns)
      number = used_at;
  }
  return number;
}

/*
 * At the earliest: what is made again ends at once, and is there again from when surely all of it is, until the last
 * operator that is known to use it, or the one before has let go of its own.
 */
static int saved_early(struct change *c, const struct call *call, struct made **order) {
  const uint64_t by = again_by(c, call, order);
  int r = 0;
  for (size_t i = 0; i < c->saved_count && r == 0; i++)
    r = sl_tape_put_end(c->tape, order[i]->copy, c->anchor, &c->offset);
  for (size_t i = 0; i < c->saved_count && r == 0; i++) {
    const uint64_t used_at = use_number(c, order[i]->index, false), before = i ? order[i - 1]->free_event + 1 : 0;
    const uint64_t until = used_at > before ? used_at : before;
    int32_t after = (int32_t)(4 * i), end = (int32_t)(4 * (c->saved_count + i));
    uint32_t copy = 0;
    const struct sl_tape_allocation like = *allocation(c, order[i]->index);
    if (until < by || until == 0)
      continue;
    r = put_new(c, &like, by, &after, &copy);
    if (r == 0)
      r = sl_tape_put_end(c->tape, copy, until, &end);
  }
  for (size_t i = 0; i < c->saved_count && r == 0; i++) { /* whose ends were put anew */
    const struct sl_tape_ends ends = c->ends[order[i]->index];
    c->tape->events[ends.free].index = c->nothing;
    if (ends.complete != SIZE_MAX)
      c->tape->events[ends.complete].index = c->nothing;
  }
  return r;
}

/* At the latest: as recorded; and before the first of them ends, all that came before it might have come first. */
static int saved_late(struct change *c, const struct call *call, struct made **order) {
  for (size_t i = 0; i < c->saved_count; i++) {
    const struct sl_tape_ends ends = c->ends[order[i]->index];
    c->tape->events[ends.free].index = order[i]->copy;
    if (ends.complete != SIZE_MAX)
      c->tape->events[ends.complete].index = order[i]->copy;
    struct sl_tape_allocation *copy = allocation(c, order[i]->copy);
    copy->free_event = order[i]->free_event;
    copy->complete_event = ends.complete == SIZE_MAX ? 0 : c->tape->events[ends.complete].number;
  }
  int32_t offset = BEFORE;
  return forward_again(c, call, order[0]->free_event, &offset, false);
}

static int backward_begin(struct change *c, const struct call *call) {
  struct made **order = reallocarray(NULL, c->saved_count, sizeof(struct made *));
  if (!order)
    return -ENOMEM;
  int r = forward_again(c, call, c->anchor, &c->offset, true);
  size_t count = 0;
  for (size_t i = 0; i < c->made_count; i++)
    if (c->made[i].is_saved)
      order[count++] = &c->made[i];
  qsort(order, count, sizeof(struct made *), compare_frees);
  if (r == 0)
    r = c->at_latest ? saved_late(c, call, order) : saved_early(c, call, order);
  free(order);
  return r;
}

/* The module's input may live as long as its backward: what was there before, and ends within. */
static void input_keep(struct change *c, const struct call *call) {
  const uint64_t last = sl_tape_event_until(c->tape, c->recorded, call->backward_end_ns);
  int32_t offset = 1;
  for (uint32_t i = 0; i < c->recorded_allocations; i++) {
    const struct sl_tape_allocation *a = allocation(c, i);
    const struct sl_tape_ends ends = c->ends[i];
    if (a->step != call->step || a->dropped || ends.free == SIZE_MAX || ends.complete == SIZE_MAX ||
        !is_phase(c, a, "forward") || ns_of(c, ends.alloc) >= call->start_ns ||
        ns_of(c, ends.free) < call->backward_ns || ns_of(c, ends.free) > call->backward_end_ns ||
        c->tape->events[ends.free].index != i)
      continue;
    struct sl_tape_event *events = c->tape->events;
    events[ends.free].number = events[ends.complete].number = last;
    events[ends.free].place = (uint32_t)(SL_TAPE_MIDDLE + ++offset);
    events[ends.complete].place = (uint32_t)(SL_TAPE_MIDDLE + ++offset);
  }
}

/* ---- workspaces ---- */

/* Surely, where a recomputed call made one. */
static bool is_wanted(const void *context, uint32_t index) {
  const struct change *c = context;
  const uint64_t ns = ns_of(c, c->ends[index].alloc);
  for (size_t i = 0; i < c->call_count; i++)
    if (ns >= c->calls[i].start_ns && ns <= c->calls[i].end_ns)
      return true;
  return c->at_latest;
}

/* Those that forward made on its thread, which the autograd thread lacks. */
static int workspaces_add(struct change *c, const struct call *call) {
  const struct sl_thread_workspaces which = {.recorded = c->recorded_allocations,
                                             .from_tid = call->tid,
                                             .to_tid = c->backward_tid,
                                             .is_wanted = is_wanted,
                                             .context = c,
                                             .number = c->anchor};
  return sl_thread_workspaces_add(c->tape, &which, &c->offset);
}

static int call_change(struct change *c, const struct call *call) {
  int r = call_read(c, call);
  if (r < 0 || !c->saved_count)
    return r;
  c->offset = BEFORE;
  r = workspaces_add(c, call);
  r = r < 0 ? r : forward_end(c, call);
  r = r < 0 ? r : backward_begin(c, call);
  if (r == 0 && c->at_latest)
    input_keep(c, call);
  return r;
}

/* Ends that stand for nothing any more are those of an allocation that is left out. */
static int nothing_add(struct change *c) {
  if (!c->recorded_allocations)
    return sl_error_set(c->error, -ENOTSUP, "no allocation was recorded");
  int r = sl_tape_add(c->tape, allocation(c, 0), 0, &c->nothing);
  if (r == 0)
    allocation(c, c->nothing)->dropped = true;
  return r;
}

int sl_change_recompute(struct sl_db *db, struct sl_tape *tape, const char *modules, bool at_latest,
                        struct sl_error *error) {
  struct change c = {.tape = tape, .error = error, .modules = modules, .at_latest = at_latest};
  c.recorded = tape->event_count;
  c.recorded_allocations = (uint32_t)(tape->rest.is_one ? tape->allocation_count : tape->recorded_count);
  int r = calls_read(db, &c);
  if (r == 0)
    r = sl_tape_uses(db, tape, &c.uses, error);
  if (r == 0)
    r = (c.ends = sl_tape_ends(tape)) ? nothing_add(&c) : -ENOMEM;
  /* Step by step in the order of their backwards: the first one finds workspaces missing. */
  for (size_t first = 0, end; first < c.call_count && r == 0; first = end) {
    for (end = first + 1; end < c.call_count && c.calls[end].step == c.calls[first].step;)
      end++;
    for (size_t i = end; i-- > first && r == 0;)
      r = call_change(&c, &c.calls[i]);
  }
  if (r == 0)
    sl_tape_sort(tape);
  free(c.ends);
  free(c.uses);
  free(c.made);
  free(c.calls);
  return r;
}
