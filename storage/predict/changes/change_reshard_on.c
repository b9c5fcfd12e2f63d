/* Frees what FSDP2 gathered after forward, and gathers it again for backward. */
#include "change_reshard_on.h"

#include "storage/grow.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum at { AT_forward_end, AT_prefetch, AT_backward };

struct mark {
  int64_t step, module;
  enum at at;
  uint64_t start_ns, end_ns;
};

struct unit { /* in a step: what it gathered for forward, in order */
  int64_t module;
  uint32_t *buffers, *copies; /* of phase unshard; of unshard_copy_out: parameters and the copy's table */
  size_t buffer_count, copy_count;
  uint32_t *again; /* buffers, for backward */
  bool is_over, is_gathered;
};

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  struct mark *marks;
  size_t mark_count;
  struct sl_tape_ends *ends;
  size_t recorded, changed;
  struct unit *units;
  size_t unit_count;
  int32_t offset;
};

static int refuse(const struct change *c, const struct mark *mark, const char *what) {
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " a unit of FSDP2 %s", mark->step, what);
}

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static int mark_add(struct change *c, struct sl_statement *row) {
  struct mark *added = SL_LIST_ADD(c->marks, c->mark_count);
  if (!added)
    return -ENOMEM;
  *added = (struct mark){sl_column_int(row, 0), sl_column_int(row, 1), (enum at)sl_column_int(row, 2),
                         (uint64_t)sl_column_int(row, 3), (uint64_t)sl_column_int(row, 4)};
  return 0;
}

static int marks_read(struct sl_db *db, struct change *c) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(db, sl_tape_reshards_sql, SL_WITH(SL_NUMBER(":rank", c->tape->rank)), &row, c->error);
  while (r >= 0 && (r = sl_statement_step(row, c->error)) > 0)
    if ((r = mark_add(c, row)) < 0)
      r = sl_no_memory(c->error);
  row = sl_statement_close(row);
  if (r == 0 && !c->mark_count)
    r = sl_error_set(c->error, -ENOTSUP, "it has no unit of FSDP2 but its root, or it did not mark what it does");
  return r;
}

/* ---- units ---- */

static struct unit *unit_of(struct change *c, int64_t module) {
  for (size_t i = 0; i < c->unit_count; i++)
    if (c->units[i].module == module)
      return &c->units[i];
  struct unit *added = SL_LIST_ADD(c->units, c->unit_count);
  if (!added)
    return NULL;
  *added = (struct unit){.module = module};
  return added;
}

static void unit_clear(struct unit *unit) {
  free(unit->buffers);
  free(unit->copies);
  free(unit->again);
  *unit = (struct unit){.module = unit->module};
}

/* What is gathered until then, unit by unit. *next: the first allocation that is later. */
static int gathered_read(struct change *c, uint64_t ns, size_t *next) {
  int r = 0;
  for (; *next < c->recorded && r == 0; ++*next) {
    const uint32_t index = (uint32_t)*next;
    const struct sl_tape_allocation *a = allocation(c, index);
    if (c->ends[index].alloc == SIZE_MAX || a->dropped)
      continue;
    if (c->tape->events[c->ends[index].alloc].ns > ns)
      break;
    const char *phase = c->tape->phases.items[a->phase];
    const bool is_copy = strcmp(phase, "unshard_copy_out") == 0;
    struct unit *unit = is_copy || strcmp(phase, "unshard") == 0 ? unit_of(c, a->module_id) : NULL;
    if (unit)
      r = is_copy ? sl_index_add(&unit->copies, &unit->copy_count, index)
                  : sl_index_add(&unit->buffers, &unit->buffer_count, index);
  }
  return r;
}

static bool is_parameter(const struct change *c, uint32_t index) {
  return sl_tape_is(&c->tape->categories, allocation(c, index)->category, "unsharded_param");
}

/* ---- putting ---- */

static int put_end(struct change *c, uint32_t index, uint64_t number) {
  return sl_tape_put_end(c->tape, index, number, &c->offset);
}

static int put_again(struct change *c, uint32_t index, uint64_t number, uint32_t *out) {
  struct sl_tape_allocation like = *allocation(c, index);
  like.free_event = 1; /* has an end, by events that are put, or is given one */
  int r = sl_tape_add(c->tape, &like, like.requested, out);
  return r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_alloc, *out, number, ++c->offset);
}

/* The last is what is gathered into; those before are casts, which end then. */
static int gather(struct change *c, struct unit *unit, uint64_t number) {
  int r = 0;
  unit->is_gathered = true;
  free(unit->again);
  if (!(unit->again = calloc(unit->buffer_count + 1, sizeof *unit->again)))
    return -ENOMEM;
  for (size_t i = 0; i < unit->buffer_count && r == 0; i++)
    r = put_again(c, unit->buffers[i], number, &unit->again[i]);
  for (size_t i = 0; i + 1 < unit->buffer_count && r == 0; i++)
    r = put_end(c, unit->again[i], number);
  return r;
}

/* What ended a parameter after backward ends what is copied out for backward. */
static int copy_out(struct change *c, struct unit *unit, uint64_t number) {
  uint32_t again = 0, table = UINT32_MAX;
  int r = 0;
  for (size_t i = 0; i < unit->copy_count && r == 0; i++) {
    const uint32_t index = unit->copies[i];
    r = put_again(c, index, number, &again);
    if (r < 0)
      return r;
    if (!is_parameter(c, index)) {
      table = again;
      continue;
    }
    const struct sl_tape_ends ends = c->ends[index];
    c->tape->events[ends.free].index = again;
    if (ends.complete != SIZE_MAX)
      c->tape->events[ends.complete].index = again;
    allocation(c, again)->free_event = allocation(c, index)->free_event;
    allocation(c, again)->complete_event = allocation(c, index)->complete_event;
    allocation(c, index)->complete_event = allocation(c, index)->free_event + 1;
  }
  if (table != UINT32_MAX)
    r = put_end(c, table, number);
  if (r == 0)
    r = put_end(c, unit->again[unit->buffer_count - 1], number);
  return r;
}

static int forward_end(struct change *c, struct unit *unit, const struct mark *mark, uint64_t number) {
  if (unit->is_over || !unit->buffer_count || !unit->copy_count)
    return refuse(c, mark, "does not gather once for each forward");
  unit->is_over = true;
  for (size_t i = 0; i < unit->copy_count; i++) {
    const struct sl_tape_ends ends = c->ends[unit->copies[i]];
    const uint64_t free_ns = ends.free == SIZE_MAX ? 0 : c->tape->events[ends.free].ns;
    if (!is_parameter(c, unit->copies[i]))
      continue;
    if (free_ns <= mark->end_ns)
      return refuse(c, mark, free_ns ? "is resharded after forward already" : "does not give its parameters back");
    int r = put_end(c, unit->copies[i], number);
    if (r < 0)
      return r;
  }
  return 0;
}

static int mark_change(struct change *c, const struct mark *mark, size_t events) {
  struct unit *unit = unit_of(c, mark->module);
  const uint64_t number =
      sl_tape_event_until(c->tape, events, mark->at == AT_forward_end ? mark->end_ns : mark->start_ns);
  if (!unit)
    return -ENOMEM;
  if (mark->at == AT_forward_end)
    return forward_end(c, unit, mark, number);
  if (!unit->is_over)
    return 0; /* nothing of this step */
  int r = unit->is_gathered ? 0 : gather(c, unit, number);
  if (r < 0 || mark->at == AT_prefetch)
    return r;
  r = copy_out(c, unit, number);
  c->changed++;
  unit_clear(unit);
  return r;
}

/* A unit of which the next forward comes when its backward never did. */
static int units_check(const struct change *c, const struct mark *mark) {
  for (size_t i = 0; i < c->unit_count; i++)
    if (c->units[i].is_over)
      return refuse(c, mark, "has a forward without a backward");
  return 0;
}

static int marks_change(struct change *c) {
  const size_t events = c->tape->event_count;
  size_t next = 0;
  int r = 0;
  for (size_t i = 0; i < c->mark_count && r == 0; i++) {
    const struct mark *mark = &c->marks[i];
    if (i && mark->step != c->marks[i - 1].step) {
      r = units_check(c, mark - 1);
      for (size_t u = 0; u < c->unit_count; u++)
        unit_clear(&c->units[u]);
      c->offset = 0;
    }
    r = r < 0 ? r : gathered_read(c, mark->end_ns, &next);
    r = r < 0 ? r : mark_change(c, mark, events);
  }
  if (r == 0)
    r = units_check(c, &c->marks[c->mark_count - 1]);
  return r;
}

int sl_change_reshard_on(struct sl_db *db, struct sl_tape *tape, struct sl_error *error) {
  struct change c = {.tape = tape, .error = error, .recorded = tape->recorded_count};
  if (tape->world_size == 1)
    return sl_error_set(error, -ENOTSUP, "with one rank FSDP2 gathers nothing");
  int r = marks_read(db, &c);
  if (r == 0)
    r = (c.ends = sl_tape_ends(tape)) ? marks_change(&c) : -ENOMEM;
  if (r == 0 && !c.changed)
    r = sl_error_set(error, -ENOTSUP, "no unit of FSDP2 has a forward and a backward");
  if (r == 0)
    sl_tape_sort(tape);
  for (size_t i = 0; i < c.unit_count; i++)
    unit_clear(&c.units[i]);
  free(c.units);
  free(c.marks);
  free(c.ends);
  return r;
}
