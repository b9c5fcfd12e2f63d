/*
 * Ranks that are equal to the byte are one class from the start. Then the largest class leads a group, and all that are
 * like it join; of what is left the largest leads the next one. Where classes are equally large, as where every rank
 * has figures of its own, the one in the middle leads: all others are nearest to it.
 */
#include "rank_likeness.h"

#include "rank_slope.h"
#include "rank_tolerance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_CHANGES 4 /* of a rank between steps: fewer tell no noise */
#define MIDDLES 32      /* groups for whose leader a middle is found; a job with more has none */
#define NOBODY SIZE_MAX

struct likeness {
  const struct sl_rank_figures *figures;
  const struct sl_peak_parts *parts;
  struct sl_noise noise;
  struct sl_likeness *out;
  size_t *order;            /* ranks, equal ones side by side */
  size_t *class_size;       /* of each rank's class; 0: not the first one of its class */
  size_t *filled;           /* slots that a rank has */
  struct sl_figure *middle; /* of the ranks without a group, slot by slot */
  int64_t *values, *steps;  /* room for as many as there are ranks, slots */
};

static int64_t distance(int64_t a, int64_t b) {
  return a > b ? a - b : b - a;
}

static int compare_numbers(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* The lower one of two; 0 of none. Sorts. */
static int64_t median(int64_t *values, size_t count) {
  qsort(values, count, sizeof *values, compare_numbers);
  return count ? values[(count - 1) / 2] : 0;
}

/* ---- noise ---- */

static void find_middle(struct likeness *k) {
  const struct sl_rank_figures *f = k->figures;
  for (size_t slot = 0; slot < f->slots; slot++)
    for (int is_end = 0; is_end < 2; is_end++) {
      size_t count = 0;
      for (size_t rank = 0; rank < f->count; rank++) {
        const struct sl_figure *figure = &sl_rank_figures_of(f, rank)[slot];
        if (k->out[rank].group == NOBODY && figure->peak != SL_FIGURE_NONE && figure->end != SL_FIGURE_NONE)
          k->values[count++] = is_end ? figure->end : figure->peak;
      }
      const int64_t value = count ? median(k->values, count) : SL_FIGURE_NONE;
      *(is_end ? &k->middle[slot].end : &k->middle[slot].peak) = value;
    }
}

static int64_t figure_of(const struct sl_figure *figure, bool is_end) {
  return is_end ? figure->end : figure->peak;
}

/* Of one rank; -1: too few steps. */
static int64_t rank_noise(struct likeness *k, size_t rank, bool is_end, int64_t *changes) {
  const struct sl_figure *own = sl_rank_figures_of(k->figures, rank);
  int64_t before = 0;
  size_t count = 0;
  bool is_first = true;
  for (size_t slot = SL_SLOT_steps; slot < k->figures->slots; slot += 2) {
    if (own[slot].peak == SL_FIGURE_NONE || own[slot].end == SL_FIGURE_NONE)
      continue;
    const int64_t away = figure_of(&own[slot], is_end) - figure_of(&k->middle[slot], is_end);
    if (!is_first)
      changes[count++] = away - before;
    before = away;
    is_first = false;
  }
  if (count < LEAST_CHANGES)
    return -1;
  const int64_t usual = median(changes, count);
  for (size_t i = 0; i < count; i++)
    changes[i] = distance(changes[i], usual);
  return median(changes, count);
}

static int64_t find_noise(struct likeness *k, bool is_end) {
  size_t count = 0;
  for (size_t rank = 0; rank < k->figures->count; rank++) {
    const int64_t noise = rank_noise(k, rank, is_end, k->steps);
    if (noise >= 0)
      k->values[count++] = noise;
  }
  return median(k->values, count);
}

/* ---- two ranks ---- */

static bool same_parts(const struct likeness *k, size_t leader, size_t rank) {
  const uint32_t *ranks = k->figures->ranks;
  return sl_peak_parts_compare(k->parts, ranks[leader], ranks[rank], k->noise.peak).bytes == 0;
}

/* 1, 0 or -ENOMEM. */
static int are_alike(struct likeness *k, size_t leader, size_t rank) {
  const struct sl_figure *x = sl_rank_figures_of(k->figures, leader), *y = sl_rank_figures_of(k->figures, rank);
  int64_t *const ends = k->values; /* as long as the figures, too */
  size_t common = 0, steps = 0;
  for (size_t slot = 0; slot < k->figures->slots; slot++) {
    if (x[slot].peak == SL_FIGURE_NONE || y[slot].peak == SL_FIGURE_NONE)
      continue;
    const int64_t tolerance = sl_tolerance(x[slot].peak, k->noise.peak);
    const bool x_cut = x[slot].end == SL_FIGURE_NONE, y_cut = y[slot].end == SL_FIGURE_NONE;
    if ((!y_cut && x[slot].peak - y[slot].peak > tolerance) || (!x_cut && y[slot].peak - x[slot].peak > tolerance) ||
        (!x_cut && !y_cut && distance(x[slot].end, y[slot].end) > sl_tolerance(x[slot].peak, k->noise.end)))
      return 0;
    common++;
    if (!x_cut && !y_cut && slot >= SL_SLOT_steps && (slot - SL_SLOT_steps) % 2 == 0) {
      k->steps[steps] = k->figures->first_step + (int64_t)(slot - SL_SLOT_steps) / 2 * k->figures->steps_per_slot;
      ends[steps++] = y[slot].end - x[slot].end;
    }
  }
  struct sl_slope slope;
  const int runs_away = common ? sl_slope_find(k->steps, ends, steps, k->noise.end, &slope) : 1;
  return runs_away < 0 ? runs_away : !runs_away && same_parts(k, leader, rank);
}

/* ---- all of them ---- */

static int compare_figures(const struct likeness *k, size_t a, size_t b) {
  return memcmp(sl_rank_figures_of(k->figures, a), sl_rank_figures_of(k->figures, b),
                k->figures->slots * sizeof(struct sl_figure));
}

static int compare_ranks(const void *a, const void *b, void *context) {
  const size_t x = *(const size_t *)a, y = *(const size_t *)b;
  const int r = compare_figures(context, x, y);
  return r ? r : x < y ? -1 : x > y;
}

static void find_classes(struct likeness *k) {
  const size_t count = k->figures->count;
  for (size_t rank = 0; rank < count; rank++) {
    const struct sl_figure *own = sl_rank_figures_of(k->figures, rank);
    k->order[rank] = rank;
    for (size_t slot = 0; slot < k->figures->slots; slot++)
      k->filled[rank] += own[slot].peak != SL_FIGURE_NONE;
  }
  qsort_r(k->order, count, sizeof *k->order, compare_ranks, k);
  size_t first = 0;
  for (size_t i = 0; i < count; i++) {
    if (compare_figures(k, k->order[first], k->order[i]) != 0)
      first = i;
    k->class_size[k->order[first]]++;
  }
}

static double from_middle(const struct likeness *k, size_t rank) {
  const struct sl_figure *own = sl_rank_figures_of(k->figures, rank);
  double sum = 0;
  for (size_t slot = 0; slot < k->figures->slots; slot++)
    if (own[slot].peak != SL_FIGURE_NONE && own[slot].end != SL_FIGURE_NONE)
      sum +=
          (double)distance(own[slot].peak, k->middle[slot].peak) + (double)distance(own[slot].end, k->middle[slot].end);
  return sum;
}

/* Whether a rank leads rather than another: with (nearly) all steps, and of the larger class. 0: neither. */
static int leads(const struct likeness *k, size_t rank, size_t other, size_t most) {
  const bool is_whole = k->filled[rank] >= most - most / 10, other_is_whole = k->filled[other] >= most - most / 10;
  if (is_whole != other_is_whole)
    return is_whole - other_is_whole;
  return (k->class_size[rank] > k->class_size[other]) - (k->class_size[rank] < k->class_size[other]);
}

/* Of the ranks without a group the one to lead the next; of several in the same place the one in the middle. */
static size_t find_leader(struct likeness *k, bool by_middle) {
  size_t best = NOBODY, most = 0;
  bool several = false;
  for (size_t rank = 0; rank < k->figures->count; rank++)
    if (k->out[rank].group == NOBODY && k->filled[rank] > most)
      most = k->filled[rank];
  for (size_t rank = 0; rank < k->figures->count; rank++) {
    if (k->out[rank].group != NOBODY || k->class_size[rank] == 0)
      continue;
    const int before = best == NOBODY ? 1 : leads(k, rank, best, most);
    several = before == 0 || (before < 0 && several);
    best = before > 0 ? rank : best;
  }
  if (!several || !by_middle)
    return best;
  find_middle(k);
  double nearest = from_middle(k, best);
  for (size_t rank = best + 1; rank < k->figures->count; rank++)
    if (k->out[rank].group == NOBODY && k->class_size[rank] > 0 && leads(k, rank, best, most) == 0) {
      const double away = from_middle(k, rank);
      best = away < nearest ? rank : best;
      nearest = away < nearest ? away : nearest;
    }
  return best;
}

static int gather(struct likeness *k, size_t *groups) {
  for (*groups = 0;; ++*groups) {
    const size_t leader = find_leader(k, *groups < MIDDLES);
    if (leader == NOBODY)
      return 0;
    for (size_t i = 0; i < k->figures->count; i++) {
      const size_t rank = k->order[i];
      if (k->out[rank].group != NOBODY)
        continue;
      const int alike = rank == leader ? 1 : are_alike(k, leader, rank);
      if (alike < 0)
        return alike;
      if (alike)
        k->out[rank] = (struct sl_likeness){*groups, leader};
      else if (compare_figures(k, rank, leader) == 0) /* its class is led by another one: it may lead itself */
        k->class_size[rank] = 1;
    }
  }
}

/* ---- by size ---- */

struct group {
  size_t number, size, leader;
  int64_t peak;
};

static int larger_first(const void *a, const void *b) {
  const struct group *x = a, *y = b;
  if (x->size != y->size)
    return x->size > y->size ? -1 : 1;
  if (x->peak != y->peak)
    return x->peak < y->peak ? -1 : 1;
  return x->leader < y->leader ? -1 : x->leader > y->leader;
}

static int64_t highest_peak(const struct likeness *k, size_t rank) {
  const struct sl_figure *own = sl_rank_figures_of(k->figures, rank);
  int64_t peak = 0;
  for (size_t slot = 0; slot < k->figures->slots; slot++)
    peak = own[slot].peak > peak ? own[slot].peak : peak;
  return peak;
}

static int sort_by_size(struct likeness *k, size_t groups) {
  struct group *sorted = calloc(groups + 1, sizeof *sorted);
  size_t *number = calloc(groups + 1, sizeof *number);
  if (sorted && number) {
    for (size_t rank = 0; rank < k->figures->count; rank++) {
      struct group *group = &sorted[k->out[rank].group];
      *group = (struct group){k->out[rank].group, group->size + 1, k->out[rank].leader,
                              highest_peak(k, k->out[rank].leader)};
    }
    qsort(sorted, groups, sizeof *sorted, larger_first);
    for (size_t i = 0; i < groups; i++)
      number[sorted[i].number] = i;
    for (size_t rank = 0; rank < k->figures->count; rank++)
      k->out[rank].group = number[k->out[rank].group];
  }
  const int r = sorted && number ? 0 : -ENOMEM;
  free(sorted);
  free(number);
  return r;
}

int sl_likeness_find(const struct sl_rank_figures *figures, const struct sl_peak_parts *parts, struct sl_noise *noise,
                     struct sl_likeness *out, size_t *groups) {
  const size_t count = figures->count, room = count > figures->slots ? count : figures->slots;
  struct likeness k = {
      .figures = figures,
      .parts = parts,
      .out = out,
      .order = calloc(count + 1, sizeof *k.order),
      .class_size = calloc(count + 1, sizeof *k.class_size),
      .filled = calloc(count + 1, sizeof *k.filled),
      .middle = calloc(figures->slots, sizeof *k.middle),
      .values = calloc(room + 1, sizeof *k.values),
      .steps = calloc(room + 1, sizeof *k.steps),
  };
  int r = -ENOMEM;
  if (!k.order || !k.class_size || !k.filled || !k.middle || !k.values || !k.steps)
    goto finish;
  for (size_t rank = 0; rank < count; rank++)
    out[rank] = (struct sl_likeness){NOBODY, 0};
  find_classes(&k);
  find_middle(&k);
  k.noise = (struct sl_noise){find_noise(&k, false), find_noise(&k, true)};
  *noise = k.noise;
  r = gather(&k, groups);
  if (r == 0)
    r = sort_by_size(&k, *groups);
finish:
  free(k.order);
  free(k.class_size);
  free(k.filled);
  free(k.middle);
  free(k.values);
  free(k.steps);
  return r;
}
