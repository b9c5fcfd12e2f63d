/* enum sl_category and its words; the list is categories.def. */
#ifndef SHARDLEDGER_CATEGORIES_H
#define SHARDLEDGER_CATEGORIES_H

enum sl_category {
#define CATEGORY(name, fsdp_word, tracker_word, layer, letter, style, colour, meaning) SL_CATEGORY_##name,
#include "categories.def"
#undef CATEGORY
  SL_CATEGORY_built_in,   /* user categories are numbered from here */
  SL_CATEGORY_limit = 64, /* more user categories than this share the last number */
};

struct sl_category_info {
  const char *name;         /* in the ledger */
  const char *fsdp_word;    /* FSDPMemTracker's word */
  const char *tracker_word; /* MemTracker's word */
  int layer;                /* in a stack, from 1 at the bottom */
  char letter;              /* in a map of segments */
  const char *colour;       /* #rrggbb; NULL: the page's ink */
  const char *meaning;
};

/* The built-in categories, SL_CATEGORY_built_in entries. */
extern const struct sl_category_info sl_categories[];

/* Number of a built-in category, or -1. */
int sl_category_find(const char *name);

#endif
