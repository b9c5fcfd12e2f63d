#include "categories.h"

#include <string.h>

const struct sl_category_info sl_categories[] = {
#define CATEGORY(name, fsdp_word, plain_word, meaning) {#name, fsdp_word, plain_word, meaning},
#include "categories.def"
#undef CATEGORY
};

int sl_category_find(const char *name) {
  for (int i = 0; i < SL_CATEGORY_built_in; i++)
    if (strcmp(sl_categories[i].name, name) == 0)
      return i;
  return -1;
}
