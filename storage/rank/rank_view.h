/* A rank's ledger in the making, for those who look on while its log grows: all of it may be read and nothing changed.
 */
#ifndef SHARDLEDGER_RANK_VIEW_H
#define SHARDLEDGER_RANK_VIEW_H

#include "rank_allocations.h"
#include "rank_ledger.h"
#include "rank_memory.h"
#include "rank_period.h"
#include "rank_steps.h"
#include "storage/rules/category_names.h"

/* Valid until the builder takes its next event. */
struct sl_rank_view {
  uint64_t at; /* position in the event sequence */
  const struct sl_rank_memory *memory;
  const struct sl_rank_allocations *allocations;
  const struct sl_rank_steps *steps;
  const struct sl_category_names *categories;
  const struct sl_period_row *current; /* the period that goes on */
  const struct sl_period_row *outside; /* what was before the step that goes on; NULL: nothing that waits */
  const struct sl_phases *phases;
  uint64_t retries; /* that were served */
  bool saw_fsdp;    /* as sl_module_states_saw_fsdp */
};

void sl_rank_view(const struct sl_rank_builder *b, struct sl_rank_view *out);

/* The phase that an event belongs to; NULL: none. */
const struct sl_phase *sl_rank_view_phase(const struct sl_rank_builder *b, const struct sl_event *event);

#endif
