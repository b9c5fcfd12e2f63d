/* Reads a rank's requests from its ledger, in the allocator's order. */
#include "tape.h"

#include "storage/grow.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void words_free(struct sl_tape_words *words) {
  for (size_t i = 0; i < words->count; i++)
    free(words->items[i]);
  free(words->items);
}

void sl_tape_free(struct sl_tape *tape) {
  if (tape->most)
    sl_tape_free(tape->most);
  free(tape->most);
  free(tape->config);
  free(tape->events);
  free(tape->allocations);
  free(tape->segments);
  free(tape->places);
  free(tape->periods);
  free(tape->optimizer_steps);
  words_free(&tape->pools);
  words_free(&tape->categories);
  words_free(&tape->phases);
  words_free(&tape->states);
  words_free(&tape->parameters);
  *tape = (struct sl_tape){0};
}

/* With the room that sl_list_grow takes it to have. */
static void *list_copy(const void *list, size_t count, size_t size, bool *failed) {
  size_t room = 4;
  while (room < count)
    room *= 2;
  void *copy = list && count ? reallocarray(NULL, room, size) : NULL;
  if (copy)
    memcpy(copy, list, count * size);
  *failed |= list && count && !copy;
  return copy;
}

static void words_copy(const struct sl_tape_words *from, struct sl_tape_words *to, bool *failed) {
  *to = (struct sl_tape_words){.items = list_copy(from->items, from->count, sizeof *from->items, failed)};
  for (size_t i = 0; i < from->count && to->items; i++) {
    *failed |= !(to->items[i] = strdup(from->items[i]));
    to->count = i + 1;
  }
}

int sl_tape_copy(const struct sl_tape *tape, struct sl_tape *out) {
  bool failed = false;
  *out = *tape;
  out->config = strdup(tape->config);
  out->events = list_copy(tape->events, tape->event_count, sizeof *tape->events, &failed);
  out->allocations = list_copy(tape->allocations, tape->allocation_count, sizeof *tape->allocations, &failed);
  out->segments = list_copy(tape->segments, tape->segment_count, sizeof *tape->segments, &failed);
  out->places = list_copy(tape->places, tape->place_count, sizeof *tape->places, &failed);
  out->periods = list_copy(tape->periods, tape->period_count, sizeof *tape->periods, &failed);
  out->optimizer_steps =
      list_copy(tape->optimizer_steps, tape->optimizer_step_count, sizeof *tape->optimizer_steps, &failed);
  words_copy(&tape->pools, &out->pools, &failed);
  words_copy(&tape->categories, &out->categories, &failed);
  words_copy(&tape->phases, &out->phases, &failed);
  words_copy(&tape->states, &out->states, &failed);
  words_copy(&tape->parameters, &out->parameters, &failed);
  out->most = tape->most ? calloc(1, sizeof *out->most) : NULL;
  failed |= tape->most && (!out->most || sl_tape_copy(tape->most, out->most) < 0);
  if (!failed && out->config)
    return 0;
  sl_tape_free(out);
  return -ENOMEM;
}

/* The number of a word, which may be new. They are few. */
static int word_number(struct sl_tape_words *words, const char *text, uint32_t *out) {
  for (size_t i = words->count; i-- > 0;)
    if (strcmp(words->items[i], text) == 0) {
      *out = (uint32_t)i;
      return 0;
    }
  *out = (uint32_t)words->count;
  return sl_text_add(&words->items, &words->count, text) ? 0 : -ENOMEM;
}

static int place_number(struct sl_tape *tape, uint64_t stream, const char *pool, uint32_t *out) {
  uint32_t number = 0;
  if (*pool) {
    int r = word_number(&tape->pools, pool, &number);
    if (r < 0)
      return r;
    number++;
  }
  for (size_t i = 0; i < tape->place_count; i++)
    if (tape->places[i].stream == stream && tape->places[i].pool == number) {
      *out = (uint32_t)i;
      return 0;
    }
  struct sl_tape_place *added = SL_LIST_ADD(tape->places, tape->place_count);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_tape_place){stream, number};
  *out = (uint32_t)tape->place_count - 1;
  return 0;
}

static int event_add(struct sl_tape *tape, uint64_t number, int64_t ns, enum sl_tape_kind kind, size_t index) {
  if (!number)
    return 0;
  struct sl_tape_event *added = SL_LIST_ADD(tape->events, tape->event_count);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_tape_event){
      .number = number, .ns = (uint64_t)ns, .index = (uint32_t)index, .kind = kind, .place = SL_TAPE_MIDDLE};
  return 0;
}

/* ---- rows ---- */

static int period_add(struct sl_tape *tape, struct sl_statement *row) {
  struct sl_tape_period *period = SL_LIST_ADD(tape->periods, tape->period_count);
  if (!period)
    return -ENOMEM;
  *period = (struct sl_tape_period){
      .period = sl_column_int(row, 0),
      .step = sl_column_int(row, 2),
      .same_as = sl_column_int(row, 3),
      .first_event = (uint64_t)sl_column_int(row, 4),
      .end_event = UINT64_MAX,
      .peak = {(uint64_t)sl_column_int(row, 5), (uint64_t)sl_column_int(row, 6), (uint64_t)sl_column_int(row, 7),
               (uint64_t)sl_column_int(row, 8)},
      .last = {(uint64_t)sl_column_int(row, 9), (uint64_t)sl_column_int(row, 10), (uint64_t)sl_column_int(row, 11),
               (uint64_t)sl_column_int(row, 12)},
  };
  strncpy(period->kind, sl_column_text(row, 1), sizeof period->kind - 1);
  if (tape->period_count > 1)
    period[-1].end_event = period->first_event;
  return 0;
}

/* Of a shard the parameter's name, and of an optimizer's state what follows it, too. */
static int name_add(struct sl_tape *tape, const char *name, bool is_state, struct sl_tape_allocation *a) {
  const char *dot = is_state ? strrchr(name, '.') : NULL;
  uint32_t number = 0;
  int r = 0;
  if (!*name)
    return 0;
  if (is_state) {
    r = word_number(&tape->states, dot ? dot + 1 : name, &number);
    a->state = number + 1;
  }
  if (r < 0 || (is_state && !dot))
    return r;
  char *whose = strndup(name, dot ? (size_t)(dot - name) : strlen(name));
  r = whose ? word_number(&tape->parameters, whose, &number) : -ENOMEM;
  free(whose);
  a->parameter = number + 1;
  return r;
}

static int optimizer_step_add(struct sl_tape *tape, struct sl_statement *row) {
  struct sl_tape_optimizer_step *added = SL_LIST_ADD(tape->optimizer_steps, tape->optimizer_step_count);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_tape_optimizer_step){sl_column_int(row, 0), sl_column_int(row, 1),
                                           (uint64_t)sl_column_int(row, 2), (uint64_t)sl_column_int(row, 3)};
  return 0;
}

static int allocation_add(struct sl_tape *tape, struct sl_statement *row) {
  const size_t index = tape->allocation_count;
  struct sl_tape_allocation *a = SL_LIST_ADD(tape->allocations, tape->allocation_count);
  if (!a)
    return -ENOMEM;
  *a = (struct sl_tape_allocation){
      .id = sl_column_int(row, 0),
      .address = (uint64_t)sl_column_int(row, 1),
      .bytes = (uint64_t)sl_column_int(row, 2),
      .requested = (uint64_t)sl_column_int(row, 3),
      .alloc_event = (uint64_t)sl_column_int(row, 7),
      .free_event = (uint64_t)sl_column_int(row, 8),
      .complete_event = (uint64_t)sl_column_int(row, 9),
      .module_id = sl_column_int(row, 11),
      .optimizer_step = sl_column_int(row, 16),
      .step = sl_column_int(row, 17),
      .tid = sl_column_int(row, 18),
  };
  int r = name_add(tape, sl_column_text(row, 15), strcmp(sl_column_text(row, 6), "optstate") == 0, a);
  r = r < 0 ? r : place_number(tape, (uint64_t)sl_column_int(row, 4), sl_column_text(row, 5), &a->place);
  r = r < 0 ? r : word_number(&tape->categories, sl_column_text(row, 6), &a->category);
  r = r < 0 ? r : word_number(&tape->phases, sl_column_text(row, 10), &a->phase);
  r = r < 0 ? r : event_add(tape, a->alloc_event, sl_column_int(row, 12), SL_TAPE_alloc, index);
  r = r < 0 ? r : event_add(tape, a->free_event, sl_column_int(row, 13), SL_TAPE_free, index);
  return r < 0 ? r : event_add(tape, a->complete_event, sl_column_int(row, 14), SL_TAPE_complete, index);
}

static int segment_add(struct sl_tape *tape, struct sl_statement *row) {
  static const struct {
    const char *word;
    enum sl_tape_action action;
    bool is_range;
  } actions[] = {{"alloc", SL_TAPE_taken, false},       {"free", SL_TAPE_returned, false},
                 {"map", SL_TAPE_taken, true},          {"unmap", SL_TAPE_returned, true},
                 {"existing", SL_TAPE_existing, false}, {"refused", SL_TAPE_refused, false}};
  struct sl_tape_segment *segment = SL_LIST_ADD(tape->segments, tape->segment_count);
  if (!segment)
    return -ENOMEM;
  *segment = (struct sl_tape_segment){
      .event = (uint64_t)sl_column_int(row, 0),
      .address = (uint64_t)sl_column_int(row, 2),
      .bytes = (uint64_t)sl_column_int(row, 3),
      .action = SL_TAPE_existing,
      .after_refusal = sl_column_int(row, 6) != 0,
  };
  for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
    if (strcmp(sl_column_text(row, 1), actions[i].word) == 0) {
      segment->action = (uint8_t)actions[i].action;
      segment->is_range = actions[i].is_range;
    }
  int r = place_number(tape, (uint64_t)sl_column_int(row, 4), sl_column_text(row, 5), &segment->place);
  return r < 0 ? r : event_add(tape, segment->event, sl_column_int(row, 7), SL_TAPE_segment, tape->segment_count - 1);
}

static int rows_read(struct sl_db *db, const char *sql, struct sl_tape *tape,
                     int (*add)(struct sl_tape *, struct sl_statement *), struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(db, sql, SL_WITH(SL_NUMBER(":rank", tape->rank), SL_NUMBER(":device", tape->device)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0)
    if ((r = add(tape, row)) < 0)
      r = sl_no_memory(error);
  row = sl_statement_close(row);
  return r;
}

/* ---- the whole ---- */

static int rank_read(struct sl_db *db, struct sl_tape *tape, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, sl_tape_rank_sql, SL_WITH(SL_NUMBER(":rank", tape->rank)), &row, error);
  if (r == 0) {
    r = sl_error_set(error, -ENOENT, "rank %u is not in the ledger", tape->rank);
  } else if (r > 0) {
    const char *backend = sl_column_text(row, 3);
    tape->device = sl_column_int(row, 0);
    tape->device_bytes = (uint64_t)sl_column_int(row, 2);
    tape->restored = sl_column_int(row, 4) > 0;
    tape->world_size = sl_column_int(row, 6);
    tape->is_compiled = sl_column_int(row, 7) > 0;
    tape->config = strdup(sl_column_text(row, 1));
    r = 0;
    if (!tape->config)
      r = sl_no_memory(error);
    else if (tape->device < 0)
      r = sl_error_set(error, -ENODATA, "no allocation was recorded");
    else if (*backend && strcmp(backend, "native") != 0)
      r = sl_error_set(error, -ENOTSUP, "its allocator was %s, whose choices are the driver's", backend);
    else if (sl_column_int(row, 5))
      r = sl_error_set(error, -ENODATA, "a part of its record was dropped to make room for the latest");
  }
  row = sl_statement_close(row);
  return r;
}

static int outside_read(struct sl_db *db, struct sl_tape *tape, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, sl_tape_outside_sql,
                          SL_WITH(SL_NUMBER(":rank", tape->rank), SL_NUMBER(":device", tape->device)), &row, error);
  if (r > 0 && sl_column_int(row, 0) > 0)
    tape->outside_bytes = (uint64_t)sl_column_int(row, 0);
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

static int compare_events(const void *left, const void *right) {
  const struct sl_tape_event *a = left, *b = right;
  if (a->number != b->number)
    return a->number > b->number ? 1 : -1;
  return (a->place > b->place) - (a->place < b->place);
}

static void periods_fill(struct sl_tape *tape) {
  size_t at = 0;
  for (size_t i = 0; i < tape->period_count; i++) {
    struct sl_tape_period *period = &tape->periods[i];
    while (at < tape->event_count && tape->events[at].number < period->first_event)
      at++;
    period->first = at;
    while (at < tape->event_count && tape->events[at].number < period->end_event)
      at++;
    period->end = at;
    if (period->end_event == UINT64_MAX)
      period->end_event = at > period->first ? tape->events[at - 1].number + 1 : period->first_event;
  }
}

/* What a change has put in has the time of the event that it was put to, or of the one before. */
static void times_fill(struct sl_tape *tape) {
  uint64_t before = 0;
  for (size_t first = 0, end; first < tape->event_count; first = end) {
    uint64_t ns = before;
    for (end = first; end < tape->event_count && tape->events[end].number == tape->events[first].number; end++)
      if (tape->events[end].ns)
        ns = tape->events[end].ns;
    for (size_t i = first; i < end; i++)
      tape->events[i].ns = ns;
    before = ns;
  }
}

/* All but the last ones mostly are in order: those are merged into them. */
static void events_sort(struct sl_tape *tape) {
  struct sl_tape_event *events = tape->events;
  size_t sorted = 1;
  while (sorted < tape->event_count && compare_events(&events[sorted - 1], &events[sorted]) <= 0)
    sorted++;
  if (sorted >= tape->event_count)
    return;
  const size_t rest = tape->event_count - sorted;
  struct sl_tape_event *last = rest < sorted ? reallocarray(NULL, rest, sizeof *last) : NULL;
  if (!last) {
    qsort(events, tape->event_count, sizeof *events, compare_events);
    return;
  }
  memcpy(last, events + sorted, rest * sizeof *last);
  qsort(last, rest, sizeof *last, compare_events);
  size_t at = tape->event_count;
  for (size_t left = rest; left;)
    events[--at] = sorted && compare_events(&events[sorted - 1], &last[left - 1]) > 0 ? events[--sorted] : last[--left];
  free(last);
}

void sl_tape_sort(struct sl_tape *tape) {
  size_t kept = 0;
  for (size_t i = 0; i < tape->event_count; i++)
    if (tape->events[i].kind == SL_TAPE_segment || !tape->allocations[tape->events[i].index].dropped)
      tape->events[kept++] = tape->events[i];
  tape->event_count = kept;
  events_sort(tape);
  times_fill(tape);
  periods_fill(tape);
}

int sl_tape_read(struct sl_db *db, uint32_t rank, struct sl_tape *out, struct sl_error *error) {
  *out = (struct sl_tape){.rank = rank};
  int r = rank_read(db, out, error);
  if (r == 0)
    r = rows_read(db, sl_tape_periods_sql, out, period_add, error);
  if (r == 0)
    r = rows_read(db, sl_tape_allocations_sql, out, allocation_add, error);
  if (r == 0)
    r = rows_read(db, sl_tape_segments_sql, out, segment_add, error);
  if (r == 0)
    r = outside_read(db, out, error);
  if (r == 0 && (!out->period_count || !out->event_count))
    r = sl_error_set(error, -ENODATA, "its allocator's events were not recorded");
  if (r == 0)
    r = rows_read(db, sl_tape_optimizer_steps_sql, out, optimizer_step_add, error);
  out->recorded_count = out->allocation_count;
  if (r == 0)
    sl_tape_sort(out);
  if (r != 0)
    sl_tape_free(out);
  return r;
}

size_t sl_tape_event_from(const struct sl_tape *tape, size_t count, uint64_t ns) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (tape->events[middle].ns < ns)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

uint64_t sl_tape_event_until(const struct sl_tape *tape, size_t count, uint64_t ns) {
  const size_t next = sl_tape_event_from(tape, count, ns + 1);
  return tape->events[next ? next - 1 : 0].number;
}

const struct sl_tape_period *sl_tape_period_find(const struct sl_tape *tape, int64_t period) {
  size_t low = 0, high = tape->period_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (tape->periods[middle].period < period)
      low = middle + 1;
    else
      high = middle;
  }
  return low < tape->period_count && tape->periods[low].period == period ? &tape->periods[low] : NULL;
}

/* ---- for changes ---- */

int sl_tape_add(struct sl_tape *tape, const struct sl_tape_allocation *like, uint64_t requested, uint32_t *out) {
  struct sl_tape_allocation made = *like; /* which may move */
  struct sl_tape_allocation *added = SL_LIST_ADD(tape->allocations, tape->allocation_count);
  if (!added)
    return -ENOMEM;
  made.requested = requested;
  made.dropped = false;
  if (made.free_event)
    made.complete_event = made.free_event + 1; /* no other stream uses it */
  *added = made;
  *out = (uint32_t)tape->allocation_count - 1;
  return 0;
}

int sl_tape_put(struct sl_tape *tape, enum sl_tape_kind kind, uint32_t allocation, uint64_t number, int32_t offset) {
  int r = event_add(tape, number, 0, kind, allocation);
  if (r == 0)
    tape->events[tape->event_count - 1].place = (uint32_t)(SL_TAPE_MIDDLE + offset);
  return r;
}

int sl_tape_put_end(struct sl_tape *tape, uint32_t allocation, uint64_t number, int32_t *offset) {
  int r = sl_tape_put(tape, SL_TAPE_free, allocation, number, ++*offset);
  return r < 0 ? r : sl_tape_put(tape, SL_TAPE_complete, allocation, number, ++*offset);
}

void sl_tape_doubt(struct sl_tape *tape, const char *format, ...) {
  const size_t length = strlen(tape->doubt), joint = length ? 2 : 0;
  va_list arguments;
  if (length + joint + 1 >= sizeof tape->doubt)
    return;
  memcpy(tape->doubt + length, "; ", joint);
  va_start(arguments, format);
  vsnprintf(tape->doubt + length + joint, sizeof tape->doubt - length - joint, format, arguments);
  va_end(arguments);
}

int sl_tape_category(struct sl_tape *tape, const char *name, uint32_t *out) {
  return word_number(&tape->categories, name, out);
}

struct sl_tape_ends *sl_tape_ends(const struct sl_tape *tape) {
  struct sl_tape_ends *ends = reallocarray(NULL, tape->allocation_count + 1, sizeof *ends);
  if (!ends)
    return NULL;
  memset(ends, 0xff, (tape->allocation_count + 1) * sizeof *ends);
  for (size_t i = 0; i < tape->event_count; i++) {
    const struct sl_tape_event *event = &tape->events[i];
    if (event->kind == SL_TAPE_alloc)
      ends[event->index].alloc = i;
    else if (event->kind == SL_TAPE_free)
      ends[event->index].free = i;
    else if (event->kind == SL_TAPE_complete)
      ends[event->index].complete = i;
  }
  return ends;
}
