/*
 * Memory over time, small enough for a page.
 *
 * A rank's time is cut into windows: its steps, and what lies between them. A window's samples are instants with what
 * each owner (module, category, detail) held then, written as changes from the sample before. A window held in full has
 * a sample for every allocation and free. Of others some instants are left out, and what changed there is in the next
 * sample: each sample is exact by itself. The highest and lowest instant of each stretch stay, and so does the peak.
 *
 * Layout of a window, all numbers LEB128 (the changes zigzag), values and times apart because the values of a window
 * that repeats an earlier one are held once:
 *
 *   values   owners at the start: count, {owner, bytes}…; then for each sample: count, {owner, change}…
 *   times    for each sample: nanoseconds since the one before; of the first one since the window's start
 *
 * A step whose rows were left to the step that it repeats (step.same_as) has no samples of its own: the page draws
 * those.
 */
#include "output/text.h"
#include "report/page.h"
#include "storage/grow.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  FULL_EVENTS = 400000, /* allocations and frees of windows held in full, of all drawn ranks: some 2 MB of page */
  SAMPLES = 160000,     /* instants of all others together */
  STRETCHES_MOST = 256, /* in a window */
  STRETCHES_LEAST = 2,
};

struct event {
  int64_t at_ns, change;
  uint32_t owner, order;
};

struct owner {
  int64_t module;          /* -1: none */
  char *category, *detail; /* detail: "" for none */
};

struct window {
  int64_t step;                                  /* -1: between steps */
  int64_t same_as;                               /* -1 */
  int64_t start_ns, end_ns, peak_ns, peak_bytes; /* peak_bytes -1: not known */
  size_t first, count;                           /* its events */
  bool full;
  int64_t repeats; /* index of the window whose samples stand for its own, or -1 */
  bool repeated;   /* it stands for others */
  int64_t samples;
  size_t values, times;  /* offsets into page->samples */
  int64_t highest_bytes; /* of the samples */
};

struct timeline {
  struct sl_page *page;
  int64_t rank, start_ns, end_ns;
  struct owner *owners;
  size_t owner_count;
  struct event *events;
  size_t event_count;
  struct window *windows;
  size_t window_count;
  struct sl_shared_samples shared; /* values of windows */
  int64_t *bytes, *changes;        /* of each owner: now, and since the last sample */
  uint32_t *changed;               /* owners with changes */
  uint8_t *has_changed;
  uint8_t *keep; /* by event: it is a sample */
};

static int out_of_memory(struct sl_error *error) {
  return sl_no_memory(error);
}

/* ---- reading ---- */

static int compare_owners(const struct owner *a, int64_t module, const char *category, const char *detail) {
  if (a->module != module)
    return a->module < module ? -1 : 1;
  int order = strcmp(a->category, category);
  return order ? order : strcmp(a->detail, detail);
}

static int by_owner(const void *a, const void *b) {
  const struct owner *right = b;
  return compare_owners(a, right->module, right->category, right->detail);
}

static int read_span(struct timeline *t, struct sl_error *error) {
  struct sl_statement *rows = NULL;
  int r = sl_db_ask_first(t->page->db, sl_sql_timeline_span, SL_WITH(SL_NUMBER(":rank", t->rank)), &rows, error);
  if (r > 0) {
    t->start_ns = sl_column_int(rows, 0);
    t->end_ns = sl_column_int(rows, 1);
  }
  rows = sl_statement_close(rows);
  return r < 0 ? r : 0;
}

static int read_owners(struct timeline *t, struct sl_error *error) {
  struct sl_statement *rows = NULL;
  int r = sl_db_ask(t->page->db, sl_sql_timeline_owners, SL_WITH(SL_NUMBER(":rank", t->rank)), &rows, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(rows, error)) > 0) {
    struct owner *added = SL_LIST_ADD(t->owners, t->owner_count);
    if (!added) {
      r = out_of_memory(error);
      break;
    }
    *added = (struct owner){sl_column_int(rows, 0), strdup(sl_column_text(rows, 1)), strdup(sl_column_text(rows, 2))};
    if (!added->category || !added->detail) {
      r = out_of_memory(error);
      break;
    }
  }
  rows = sl_statement_close(rows);
  if (r == 0 && t->owner_count)
    qsort(t->owners, t->owner_count, sizeof(*t->owners), by_owner);
  return r;
}

/* Neighbours mostly have the owner of the one before; *hint remembers it. */
static uint32_t find_owner(const struct timeline *t, size_t *hint, int64_t module, const char *category,
                           const char *detail) {
  size_t low = 0, high = t->owner_count;
  if (compare_owners(&t->owners[*hint], module, category, detail) == 0)
    return (uint32_t)*hint;
  while (low + 1 < high) {
    size_t middle = (low + high) / 2;
    if (compare_owners(&t->owners[middle], module, category, detail) <= 0)
      low = middle;
    else
      high = middle;
  }
  *hint = low;
  return (uint32_t)low;
}

static int add_event(struct timeline *t, int64_t at_ns, int64_t change, uint32_t owner, uint32_t order) {
  struct event *added = SL_LIST_ADD(t->events, t->event_count);
  if (!added)
    return -ENOMEM;
  *added = (struct event){at_ns, change, owner, order};
  return 0;
}

/* As in every reader of the ledger: of what happened in one instant, allocations come first. */
static int by_time(const void *a, const void *b) {
  const struct event *left = a, *right = b;
  if (left->at_ns != right->at_ns)
    return left->at_ns < right->at_ns ? -1 : 1;
  if ((left->change < 0) != (right->change < 0))
    return left->change < 0 ? 1 : -1;
  return left->order < right->order ? -1 : left->order > right->order;
}

static int read_events(struct timeline *t, struct sl_error *error) {
  struct sl_statement *rows = NULL;
  size_t hint = 0;
  uint32_t order = 0;
  int r = sl_db_ask(t->page->db, sl_sql_timeline_events, SL_WITH(SL_NUMBER(":rank", t->rank)), &rows, error);
  if (r < 0)
    return r;
  /* A file from somebody else may have other owners now than a moment ago. */
  while (t->owner_count && (r = sl_statement_step(rows, error)) > 0) {
    uint32_t owner = find_owner(t, &hint, sl_column_int(rows, 0), sl_column_text(rows, 1), sl_column_text(rows, 2));
    int64_t bytes = sl_column_int(rows, 3);
    r = add_event(t, sl_column_int(rows, 4), bytes, owner, order);
    if (r == 0 && !sl_column_is_null(rows, 5))
      r = add_event(t, sl_column_int(rows, 5), -bytes, owner, order);
    order++;
    if (r < 0) {
      r = out_of_memory(error);
      break;
    }
    sl_page_progress(t->page);
  }
  rows = sl_statement_close(rows);
  if (r == 0 && t->event_count)
    qsort(t->events, t->event_count, sizeof(*t->events), by_time);
  return r;
}

static int add_window(struct timeline *t, const struct window *window) {
  struct window *added = SL_LIST_ADD(t->windows, t->window_count);
  if (!added)
    return -ENOMEM;
  *added = *window;
  added->repeats = -1;
  return 0;
}

/* Windows and their stretches of events. What happens at a step's end belongs to the step. */
static int read_windows(struct timeline *t, struct sl_error *error) {
  struct sl_statement *rows = NULL;
  size_t next = 0;
  int64_t at = t->event_count && t->events[0].at_ns < t->start_ns ? t->events[0].at_ns : t->start_ns;
  int r = sl_db_ask(t->page->db, sl_sql_timeline_windows, SL_WITH(SL_NUMBER(":rank", t->rank)), &rows, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(rows, error)) > 0) {
    struct window step = {.step = sl_column_int(rows, 0), .same_as = sl_column_int(rows, 1)};
    struct window between = {.step = -1, .same_as = -1, .start_ns = at, .peak_bytes = -1, .first = next};
    step.start_ns = sl_column_int(rows, 2) > at ? sl_column_int(rows, 2) : at;
    step.end_ns = sl_column_int(rows, 3) > step.start_ns ? sl_column_int(rows, 3) : step.start_ns;
    step.peak_ns = sl_column_int(rows, 4);
    step.peak_bytes = sl_column_int(rows, 5);
    while (next < t->event_count && t->events[next].at_ns < step.start_ns)
      next++;
    between.end_ns = step.start_ns;
    between.count = next - between.first;
    step.first = next;
    while (next < t->event_count && t->events[next].at_ns <= step.end_ns)
      next++;
    step.count = next - step.first;
    if (between.end_ns > between.start_ns || between.count)
      r = add_window(t, &between);
    if (r == 0)
      r = add_window(t, &step);
    if (r < 0) {
      r = out_of_memory(error);
      break;
    }
    at = step.end_ns;
  }
  rows = sl_statement_close(rows);
  if (r < 0)
    return r;
  struct window last = {.step = -1, .same_as = -1, .start_ns = at, .peak_bytes = -1, .first = next};
  last.count = t->event_count - next;
  last.end_ns = t->end_ns > at ? t->end_ns : at;
  if (last.count && t->events[t->event_count - 1].at_ns > last.end_ns)
    last.end_ns = t->events[t->event_count - 1].at_ns;
  if ((last.end_ns > last.start_ns || last.count) && add_window(t, &last) < 0)
    return out_of_memory(error);
  return 0;
}

/* ---- choosing ---- */

/* The window of a step that has rows, or -1. */
static int64_t find_step(const struct timeline *t, int64_t step) {
  for (size_t i = 0; i < t->window_count; i++)
    if (t->windows[i].step == step && t->windows[i].same_as < 0)
      return (int64_t)i;
  return -1;
}

/*
 * A step whose rows are another one's has that one's window, and what lies before it the window before that one. Few
 * rows of its own may be left, of what outlived it.
 */
static void find_repeated(struct timeline *t) {
  for (size_t i = 0; i < t->window_count; i++) {
    struct window *window = &t->windows[i], *before = i && t->windows[i - 1].step < 0 ? window - 1 : NULL;
    window->repeats = window->same_as < 0 ? -1 : find_step(t, window->same_as);
    if (window->repeats < 0)
      continue;
    t->windows[window->repeats].repeated = true;
    if (before && window->repeats > 0 && t->windows[window->repeats - 1].step < 0)
      before->repeats = window->repeats - 1;
    else if (before && i > 1 && window[-2].repeats >= 0) /* nothing: what was there stays */
      before->repeats = (int64_t)i - 2;
  }
}

static void hold_in_full(struct window *window, int64_t *left) {
  if (!window->full && window->repeats < 0 && (int64_t)window->count <= *left) {
    window->full = true;
    *left -= (int64_t)window->count;
  }
}

/* The step asked for, the one with the peak, the first three, the last, those that stand for others; then as room
 * lasts. */
static void choose_full(struct timeline *t) {
  int64_t left = FULL_EVENTS / t->page->drawn;
  size_t peak = 0, steps = 0;
  struct window *last = NULL;
  for (size_t i = 0; i < t->window_count; i++)
    if (t->windows[i].step >= 0) {
      last = &t->windows[i];
      if (last->step == t->page->step)
        last->full = true;
      if (last->peak_bytes > t->windows[peak].peak_bytes)
        peak = i;
    }
  if (t->window_count)
    hold_in_full(&t->windows[peak], &left);
  for (size_t i = 0; i < t->window_count && steps < 3; i++) {
    hold_in_full(&t->windows[i], &left);
    steps += t->windows[i].step >= 0;
  }
  if (last)
    hold_in_full(last, &left);
  for (size_t i = 0; i < t->window_count; i++)
    if (t->windows[i].repeated)
      hold_in_full(&t->windows[i], &left);
  for (size_t i = t->window_count; i-- > 0;) /* from the end: that is where a job died */
    hold_in_full(&t->windows[i], &left);
}

/* Marks the events of a window that become samples. total is what is allocated before it; returns that after it. */
static int64_t choose_samples(struct timeline *t, struct window *window, int64_t stretches, int64_t total) {
  const struct event *events = &t->events[window->first];
  uint8_t *keep = &t->keep[window->first];
  int64_t length = window->end_ns - window->start_ns + 1, before = total;
  size_t highest = 0, lowest = 0;
  int64_t high = 0, low = 0, stretch = -1;

  window->highest_bytes = total;
  for (size_t i = 0; i < window->count; i++) {
    total += events[i].change;
    if (total > window->highest_bytes)
      window->highest_bytes = total;
  }
  if (window->full) {
    memset(keep, 1, window->count);
    return total;
  }
  total = before;
  for (size_t i = 0; i < window->count; i++) {
    double place = ((double)events[i].at_ns - (double)window->start_ns) / (double)length;
    int64_t here = place <= 0 ? 0 : place >= 1 ? stretches - 1 : (int64_t)(place * (double)stretches);
    total += events[i].change;
    if (here != stretch) {
      if (stretch >= 0)
        keep[highest] = keep[lowest] = 1;
      stretch = here;
      highest = lowest = i;
      high = low = total;
    }
    if (total > high) {
      high = total;
      highest = i;
    }
    if (total < low) {
      low = total;
      lowest = i;
    }
    /* The instant that the ledger calls the peak's. */
    if (events[i].at_ns <= window->peak_ns && (i + 1 == window->count || events[i + 1].at_ns > window->peak_ns))
      keep[i] = 1;
  }
  if (window->count)
    keep[highest] = keep[lowest] = keep[window->count - 1] = 1;
  return total;
}

/* ---- writing ---- */

static void add_start(const struct timeline *t, struct sl_bytes *values) {
  uint64_t count = 0;
  for (size_t i = 0; i < t->owner_count; i++)
    count += t->bytes[i] != 0;
  sl_bytes_add_number(values, count);
  for (size_t i = 0; i < t->owner_count; i++)
    if (t->bytes[i] != 0) {
      sl_bytes_add_number(values, i);
      sl_bytes_add_signed(values, t->bytes[i]);
    }
}

static void add_sample(struct timeline *t, struct sl_bytes *values, size_t changed) {
  uint64_t count = 0;
  for (size_t i = 0; i < changed; i++)
    count += t->changes[t->changed[i]] != 0;
  sl_bytes_add_number(values, count);
  for (size_t i = 0; i < changed; i++) {
    int64_t *change = &t->changes[t->changed[i]];
    if (*change != 0) {
      sl_bytes_add_number(values, t->changed[i]);
      sl_bytes_add_signed(values, *change);
    }
    *change = 0;
    t->has_changed[t->changed[i]] = 0;
  }
}

static int write_window(struct timeline *t, struct window *window) {
  struct sl_bytes values = {0}, times = {0};
  size_t changed = 0;
  int64_t before = window->start_ns;
  int r = 0;

  add_start(t, &values);
  for (size_t i = 0; i < window->count; i++) {
    const struct event *event = &t->events[window->first + i];
    if (!t->has_changed[event->owner])
      t->changed[changed++] = event->owner;
    t->has_changed[event->owner] = 1;
    t->bytes[event->owner] += event->change;
    t->changes[event->owner] += event->change;
    if (!t->keep[window->first + i])
      continue;
    int64_t at = event->at_ns > before ? event->at_ns : before; /* before recording began: what was there at attach */
    sl_bytes_add_number(&times, (uint64_t)(at - before));
    add_sample(t, &values, changed);
    before = at;
    changed = 0;
    window->samples++;
  }
  if (values.failed || times.failed)
    r = -ENOMEM;
  if (r == 0)
    r = sl_page_share(t->page, &t->shared, &values, &window->values);
  window->times = t->page->samples.size;
  sl_bytes_add(&t->page->samples, times.data, times.size);
  sl_bytes_free(&values);
  sl_bytes_free(&times);
  return t->page->samples.failed ? -ENOMEM : r;
}

/* Applies what is left of a window that another one stands for. Returns how much more is allocated after it. */
static int64_t skip_window(struct timeline *t, const struct window *window) {
  int64_t change = 0;
  for (size_t i = window->first; i < window->first + window->count; i++) {
    t->bytes[t->events[i].owner] += t->events[i].change;
    change += t->events[i].change;
  }
  return change;
}

static int write_samples(struct timeline *t, struct sl_error *error) {
  int64_t stretches = SAMPLES / t->page->drawn / 2 / ((int64_t)t->window_count + 1);
  int64_t total = 0;
  stretches = stretches < STRETCHES_LEAST ? STRETCHES_LEAST : stretches > STRETCHES_MOST ? STRETCHES_MOST : stretches;
  t->keep = calloc(t->event_count + 1, 1);
  t->bytes = calloc(t->owner_count + 1, sizeof(*t->bytes));
  t->changes = calloc(t->owner_count + 1, sizeof(*t->changes));
  t->changed = calloc(t->owner_count + 1, sizeof(*t->changed));
  t->has_changed = calloc(t->owner_count + 1, 1);
  if (!t->keep || !t->bytes || !t->changes || !t->changed || !t->has_changed)
    return out_of_memory(error);
  for (size_t i = 0; i < t->window_count; i++) {
    if (t->windows[i].repeats >= 0) {
      total += skip_window(t, &t->windows[i]);
      continue;
    }
    total = choose_samples(t, &t->windows[i], stretches, total);
    if (write_window(t, &t->windows[i]) < 0)
      return out_of_memory(error);
  }
  return 0;
}

static void write_index(struct timeline *t, int64_t zero_ns, bool first) {
  FILE *json = t->page->json;
  fprintf(json, "%s{\"rank\":%" PRId64 ",\"owners\":[", first ? "" : ",", t->rank);
  for (size_t i = 0; i < t->owner_count; i++) {
    if (i)
      fputc(',', json);
    if (t->owners[i].module < 0)
      fputs("[null,", json);
    else
      fprintf(json, "[%" PRId64 ",", t->owners[i].module);
    sl_json_text(json, t->owners[i].category);
    fputc(',', json);
    sl_json_text(json, t->owners[i].detail);
    fputc(']', json);
  }
  /* Columns as report/data.js names them. */
  fputs("],\"windows\":[", json);
  for (size_t i = 0; i < t->window_count; i++) {
    const struct window *w = &t->windows[i];
    fprintf(json, "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d,%zu,%" PRId64 ",%zu,%zu,%" PRId64 "]",
            i ? "," : "", w->step, w->start_ns - zero_ns, w->end_ns - zero_ns, w->repeats, w->full, w->count,
            w->samples, w->values, w->times,
            w->peak_bytes < 0 || w->repeats >= 0 ? 0 : w->highest_bytes - w->peak_bytes);
  }
  fputs("]}", json);
}

static void free_timeline(struct timeline *t) {
  for (size_t i = 0; i < t->owner_count; i++) {
    free(t->owners[i].category);
    free(t->owners[i].detail);
  }
  free(t->owners);
  free(t->events);
  free(t->windows);
  free(t->shared.list);
  free(t->bytes);
  free(t->changes);
  free(t->changed);
  free(t->has_changed);
  free(t->keep);
}

static int write_rank(struct sl_page *page, int64_t rank, int64_t zero_ns, void *context, struct sl_error *error) {
  struct timeline t = {.page = page, .rank = rank};
  bool *first = context;
  int r = read_span(&t, error);
  if (r == 0)
    r = read_owners(&t, error);
  if (r == 0)
    r = read_events(&t, error);
  if (r == 0)
    r = read_windows(&t, error);
  if (r == 0) {
    find_repeated(&t);
    choose_full(&t);
    r = write_samples(&t, error);
  }
  if (r == 0)
    write_index(&t, zero_ns, *first);
  *first = false;
  free_timeline(&t);
  return r;
}

int sl_page_timeline(struct sl_page *page, struct sl_error *error) {
  bool first = true;
  fputs(",\"timeline\":[", page->json);
  int r = sl_page_each_rank(page, true, write_rank, &first, error);
  fputs("]", page->json);
  return r;
}
