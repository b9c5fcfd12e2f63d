/* Adds the workspaces that cuBLAS makes on another thread. */
#include "thread_workspaces.h"

#include "storage/rules/categories.h"

static bool is_workspace(const struct sl_tape *tape, const struct sl_tape_allocation *a) {
  return sl_tape_is(&tape->categories, a->category, sl_categories[SL_CATEGORY_workspace].name);
}

static bool has_workspace(const struct sl_tape *tape, int64_t tid, uint64_t bytes) {
  for (uint32_t i = 0; i < tape->allocation_count; i++) {
    const struct sl_tape_allocation *a = &tape->allocations[i];
    if (is_workspace(tape, a) && a->tid == tid && a->requested == bytes)
      return true;
  }
  return false;
}

int sl_thread_workspaces_add(struct sl_tape *tape, const struct sl_thread_workspaces *which, int32_t *offset) {
  int r = 0;
  for (uint32_t i = 0; i < which->recorded && r == 0; i++) {
    struct sl_tape_allocation like = tape->allocations[i];
    if (!is_workspace(tape, &like) || like.dropped || like.tid != which->from_tid ||
        has_workspace(tape, which->to_tid, like.requested) || !which->is_wanted(which->context, i))
      continue;
    uint32_t copy = 0;
    like.tid = which->to_tid;
    like.free_event = 0; /* it stays */
    r = sl_tape_add(tape, &like, like.requested, &copy);
    if (r == 0)
      r = sl_tape_put(tape, SL_TAPE_alloc, copy, which->number, ++*offset);
  }
  return r;
}
