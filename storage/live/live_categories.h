/*
 * What is alive right now, by category, while it is not known yet what will outlive what.
 *
 * The rules decide at the end of a step. Before it, an allocation is judged as if it died at once and as if it lived to
 * the end of the step: where both give the same category, that is it; else it is one of the two, "activation or temp".
 */
#ifndef SHARDLEDGER_LIVE_CATEGORIES_H
#define SHARDLEDGER_LIVE_CATEGORIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_rank_view;

enum { SL_LIVE_CATEGORY_CHARS = 96 };

struct sl_live_category {
  char name[SL_LIVE_CATEGORY_CHARS]; /* a category, several joined by " or ", or "not known yet": a tag may tell */
  bool several;                      /* which of them is not known yet */
  bool decided; /* nothing but a later tag changes it; else what outlives its step may also become `other` */
  uint64_t bytes;
};

/* The largest first; returns how many, at most capacity, with the rest added to the last one; SIZE_MAX: no memory. */
size_t sl_live_categories(const struct sl_rank_view *view, struct sl_live_category *out, size_t capacity);

#endif
