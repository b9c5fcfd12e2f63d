/* Finds the largest batch that fits, from runs with other batches. */
#include "largest_batch.h"

#include "storage/predict/changes/changes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ALLOCATED = 1, RESERVED = 3 };

struct search {
  struct sl_db *db;
  const struct sl_goal *goal;
  const struct sl_batch_run *runs;
  size_t count;
  struct sl_tape recorded;
  struct sl_replay unchanged;
  struct sl_largest_batch *out;
  struct sl_error *error;
};

/* The tape with a batch; where it is the run's own, as recorded: *out stays empty. */
static int batch_tape(const struct search *s, uint64_t batch, struct sl_tape *out) {
  struct sl_changes changes = {.scale = (double)batch / (double)s->out->own, .run_count = s->count};
  for (size_t i = 0; i < s->count; i++)
    changes.runs[i] = (struct sl_changes_run){s->runs[i].db, (double)s->runs[i].batch / (double)s->out->own};
  return batch == s->out->own ? 0 : sl_changes_make(s->db, &s->recorded, &changes, out, s->error);
}

static int ask(const struct search *s, const struct sl_tape *changed, uint64_t limit, unsigned plays,
               struct sl_whatif *out) {
  const struct sl_whatif_change change = {
      .limit_bytes = limit, .room_without_end = !limit, .most_plays = plays, .unchanged = &s->unchanged};
  int r = sl_whatif_ask(&s->recorded, changed, &change, out);
  return r < 0 ? sl_no_memory(s->error) : 0;
}

/* What is refused of a batch is of all, but for one that is too large. */
static int refuse(const struct search *s, const char *why) {
  snprintf(s->out->why, sizeof s->out->why, "%.399s", why);
  return 0;
}

static int batch_try(const struct search *s, uint64_t batch, unsigned plays, bool *fits) {
  struct sl_tape changed = {0};
  struct sl_whatif answer = {0};
  *fits = false;
  int r = batch_tape(s, batch, &changed);
  if (r == -ENOTSUP || r == -ENODATA) {
    refuse(s, s->error->text);
    s->error->text[0] = '\0';
    return 0;
  }
  if (r == 0)
    r = ask(s, changed.event_count ? &changed : NULL, s->goal->limit_bytes, plays, &answer);
  if (r == 0 && answer.standing == SL_STANDING_refused)
    refuse(s, answer.reason);
  else if (r == 0)
    *fits = answer.end == SL_END_all && !answer.out_of_memory;
  if (*fits) {
    s->out->plays = answer.plays;
    s->out->retries = answer.retries;
    s->out->allocated = answer.highest[ALLOCATED];
    s->out->reserved = answer.highest[RESERVED];
    snprintf(s->out->doubt, sizeof s->out->doubt, "%s", changed.doubt);
  }
  sl_whatif_free(&answer);
  sl_tape_free(&changed);
  return r;
}

/* What a batch needs that does not fit. */
static int next_read(const struct search *s, uint64_t batch) {
  struct sl_tape changed = {0};
  struct sl_whatif answer = {0};
  int r = batch_tape(s, batch, &changed);
  if (r == 0)
    r = ask(s, changed.event_count ? &changed : NULL, 0, 1, &answer);
  if (r == 0 && answer.standing != SL_STANDING_refused)
    s->out->next_allocated = answer.highest[ALLOCATED].low;
  sl_whatif_free(&answer);
  sl_tape_free(&changed);
  return r;
}

/* The largest of those up to high that fits with so many plays, given that none above does. */
static int search_below(const struct search *s, uint64_t low, uint64_t high, unsigned plays, uint64_t *found) {
  int r = 0;
  while (low < high && r == 0 && !*s->out->why) {
    const uint64_t middle = low + (high - low + 1) / 2;
    bool fits = false;
    r = batch_try(s, middle, plays, &fits);
    if (fits)
      low = middle;
    else
      high = middle - 1;
  }
  *found = low;
  return r;
}

/* With one play each, then from there down with all: those that fit in all of them. */
static int search(const struct search *s) {
  const uint64_t most = s->out->last * SL_LARGEST_FACTOR;
  uint64_t high = s->out->first, found = 0;
  bool fits = true;
  int r = 0;
  while (fits && r == 0 && high <= most && !*s->out->why) {
    r = batch_try(s, high, 1, &fits);
    if (fits)
      found = high;
    if (fits)
      high *= 2;
  }
  s->out->is_most = fits;
  if (r == 0 && !fits)
    r = search_below(s, found, high - 1, 1, &found);
  for (fits = false; r == 0 && found && !fits && !*s->out->why;) {
    r = batch_try(s, found, 0, &fits);
    if (!fits)
      found--;
  }
  s->out->batch = found;
  return r == 0 && !s->out->is_most && !*s->out->why ? next_read(s, found + 1) : r;
}

int sl_largest_batch(struct sl_db *db, const struct sl_goal *goal, uint64_t own, const struct sl_batch_run *runs,
                     size_t count, struct sl_largest_batch *out, struct sl_error *error) {
  struct search s = {.db = db, .goal = goal, .runs = runs, .count = count, .out = out, .error = error};
  *out = (struct sl_largest_batch){.own = own, .first = own, .last = own};
  for (size_t i = 0; i < count; i++) {
    out->first = runs[i].batch < out->first ? runs[i].batch : out->first;
    out->last = runs[i].batch > out->last ? runs[i].batch : out->last;
  }
  if (goal->is_refused)
    return refuse(&s, "a request was refused: name a run first that got through its steps, and a --budget");
  if (!goal->limit_bytes)
    return refuse(&s, "how much memory there is, is not recorded: --budget tells it");
  int r = sl_tape_read(db, goal->rank, &s.recorded, error);
  if (r == -ENODATA || r == -ENOTSUP) {
    refuse(&s, error->text);
    error->text[0] = '\0';
    return 0;
  }
  if (r == 0 && (r = sl_whatif_unchanged(&s.recorded, &s.unchanged, out->why, sizeof out->why)) < 0)
    r = sl_no_memory(error);
  if (r == 0 && !*out->why)
    r = search(&s);
  sl_replay_free(&s.unchanged);
  sl_tape_free(&s.recorded);
  return r;
}
