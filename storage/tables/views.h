/* The views of views/: their SQL, and each one's name with what the comment before it says. */
#ifndef SHARDLEDGER_VIEWS_H
#define SHARDLEDGER_VIEWS_H

#include <stdbool.h>

struct sl_view {
  char name[64];
  char meaning[4096]; /* in one line */
  const char *rest;   /* of sl_views_sql */
};

/* The first one of a zeroed *view, then the next; false: that was the last. */
bool sl_view_next(struct sl_view *view);

/* The one of that name; false: it is none of ours, and *view is empty. */
bool sl_view_find(const char *name, struct sl_view *view);

/* The views of views/; where these say `-- CATEGORIES` there is a column for each. NULL: no memory. Free it. */
char *sl_views_text(void);

#endif
