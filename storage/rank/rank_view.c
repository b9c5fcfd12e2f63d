/* What others may see of a rank's ledger in the making. */
#include "rank_view.h"

#include "rank_builder.h"

void sl_rank_view(const struct sl_rank_builder *b, struct sl_rank_view *out) {
  *out = (struct sl_rank_view){
      .at = b->clock.at,
      .memory = &b->memory,
      .allocations = &b->allocations,
      .steps = &b->steps,
      .categories = &b->categories,
      .current = &b->life.current.row,
      .outside = b->life.outside_waits ? &b->life.outside.row : NULL,
      .phases = b->phases,
      .retries = sl_retries_served(b->retries),
      .saw_fsdp = sl_module_states_saw_fsdp(b->states),
  };
}

const struct sl_phase *sl_rank_view_phase(const struct sl_rank_builder *b, const struct sl_event *event) {
  return sl_rank_phase_of(b, event);
}
