/* Adds the workspaces that cuBLAS makes on another thread. */
#include "thread_workspaces.h"

#include "storage/rules/categories.h"

static bool has_workspace(const struct sl_tape *tape, uint32_t workspace, int64_t tid, uint64_t bytes) {
  for (uint32_t i = 0; i < tape->allocation_count; i++) {
    const struct sl_tape_allocation *a = &tape->allocations[i];
    if (a->category == workspace && a->tid == tid && a->requested == bytes)
      return true;
  }
  return false;
}

int sl_thread_workspaces_add(struct sl_tape *tape, const struct sl_thread_workspaces *which, int32_t *offset) {
  uint32_t workspace = 0;
  int r = sl_tape_category(tape, sl_categories[SL_CATEGORY_workspace].name, &workspace);
  for (uint32_t i = 0; i < which->recorded && r == 0; i++) {
    if (tape->allocations[i].category != workspace)
      continue;
    struct sl_tape_allocation like = tape->allocations[i];
    if (like.dropped || like.tid != which->from_tid || has_workspace(tape, workspace, which->to_tid, like.requested) ||
        !which->is_wanted(which->context, i))
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
