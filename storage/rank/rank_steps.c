/* Facts about steps. */
#include "rank_steps.h"

#include "storage/grow.h"

#include <errno.h>

void sl_rank_steps_free(struct sl_rank_steps *steps) {
  free(steps->optimizer_starts.list);
  free(steps->backward_starts.list);
  *steps = (struct sl_rank_steps){0};
}

static int position_add(struct sl_positions *positions, uint64_t at) {
  uint64_t *added = SL_LIST_ADD_ROOM(positions->list, positions->count, &positions->capacity);
  if (!added)
    return -ENOMEM;
  *added = at;
  return 0;
}

int sl_rank_steps_opened(struct sl_rank_steps *steps, const struct sl_phase *phase, uint64_t at) {
  if (phase->kind == SL_KIND_optimizer_step)
    return position_add(&steps->optimizer_starts, at);
  if (phase->kind == SL_KIND_backward && !phase->module)
    return position_add(&steps->backward_starts, at);
  return 0;
}

void sl_rank_steps_ended(struct sl_rank_steps *steps) {
  steps->optimizer_starts.count = steps->backward_starts.count = 0;
  steps->gradients_tagged = false;
}

struct sl_step_facts sl_rank_steps_facts(struct sl_rank_steps *steps, int64_t step, bool cut_off) {
  return (struct sl_step_facts){
      .step = step,
      .optimizer_starts = steps->optimizer_starts.list,
      .optimizer_start_count = steps->optimizer_starts.count,
      .backward_starts = steps->backward_starts.list,
      .backward_start_count = steps->backward_starts.count,
      .modules_known = steps->companion,
      .gradients_tagged = steps->gradients_tagged,
      .workspaces = steps->workspaces_recorded ? NULL : &steps->workspaces,
      .cut_off = cut_off,
  };
}
