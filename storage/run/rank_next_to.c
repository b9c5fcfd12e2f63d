/* Two leaders are held side by side, figure by figure: in how many they differ says more than by how much. */
#include "rank_next_to.h"

#include "rank_tolerance.h"

#include <stdlib.h>

#define CANDIDATES 64 /* the largest groups: of more, none is what others usually do */

struct apart {
  size_t figures; /* that differ by more than the tolerance: peaks, and ends */
  double bytes;   /* that all figures differ by, together */
};

static void hold_apart(struct apart *apart, int64_t a, int64_t b, int64_t tolerance) {
  const int64_t bytes = llabs(a - b);
  apart->figures += bytes > tolerance;
  apart->bytes += (double)bytes;
}

static struct apart find_apart(const struct sl_rank_figures *figures, const struct sl_noise *noise, size_t leader,
                               size_t rank) {
  const struct sl_figure *x = sl_rank_figures_of(figures, leader), *y = sl_rank_figures_of(figures, rank);
  struct apart apart = {0};
  for (size_t slot = 0; slot < figures->slots; slot++) {
    if (x[slot].end == SL_FIGURE_NONE || y[slot].end == SL_FIGURE_NONE) /* not there, or cut off before its peak */
      continue;
    hold_apart(&apart, x[slot].peak, y[slot].peak, sl_tolerance(x[slot].peak, noise->peak));
    hold_apart(&apart, x[slot].end, y[slot].end, sl_tolerance(x[slot].peak, noise->end));
  }
  return apart;
}

/*
 * A tenth fewer figures differ; or no more of them, by a quarter of the bytes. Less would change the group that most
 * are told next to for nothing.
 */
static bool is_nearer(const struct apart *apart, const struct apart *other) {
  if (other->figures == 0)
    return false;
  return apart->figures * 10 <= other->figures * 9 ||
         (apart->figures <= other->figures && apart->bytes * 4 <= other->bytes);
}

void sl_rank_next_to(const struct sl_rank_figures *figures, const struct sl_noise *noise,
                     const struct sl_group_size *groups, size_t count, size_t *next_to) {
  for (size_t group = 0; group < count; group++) {
    next_to[group] = 0;
    struct apart nearest = find_apart(figures, noise, groups[0].leader, groups[group].leader);
    for (size_t other = 1; other < group && other < CANDIDATES && groups[other].ranks > 1; other++) {
      const struct apart apart = find_apart(figures, noise, groups[other].leader, groups[group].leader);
      if (is_nearer(&apart, &nearest)) {
        next_to[group] = other;
        nearest = apart;
      }
    }
  }
}
