/*
 * What makes two ranks alike, and which ranks are.
 *
 * They are when in every slot that both have (rank_figures.h) their peaks, and what is allocated at the ends, differ by
 * no more than a tolerance, neither runs away from the other (rank_slope.h), and equal peaks consist of equal
 * categories. The tolerance: rank_tolerance.h.
 */
#ifndef SHARDLEDGER_RANK_LIKENESS_H
#define SHARDLEDGER_RANK_LIKENESS_H

#include "rank_figures.h"
#include "rank_peak_parts.h"

/*
 * How much ranks differ from step to step by chance: how a rank's distance from the middle of all ranks changes between
 * steps, less what it always changes by; the median over steps, and then over ranks. 0 in a job whose ranks do the
 * same, and also where groups of ranks differ for good.
 */
struct sl_noise {
  int64_t peak, end;
};

struct sl_likeness {
  size_t group;  /* of each rank of the figures: 0 is the largest, of equal ones that with the lower peak */
  size_t leader; /* index of the rank that speaks for the group */
};

/*
 * Puts figures->count items into out. Groups are numbered by size here; *groups is their number. 0 or -ENOMEM.
 */
int sl_likeness_find(const struct sl_rank_figures *figures, const struct sl_peak_parts *parts, struct sl_noise *noise,
                     struct sl_likeness *out, size_t *groups);

#endif
