/* Numbers for categories' names. */
#include "category_names.h"

#include "user_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add(struct sl_category_names *names, const char *name) {
  names->own[names->count] = strdup(name);
  return names->own[names->count] ? names->count++ : -ENOMEM;
}

int sl_category_names_init(struct sl_category_names *names, const struct sl_user_rules *rules) {
  size_t count;
  const char *const *own = sl_user_rules_own_categories(rules, &count);
  int r = 0;
  names->count = SL_CATEGORY_built_in;
  for (size_t i = 0; i < count && r >= 0; i++)
    r = add(names, own[i]);
  return r < 0 ? r : 0;
}

void sl_category_names_free(struct sl_category_names *names) {
  for (int i = SL_CATEGORY_built_in; i < names->count; i++)
    free(names->own[i]);
}

const char *sl_category_name(const struct sl_category_names *names, int category) {
  return category < SL_CATEGORY_built_in ? sl_categories[category].name : names->own[category];
}

int sl_category_number(struct sl_category_names *names, const char *name) {
  int number = sl_category_find(name);
  if (number >= 0)
    return number;
  for (number = SL_CATEGORY_built_in; number < names->count; number++)
    if (strcmp(names->own[number], name) == 0)
      return number;
  return names->count == SL_CATEGORY_limit || !*name ? SL_CATEGORY_other : add(names, name);
}
