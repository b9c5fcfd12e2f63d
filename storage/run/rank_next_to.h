/*
 * Which group a group of ranks is told next to: the largest one, but where it is more like another one. A rank of the
 * last pipeline stage differs from the first stage in all that this stage does, which would hide what is its own.
 */
#ifndef SHARDLEDGER_RANK_NEXT_TO_H
#define SHARDLEDGER_RANK_NEXT_TO_H

#include "rank_likeness.h"

/* Of a group, which are in the order of their sizes. */
struct sl_group_size {
  size_t leader; /* index in the figures */
  size_t ranks;
};

/* Fills in next_to for each of count groups: 0, or the index of a group of twice its ranks or more. */
void sl_rank_next_to(const struct sl_rank_figures *figures, const struct sl_noise *noise,
                     const struct sl_group_size *groups, size_t count, size_t *next_to);

#endif
