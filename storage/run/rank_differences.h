/* In what one rank differs from another: the facts of rank_difference, to the byte and over all steps. */
#ifndef SHARDLEDGER_RANK_DIFFERENCES_H
#define SHARDLEDGER_RANK_DIFFERENCES_H

#include "rank_likeness.h"

enum sl_fact_kind { SL_FACT_growth, SL_FACT_peak, SL_FACT_outside, SL_FACT_end, SL_FACT_category, SL_FACT_kinds };

/* A column's words and meaning: rank_difference in tables.def. */
struct sl_rank_fact {
  enum sl_fact_kind kind;
  int64_t bytes, bytes_per_step;
  int64_t since_step, last_step; /* INT64_MIN: before the first step; SL_NONE: to the end */
  int64_t steps;
  int64_t period, base_period; /* of the two ranks; -1: the base has none like it */
};

/*
 * The facts by which rank differs from base, what to say first first: the largest one. They are SL_FACT_kinds at most,
 * and one at least. Returns how many, or a negative errno.
 */
int sl_rank_differences_find(struct sl_db *db, uint32_t base, uint32_t rank, const struct sl_noise *noise,
                             const struct sl_peak_parts *parts, struct sl_rank_fact out[SL_FACT_kinds],
                             struct sl_error *error);

const char *sl_fact_word(enum sl_fact_kind kind);

#endif
