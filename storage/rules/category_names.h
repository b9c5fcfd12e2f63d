/* The categories of a rank by number: the built-in ones, those of the rules, then those of tags as they come. */
#ifndef SHARDLEDGER_CATEGORY_NAMES_H
#define SHARDLEDGER_CATEGORY_NAMES_H

#include "categories.h"

/* Free with sl_category_names_free. */
struct sl_category_names {
  char *own[SL_CATEGORY_limit]; /* from SL_CATEGORY_built_in on; owned */
  int count;                    /* of all, the built-in ones among them */
};

struct sl_user_rules;

/* Those of the rules first, since their numbers say so. 0 or -ENOMEM. */
int sl_category_names_init(struct sl_category_names *names, const struct sl_user_rules *rules);
void sl_category_names_free(struct sl_category_names *names);

const char *sl_category_name(const struct sl_category_names *names, int category);

/* The number of a category, known or new; SL_CATEGORY_other where there is no room for a new one. -ENOMEM. */
int sl_category_number(struct sl_category_names *names, const char *name);

#endif
