/* The list as a table, made of categories.def. */
#include "categories.h"

#include <string.h>

const struct sl_category_info sl_categories[] = {
#define CATEGORY(name, fsdp_word, tracker_word, layer, letter, style, colour, meaning)                                 \
  {#name, fsdp_word, tracker_word, layer, letter, colour, meaning},
#include "categories.def"
#undef CATEGORY
};

int sl_category_find(const char *name) {
  for (int i = 0; i < SL_CATEGORY_built_in; i++)
    if (strcmp(sl_categories[i].name, name) == 0)
      return i;
  return -1;
}
