/* Two leaders are held side by side, figure by figure: in how many they differ, and by how much. */
#include "rank_next_to.h"

#include "rank_tolerance.h"

#include <stdlib.h>

#define CANDIDATES 64 /* the largest groups: of more, none is what others usually do */

struct apart {
  size_t figures; /* that differ by more than the tolerance */
  double bytes;   /* that all figures differ by, together */
};

static void hold_apart(struct apart *apart, int64_t a, int64_t b, int64_t tolerance) {
  const int64_t bytes = llabs(a - b);
  apart->figures += bytes > tolerance;
  apart->bytes += (double)bytes;
}

static bool is_whole(const struct sl_figure *figure) {
  return figure->end != SL_FIGURE_NONE; /* else not there, or cut off before its peak */
}

/*
 * The figures are those of the time before the first step, or of a job without steps, and what each step's peak has
 * more than was allocated before it: what was kept in earlier steps, as a leak, is in no later figure.
 */
static struct apart find_apart(const struct sl_rank_figures *figures, const struct sl_noise *noise, size_t leader,
                               size_t rank) {
  const struct sl_figure *x = sl_rank_figures_of(figures, leader), *y = sl_rank_figures_of(figures, rank);
  static const enum sl_slot outside[] = {SL_SLOT_setup, SL_SLOT_whole};
  struct apart apart = {0};
  for (int i = 0; i < 2; i++)
    if (is_whole(&x[outside[i]]) && is_whole(&y[outside[i]])) {
      const struct sl_figure *a = &x[outside[i]], *b = &y[outside[i]];
      hold_apart(&apart, a->peak, b->peak, sl_tolerance(a->peak, noise->peak));
      hold_apart(&apart, a->end, b->end, sl_tolerance(a->peak, noise->end));
    }
  for (size_t slot = SL_SLOT_steps; slot < figures->slots; slot += 2) {
    const size_t before = slot == SL_SLOT_steps ? SL_SLOT_setup : slot - 1;
    if (is_whole(&x[slot]) && is_whole(&y[slot]) && is_whole(&x[before]) && is_whole(&y[before]))
      hold_apart(&apart, x[slot].peak - x[before].end, y[slot].peak - y[before].end,
                 sl_tolerance(x[slot].peak, noise->peak));
  }
  return apart;
}

static bool is_nearer(const struct apart *apart, const struct apart *other) {
  return apart->figures != other->figures ? apart->figures < other->figures : apart->bytes < other->bytes;
}

/*
 * The fewer figures differ than next to the largest group, the less it has to be in bytes. Without a clear difference
 * the largest group is it: all others are told next to that one, too.
 */
static bool is_worth_it(const struct apart *apart, const struct apart *largest) {
  const double most = apart->figures * 10 <= largest->figures * 9 ? 1 : apart->figures < largest->figures ? 0.5 : 0.25;
  return largest->figures > 0 && apart->figures <= largest->figures && apart->bytes <= most * largest->bytes;
}

void sl_rank_next_to(const struct sl_rank_figures *figures, const struct sl_noise *noise,
                     const struct sl_group_size *groups, size_t count, size_t *next_to) {
  for (size_t group = 0; group < count; group++) {
    const struct apart largest = find_apart(figures, noise, groups[0].leader, groups[group].leader);
    struct apart nearest = largest;
    next_to[group] = 0;
    for (size_t other = 1; other < CANDIDATES && other < group && groups[other].ranks >= 2 * groups[group].ranks;
         other++) {
      const struct apart apart = find_apart(figures, noise, groups[other].leader, groups[group].leader);
      if (is_nearer(&apart, &nearest) && is_worth_it(&apart, &largest)) {
        next_to[group] = other;
        nearest = apart;
      }
    }
  }
}
