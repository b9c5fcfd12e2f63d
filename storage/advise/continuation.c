/* Continues a tape that ended in a refused request, as far as its own record tells what followed. */
#include "continuation.h"

#include "continuation_cut.h"

#include <stdio.h>
#include <string.h>

int sl_continue(struct sl_db *db, const struct sl_goal *goal, struct sl_tape *tape, struct sl_continuation *out,
                struct sl_error *error) {
  struct sl_cut cut;
  *out = (struct sl_continuation){.rest = SL_REST_recorded, .as_step = -1};
  if (!goal->is_refused)
    return 0;
  out->rest = SL_REST_unknown;
  if (!goal->is_allocator || !goal->is_deadly) {
    snprintf(out->why, sizeof out->why, "%s",
             goal->is_allocator ? "the job went on after it, without what it had asked for"
                                : "it was a library's, which asked the driver");
    return 0;
  }
  if (!sl_cut_find(tape, goal, &cut)) {
    snprintf(out->why, sizeof out->why, "the allocator's own record has no such refused request");
    return 0;
  }
  if (strcmp(tape->periods[cut.period].kind, "step") != 0) {
    snprintf(out->why, sizeof out->why, "it was outside of steps, where nothing repeats");
    return 0;
  }
  int r = sl_continue_as_step(tape, goal, &cut, out);
  if (r == 0)
    r = sl_continue_optimizer(db, tape, goal, &cut, out, error);
  return r < 0 ? sl_no_memory(error) : 0;
}
