/* Scales batches or sequences by what several runs of one job show. */
#include "change_scale.h"

#include "storage/predict/tape/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX, LOOK_AHEAD = 256, AGREE = 3 };

struct list { /* allocations that a period makes, in order */
  uint32_t *items;
  size_t count;
};

struct change {
  struct sl_tape *tape;
  const struct sl_scale_run *runs;
  size_t count;
  double factor;
  bool at_most;
  struct sl_error *error;
  uint32_t *like[SL_SCALE_RUNS]; /* of each allocation: that of the other run */
  bool *compared;                /* of each: its period has one in all of them */
  size_t fitted, alone, steps;
};

/* ---- periods ---- */

/* One that has its own events: a repeat's are the other's. */
static const struct sl_tape_period *own_period(const struct sl_tape *tape, const struct sl_tape_period *period) {
  return period && period->same_as >= 0 ? sl_tape_period_find(tape, period->same_as) : period;
}

/* The same stretch of another run's life. */
static const struct sl_tape_period *period_like(const struct sl_tape *tape, const struct sl_tape_period *period) {
  for (size_t i = 0; i < tape->period_count; i++)
    if (tape->periods[i].step == period->step && strcmp(tape->periods[i].kind, period->kind) == 0)
      return own_period(tape, &tape->periods[i]);
  return NULL;
}

static int list_make(const struct sl_tape *tape, const struct sl_tape_period *period, struct list *out) {
  *out = (struct list){.items = reallocarray(NULL, period->end - period->first + 1, sizeof *out->items)};
  if (!out->items)
    return -ENOMEM;
  for (size_t i = period->first; i < period->end; i++)
    if (tape->events[i].kind == SL_TAPE_alloc)
      out->items[out->count++] = tape->events[i].index;
  return 0;
}

/* ---- likes ---- */

static bool is_like(const struct change *c, const struct sl_tape *other, uint32_t mine, uint32_t theirs) {
  const struct sl_tape_allocation *a = &c->tape->allocations[mine], *b = &other->allocations[theirs];
  return a->module_id == b->module_id && (a->state == 0) == (b->state == 0) &&
         strcmp(c->tape->phases.items[a->phase], other->phases.items[b->phase]) == 0;
}

static bool agree(const struct change *c, const struct sl_tape *other, const struct list *mine, size_t i,
                  const struct list *theirs, size_t j) {
  size_t n = 0;
  while (n < AGREE && i + n < mine->count && j + n < theirs->count &&
         is_like(c, other, mine->items[i + n], theirs->items[j + n]))
    n++;
  return n == AGREE || (n && (i + n == mine->count || j + n == theirs->count));
}

/* Sizes that differ where all others are as far apart tell that one of two is not the other's like. */
static bool is_shifted(const struct change *c, const struct sl_tape *other, uint32_t mine, uint32_t theirs,
                       double factor) {
  const double ratio =
      (double)other->allocations[theirs].requested / (double)(c->tape->allocations[mine].requested + 1);
  const double most = factor > 1 ? factor * factor : 1, least = factor > 1 ? 1 : factor * factor;
  return ratio > most * 1.5 + 1 || ratio < least * 0.5;
}

static void match(struct change *c, size_t run, const struct list *mine, const struct list *theirs) {
  const struct sl_tape *other = c->runs[run].tape;
  size_t i = 0, j = 0;
  while (i < mine->count && j < theirs->count) {
    if (agree(c, other, mine, i, theirs, j) &&
        !is_shifted(c, other, mine->items[i], theirs->items[j], c->runs[run].factor)) {
      c->like[run][mine->items[i++]] = theirs->items[j++];
      continue;
    }
    size_t skip_mine = 1, skip_theirs = 1, d = 1;
    for (; d < LOOK_AHEAD; d++) {
      skip_mine = d;
      skip_theirs = 0;
      if (agree(c, other, mine, i + d, theirs, j) && i + d < mine->count &&
          !is_shifted(c, other, mine->items[i + d], theirs->items[j], c->runs[run].factor))
        break;
      skip_mine = 0;
      skip_theirs = d;
      if (agree(c, other, mine, i, theirs, j + d) && j + d < theirs->count &&
          !is_shifted(c, other, mine->items[i], theirs->items[j + d], c->runs[run].factor))
        break;
      skip_mine = skip_theirs = d;
    }
    i += d == LOOK_AHEAD ? 1 : skip_mine;
    j += d == LOOK_AHEAD ? 1 : skip_theirs;
  }
}

static int period_match(struct change *c, const struct sl_tape_period *period) {
  struct list mine, theirs;
  int r = list_make(c->tape, period, &mine);
  if (r < 0)
    return r;
  for (size_t run = 0; run < c->count && r == 0; run++) {
    const struct sl_tape_period *other = period_like(c->runs[run].tape, period);
    if (!other && strcmp(period->kind, "step") == 0)
      r = sl_error_set(c->error, -ENOTSUP, "step %" PRId64 " is not in all of these runs", period->step);
    if (r < 0 || !other)
      break;
    r = list_make(c->runs[run].tape, other, &theirs);
    if (r == 0)
      match(c, run, &mine, &theirs);
    free(theirs.items);
  }
  for (size_t i = 0; i < mine.count && r == 0; i++)
    c->compared[mine.items[i]] = true;
  c->steps += strcmp(period->kind, "step") == 0;
  free(mine.items);
  return r;
}

/* ---- sizes ---- */

/* Through all points: the recorded run's is at 1. */
static double through(const double *at, const double *value, size_t count, double x) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    double part = value[i];
    for (size_t j = 0; j < count; j++)
      if (j != i)
        part *= (x - at[j]) / (at[i] - at[j]);
    sum += part;
  }
  return sum;
}

/* Through points of a concave function that starts at nothing: the least or the most that it can be. */
static double concave(const struct change *c, const double *at, const double *value, size_t count) {
  size_t below = SIZE_MAX, above = SIZE_MAX;
  for (size_t i = 0; i < count; i++) {
    if (at[i] <= c->factor && (below == SIZE_MAX || at[i] > at[below]))
      below = i;
    if (at[i] >= c->factor && (above == SIZE_MAX || at[i] < at[above]))
      above = i;
  }
  if (below == SIZE_MAX) /* smaller than all */
    return c->at_most ? value[above] : value[above] * c->factor / at[above];
  if (c->at_most) {
    const double in_proportion = value[below] * c->factor / at[below];
    return above != SIZE_MAX && value[above] < in_proportion ? value[above] : in_proportion;
  }
  if (above == SIZE_MAX || above == below)
    return value[below];
  return value[below] + (value[above] - value[below]) * (c->factor - at[below]) / (at[above] - at[below]);
}

static void size_change(struct change *c, uint32_t index) {
  struct sl_tape_allocation *a = &c->tape->allocations[index];
  double at[SL_SCALE_RUNS + 1] = {1}, value[SL_SCALE_RUNS + 1] = {(double)a->requested};
  size_t count = 1;
  bool differs = false;
  for (size_t run = 0; run < c->count; run++) {
    if (c->like[run][index] == NONE)
      continue;
    at[count] = c->runs[run].factor;
    value[count] = (double)c->runs[run].tape->allocations[c->like[run][index]].requested;
    differs |= value[count++] != value[0];
  }
  if (count == 1) {
    c->alone++;
    at[count] = 0; /* so that it grows with it */
    value[count++] = 0;
  } else if (!differs) {
    return;
  }
  const double size = count > 1 && at[1] > 0 && sl_is_staging(c->tape, index) ? concave(c, at, value, count)
                                                                              : through(at, value, count, c->factor);
  c->fitted++;
  a->requested = size < 1 ? 1 : (uint64_t)(size + 0.5);
}

/* What is fed to the model tells whether the other run is as much larger as is said: the largest of a period's inputs.
 */
static int factor_check(const struct change *c, size_t run) {
  enum { ONE_IN = 20 };
  const struct sl_tape *other = c->runs[run].tape;
  uint32_t largest = NONE;
  for (uint32_t i = 0; i < c->tape->allocation_count; i++) {
    const struct sl_tape_allocation *a = &c->tape->allocations[i];
    if (c->like[run][i] != NONE && a->step >= 0 && sl_tape_is(&c->tape->categories, a->category, "input") &&
        (largest == NONE || a->requested > c->tape->allocations[largest].requested))
      largest = i;
  }
  if (largest == NONE)
    return 0;
  const double mine = (double)c->tape->allocations[largest].requested,
               theirs = (double)other->allocations[c->like[run][largest]].requested, factor = c->runs[run].factor;
  if (theirs >= mine * factor * (1 - 1.0 / ONE_IN) && theirs <= mine * factor * (1 + 1.0 / ONE_IN))
    return 0;
  return sl_error_set(c->error, -ENOTSUP,
                      "the largest input of the other run is %.3g times as large as this run's, and not %.3g times",
                      theirs / mine, factor);
}

static int check(const struct change *c) {
  if (!c->count)
    return sl_error_set(c->error, -ENOTSUP, "how sizes grow can't be told from one run: --at names another one");
  for (size_t run = 0; run < c->count; run++) {
    const struct sl_tape *other = c->runs[run].tape;
    if (other->world_size != c->tape->world_size)
      return sl_error_set(c->error, -ENOTSUP,
                          "the other run has another number of ranks, so that is not all that differs");
    if (run && c->runs[run].factor == c->runs[0].factor)
      return sl_error_set(c->error, -ENOTSUP, "both other runs are of one size");
  }
  return 0;
}

int sl_change_scale(struct sl_tape *tape, const struct sl_scale_run *runs, size_t count, double factor, bool at_most,
                    struct sl_error *error) {
  struct change c = {.tape = tape,
                     .runs = runs,
                     .count = count,
                     .factor = factor,
                     .at_most = at_most,

                     .error = error};
  int r = check(&c);
  if (r < 0)
    return r;
  c.compared = calloc(tape->allocation_count + 1, sizeof *c.compared);
  r = c.compared ? 0 : -ENOMEM;
  for (size_t run = 0; run < count && r == 0; run++) {
    c.like[run] = reallocarray(NULL, tape->allocation_count + 1, sizeof *c.like[run]);
    if (c.like[run])
      memset(c.like[run], 0xff, (tape->allocation_count + 1) * sizeof *c.like[run]);
    else
      r = -ENOMEM;
  }
  for (size_t i = 0; i < tape->period_count && r == 0; i++)
    if (tape->periods[i].same_as < 0)
      r = period_match(&c, &tape->periods[i]);
  for (size_t run = 0; run < count && r == 0; run++)
    r = factor_check(&c, run);
  for (uint32_t i = 0; i < tape->allocation_count && r == 0; i++)
    if (c.compared[i] && !tape->allocations[i].dropped)
      size_change(&c, i);
  if (r == 0 && (!c.fitted || !c.steps))
    r = sl_error_set(error, -ENOTSUP, "nothing differs between these runs");
  if (r == 0)
    sl_tape_doubt(
        tape,
        "%zu sizes were fitted to %zu runs, and %zu that only this one has are taken to grow in proportion; at other "
        "sizes PyTorch may choose other kernels",
        c.fitted - c.alone, count + 1, c.alone);
  for (size_t run = 0; run < count; run++)
    free(c.like[run]);
  free(c.compared);
  return r;
}
