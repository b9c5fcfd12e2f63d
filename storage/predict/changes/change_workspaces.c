/* Takes cuBLAS's workspaces out of PyTorch's pool. */
#include "change_workspaces.h"

#include "storage/rules/categories.h"

#include <errno.h>
#include <string.h>

int sl_change_no_workspaces(struct sl_tape *tape, struct sl_error *error) {
  size_t count = 0;
  for (size_t i = 0; i < tape->allocation_count; i++) {
    struct sl_tape_allocation *a = &tape->allocations[i];
    if (a->dropped || !sl_tape_is(&tape->categories, a->category, sl_categories[SL_CATEGORY_workspace].name))
      continue;
    a->dropped = true;
    count++;
  }
  if (!count)
    return sl_error_set(error, -ENOTSUP, "no workspace was recorded");
  sl_tape_sort(tape);
  return 0;
}
