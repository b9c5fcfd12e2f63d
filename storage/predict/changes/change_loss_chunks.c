/* Splits the last layer and the loss into pieces of their rows. */
#include "change_loss_chunks.h"

#include "storage/grow.h"
#include "storage/predict/tape/staging.h"
#include "storage/predict/tape/thread_workspaces.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

enum { NONE = UINT32_MAX, SCALAR = 512, WIDER = 4 };

struct mark { /* backward as a whole */
  int64_t step;
  uint64_t start_ns, end_ns;
};

struct change {
  struct sl_tape *tape;
  struct sl_error *error;
  uint64_t chunks;
  bool at_most;
  struct mark *marks;
  size_t mark_count;
  int64_t *entries; /* modules within lists, by id */
  size_t entry_count;
  struct sl_tape_ends *ends;
  size_t recorded, events; /* allocations and events that were there */
  uint32_t *copies;        /* of each allocation: the piece's that is played */
  size_t changed;
  /* of the backward that is looked at: the first event of the output, of backward, and the one that ends the loss */
  const struct mark *mark;
  size_t first, backward, end;
  uint64_t number; /* of the event beside which all is put */
  int32_t offset;
};

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static const struct sl_tape_event *event_at(const struct change *c, size_t event) {
  return &c->tape->events[event];
}

static bool is_phase(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->phases, allocation(c, index)->phase, name);
}

static bool is_category(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->categories, allocation(c, index)->category, name);
}

static int refuse(const struct change *c, const char *what) {
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " %s", c->mark->step, what);
}

/* ---- where the loss is ---- */

static int entries_read(struct sl_db *db, struct change *c) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(db, sl_tape_entries_sql, NULL, &row, c->error);
  while (r >= 0 && (r = sl_statement_step(row, c->error)) > 0) {
    int64_t *added = SL_LIST_ADD(c->entries, c->entry_count);
    if (!added) {
      r = sl_no_memory(c->error);
      break;
    }
    *added = sl_column_int(row, 0);
  }
  row = sl_statement_close(row);
  return r;
}

static bool is_entry(const struct change *c, int64_t module) {
  for (size_t i = 0; i < c->entry_count; i++)
    if (c->entries[i] == module)
      return true;
  return false;
}

/* A step that goes on as another one has that one's backward: before the rest as its own began, then later by a shift.
 */
static int rest_mark(struct change *c) {
  const struct sl_tape_rest *rest = &c->tape->rest;
  struct mark *own = NULL;
  const struct mark *like = NULL;
  for (size_t i = 0; i < c->mark_count; i++) {
    own = c->marks[i].step == rest->step ? &c->marks[i] : own;
    like = c->marks[i].step == rest->like_step ? &c->marks[i] : like;
  }
  if (!like)
    return sl_error_set(c->error, -ENOTSUP, "no backward was recorded in step %" PRId64, rest->like_step);
  const bool has_begun = like->start_ns < rest->from_ns;
  if (has_begun && !own)
    return sl_error_set(c->error, -ENOTSUP, "it is not known when backward began in step %" PRId64, rest->step);
  const struct mark made = {rest->step, has_begun ? own->start_ns : like->start_ns + rest->shift_ns,
                            like->end_ns < rest->from_ns ? own->end_ns : like->end_ns + rest->shift_ns};
  if (!own) {
    own = SL_LIST_ADD(c->marks, c->mark_count);
    if (!own)
      return sl_no_memory(c->error);
  }
  *own = made;
  return 0;
}

static int marks_read(struct sl_db *db, struct change *c) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(db, sl_tape_marks_sql, SL_WITH(SL_NUMBER(":rank", c->tape->rank)), &row, c->error);
  while (r >= 0 && (r = sl_statement_step(row, c->error)) > 0) {
    if (!sl_column_int(row, 1))
      continue;
    struct mark *added = SL_LIST_ADD(c->marks, c->mark_count);
    if (!added) {
      r = sl_no_memory(c->error);
      break;
    }
    *added = (struct mark){sl_column_int(row, 0), (uint64_t)sl_column_int(row, 2), (uint64_t)sl_column_int(row, 3)};
  }
  row = sl_statement_close(row);
  if (r == 0 && !c->mark_count)
    r = sl_error_set(c->error, -ENOTSUP, "no backward was recorded in a step");
  return r == 0 && c->tape->rest.is_one ? rest_mark(c) : r;
}

static bool is_made(const struct change *c, size_t event, const char *phase) {
  return event_at(c, event)->kind == SL_TAPE_alloc && is_phase(c, event_at(c, event)->index, phase) &&
         !is_category(c, event_at(c, event)->index, "workspace");
}

/* Whether something as large is made of it before backward, or somewhat wider. */
static bool has_loss(const struct change *c, size_t output) {
  const uint64_t whole = allocation(c, event_at(c, output)->index)->requested;
  for (size_t e = output + 1; e < c->backward && whole > SCALAR; e++)
    if (is_made(c, e, "forward") || is_made(c, e, "step") || is_made(c, e, "user")) {
      const uint64_t bytes = allocation(c, event_at(c, e)->index)->requested;
      if (bytes >= whole && bytes <= WIDER * whole)
        return true;
    }
  return false;
}

/*
 * What the model made last before this backward, where the loss is computed outside of it; else the first of what the
 * outermost module itself made last that something as large is made of, or what a module made just before, which is
 * none of a list, as lm_head. SIZE_MAX: no loss is recognised.
 */
static size_t output_find(const struct change *c) {
  size_t found = SIZE_MAX;
  int64_t module = -1;
  for (size_t e = c->backward; e-- > 0;) {
    if (event_at(c, e)->kind != SL_TAPE_alloc)
      continue;
    const struct sl_tape_allocation *a = allocation(c, event_at(c, e)->index);
    if (a->step != c->mark->step)
      break;
    if (!is_made(c, e, "forward"))
      continue;
    if (module < 0 && has_loss(c, e))
      return e;
    if (module >= 0 && a->module_id != module)
      return found != SIZE_MAX && !is_entry(c, a->module_id) && has_loss(c, e) ? e : found;
    module = a->module_id;
    if (has_loss(c, e))
      found = e;
  }
  return found;
}

/* Where backward frees what was made before the output: what the last layer was given. */
static size_t end_find(const struct change *c) {
  for (size_t e = c->backward; e < c->events && event_at(c, e)->ns <= c->mark->end_ns; e++) {
    const uint32_t index = event_at(c, e)->index;
    if (event_at(c, e)->kind == SL_TAPE_free && c->ends[index].alloc < c->first && is_phase(c, index, "forward") &&
        is_category(c, index, "activation"))
      return e;
  }
  return SIZE_MAX;
}

/* One that is in pieces: made in the stretch, by the model or the loss, and no single number. */
static bool is_of_loss(const struct change *c, uint32_t index) {
  const size_t made = c->ends[index].alloc;
  return index < c->recorded && made != SIZE_MAX && made >= c->first && made < c->end &&
         allocation(c, index)->requested > SCALAR && !is_category(c, index, "workspace") &&
         (is_phase(c, index, "forward") || is_phase(c, index, "step") || is_phase(c, index, "user") ||
          is_phase(c, index, "backward"));
}

static bool is_gradient(const struct change *c, uint32_t index) {
  return is_category(c, index, "gradient") || is_category(c, index, "unsharded_grad");
}

static bool is_kept(const struct change *c, uint32_t index) {
  return c->ends[index].free == SIZE_MAX || c->ends[index].free >= c->end;
}

static int loss_find(struct change *c) {
  c->backward = sl_tape_event_from(c->tape, c->events, c->mark->start_ns);
  c->first = output_find(c);
  if (c->first == SIZE_MAX)
    return refuse(
        c, "no loss is recognised: before backward nothing is made that is as large as what the model made last");
  c->end = end_find(c);
  if (c->end == SIZE_MAX)
    return refuse(c, "backward does not free what the last layer was given");
  for (size_t e = c->first; e < c->backward; e++) {
    const uint32_t index = event_at(c, e)->index;
    if (event_at(c, e)->kind == SL_TAPE_alloc && is_of_loss(c, index) && is_kept(c, index))
      return refuse(c, "what the model returned, or the loss made of it, is kept when the loss's backward is over");
  }
  return 0;
}

/* ---- pieces ---- */

static int put(struct change *c, enum sl_tape_kind kind, uint32_t index) {
  return sl_tape_put(c->tape, kind, index, c->number, ++c->offset);
}

static int put_end(struct change *c, uint32_t index) {
  return sl_tape_put_end(c->tape, index, c->number, &c->offset);
}

/* What a reduction of fewer rows, which is perhaps not split, does not stage; and the semaphores for it. */
static bool is_staged(const struct change *c, uint32_t index) {
  return sl_is_staging(c->tape, index) || (index > 0 && sl_is_staging(c->tape, index - 1));
}

static int piece_begin(struct change *c, uint32_t index, int64_t tid) {
  if (!c->at_most && is_staged(c, index))
    return 0;
  struct sl_tape_allocation like = *allocation(c, index);
  const bool is_whole = is_gradient(c, index) || is_staged(c, index);
  like.tid = tid;
  like.free_event = 1; /* has an end, by events that are put */
  int r = 0;
  if (is_gradient(c, index))
    r = sl_tape_category(c->tape, "temp", &like.category);
  r = r < 0 ? r
            : sl_tape_add(c->tape, &like, is_whole ? like.requested : (like.requested + c->chunks - 1) / c->chunks,
                          &c->copies[index]);
  return r < 0 ? r : put(c, SL_TAPE_alloc, c->copies[index]);
}

static int piece_end(struct change *c, uint32_t index) {
  const uint32_t copy = c->copies[index];
  c->copies[index] = NONE;
  return copy == NONE ? 0 : put_end(c, copy);
}

/* The recorded one is the first piece's, from here on. */
static void begin_move(struct change *c, uint32_t index) {
  struct sl_tape_event *event = &c->tape->events[c->ends[index].alloc];
  event->number = c->number;
  event->place = (uint32_t)(SL_TAPE_MIDDLE + ++c->offset);
}

/* Forward of a piece; what is saved is there when it is made again, else it ends. */
static int forward_put(struct change *c, bool is_again, int64_t tid) {
  int r = 0;
  for (size_t e = c->first; e < c->backward && r == 0; e++) {
    const struct sl_tape_event event = *event_at(c, e);
    if (event.kind == SL_TAPE_segment || !is_of_loss(c, event.index))
      continue;
    if (event.kind == SL_TAPE_alloc) {
      r = piece_begin(c, event.index, tid);
      const bool is_saved = c->ends[event.index].free >= c->backward;
      if (r == 0 && is_saved && !is_again && !c->at_most)
        r = piece_end(c, event.index);
    } else if (event.kind == SL_TAPE_free) {
      r = piece_end(c, event.index);
    }
  }
  for (size_t e = c->first; e < c->backward && r == 0 && !is_again; e++)
    if (event_at(c, e)->kind == SL_TAPE_alloc && is_of_loss(c, event_at(c, e)->index))
      r = piece_end(c, event_at(c, e)->index);
  return r;
}

/* Backward of a piece. What goes on to the layers before stays in pieces until there are all. */
static int backward_put(struct change *c, bool is_first, uint32_t *pieces, size_t *count) {
  int r = 0;
  for (size_t e = c->backward; e < c->end && r == 0; e++) {
    const struct sl_tape_event event = *event_at(c, e);
    if (event.kind == SL_TAPE_segment || !is_of_loss(c, event.index))
      continue;
    if (event.kind == SL_TAPE_free)
      r = piece_end(c, event.index);
    if (event.kind != SL_TAPE_alloc)
      continue;
    if (is_gradient(c, event.index) && is_first)
      begin_move(c, event.index);
    else
      r = piece_begin(c, event.index, allocation(c, event.index)->tid);
    if (r == 0 && is_kept(c, event.index) && !is_gradient(c, event.index)) {
      pieces[(*count)++] = c->copies[event.index];
      c->copies[event.index] = NONE;
    }
  }
  for (size_t e = c->backward; e < c->end && r == 0; e++)
    if (event_at(c, e)->kind == SL_TAPE_alloc && is_of_loss(c, event_at(c, e)->index))
      r = piece_end(c, event_at(c, e)->index);
  return r;
}

/* The pieces' gradients together, which the recorded one was. */
static int together_put(struct change *c, const uint32_t *pieces, size_t count) {
  int r = 0;
  for (size_t e = c->backward; e < c->end; e++) {
    const uint32_t index = event_at(c, e)->index;
    if (event_at(c, e)->kind == SL_TAPE_alloc && is_of_loss(c, index) && is_kept(c, index) && !is_gradient(c, index))
      begin_move(c, index);
  }
  for (size_t i = 0; i < count && r == 0; i++)
    r = put_end(c, pieces[i]);
  return r;
}

/* Of what backward makes first, but for the loss's own gradient, which its caller makes; where that is all: of the
 * output. */
static int64_t backward_tid(const struct change *c) {
  for (size_t e = c->backward; e < c->end; e++)
    if (is_made(c, e, "backward") && allocation(c, event_at(c, e)->index)->requested > SCALAR)
      return allocation(c, event_at(c, e)->index)->tid;
  return allocation(c, event_at(c, c->first)->index)->tid;
}

/* Surely those that the last layer or the loss made; the others may have been needed before only. */
static bool is_wanted(const void *context, uint32_t index) {
  const struct change *c = context;
  const size_t made = c->ends[index].alloc;
  return c->at_most || (made != SIZE_MAX && made >= c->first && made < c->backward);
}

/* What autograd's thread lacks to make a piece again. */
static int workspaces_put(struct change *c, int64_t tid) {
  const struct sl_thread_workspaces which = {.recorded = (uint32_t)c->recorded,
                                             .from_tid = tid,
                                             .to_tid = backward_tid(c),
                                             .is_wanted = is_wanted,
                                             .context = c,
                                             .number = c->number};
  return sl_thread_workspaces_add(c->tape, &which, &c->offset);
}

static int loss_change(struct change *c) {
  const int64_t tid = allocation(c, event_at(c, c->first)->index)->tid;
  size_t kept = 0;
  for (size_t e = c->backward; e < c->end; e++)
    kept += event_at(c, e)->kind == SL_TAPE_alloc && is_of_loss(c, event_at(c, e)->index) &&
            is_kept(c, event_at(c, e)->index) && !is_gradient(c, event_at(c, e)->index);
  uint32_t *pieces = reallocarray(NULL, c->chunks * kept + 1, sizeof *pieces);
  size_t count = 0;
  int r = pieces ? 0 : -ENOMEM;
  /* The first of them stands where the output was made; of backward, where that begins. */
  c->number = event_at(c, c->first)->number;
  c->offset = 1;
  for (uint64_t i = 0; i < c->chunks && r == 0; i++)
    r = forward_put(c, false, tid);
  c->number = event_at(c, c->backward)->number;
  c->offset = 1;
  r = r < 0 ? r : workspaces_put(c, tid);
  for (uint64_t i = 0; i < c->chunks && r == 0; i++) {
    r = forward_put(c, true, backward_tid(c));
    r = r < 0 ? r : backward_put(c, i == 0, pieces, &count);
  }
  r = r < 0 ? r : together_put(c, pieces, count);
  for (size_t e = c->first; e < c->end && r == 0; e++) {
    const uint32_t index = event_at(c, e)->index;
    if (event_at(c, e)->kind == SL_TAPE_alloc && is_of_loss(c, index) &&
        (e < c->backward || !(is_gradient(c, index) || is_kept(c, index))))
      allocation(c, index)->dropped = true;
  }
  free(pieces);
  return r < 0 ? sl_no_memory(c->error) : 0;
}

/* A step's own rows: of a repeated one there are none. */
static bool is_stored(const struct change *c, const struct mark *mark) {
  for (size_t i = 0; i < c->tape->period_count; i++) {
    const struct sl_tape_period *period = &c->tape->periods[i];
    if (period->step == mark->step && period->kind[0] == 's' && period->kind[1] == 't')
      return period->same_as < 0 && period->first < period->end;
  }
  return false;
}

int sl_change_loss_chunks(struct sl_db *db, struct sl_tape *tape, uint64_t chunks, bool at_most,
                          struct sl_error *error) {
  struct change c = {.tape = tape,
                     .error = error,
                     .chunks = chunks,
                     .at_most = at_most,
                     .recorded = tape->allocation_count,
                     .events = tape->event_count};
  int r = marks_read(db, &c);
  r = r < 0 ? r : entries_read(db, &c);
  if (r == 0) {
    c.ends = sl_tape_ends(tape);
    c.copies = malloc((tape->allocation_count + 1) * sizeof *c.copies);
    r = c.ends && c.copies ? 0 : sl_no_memory(error);
  }
  for (size_t i = 0; i < c.recorded && r == 0; i++)
    c.copies[i] = NONE;
  for (size_t i = 0; i < c.mark_count && r == 0; i++) {
    c.mark = &c.marks[i];
    if (!is_stored(&c, c.mark))
      continue;
    r = loss_find(&c);
    r = r < 0 ? r : loss_change(&c);
    c.changed++;
  }
  if (r == 0 && !c.changed)
    r = sl_error_set(error, -ENOTSUP, "no step was recorded");
  for (size_t i = 0; i < tape->event_count && r == 0; i++)
    if (tape->events[i].place != SL_TAPE_MIDDLE)
      tape->events[i].ns = 0; /* that of where it is now */
  if (r == 0) {
    sl_tape_sort(tape);
    sl_tape_doubt(
        tape,
        "what the last layer and the loss make is taken to be in proportion to rows, and kernels not to depend on them");
  }
  free(c.marks);
  free(c.entries);
  free(c.ends);
  free(c.copies);
  return r;
}
