/* What decisions need to know of the steps, gathered as it happens. */
#ifndef SHARDLEDGER_RANK_STEPS_H
#define SHARDLEDGER_RANK_STEPS_H

#include "storage/attribution/attribution.h"

struct sl_positions { /* in the event sequence, increasing */
  uint64_t *list;     /* owned */
  size_t count, capacity;
};

/* Zero-initialise; free with sl_rank_steps_free. */
struct sl_rank_steps {
  struct sl_positions optimizer_starts, backward_starts; /* of the step that goes on */
  bool gradients_tagged;                                 /* in it */
  bool companion;                                        /* is there, and says what modules, steps and optimizers do */
  bool workspaces_recorded;                              /* PyTorch's own table of them was */
  struct sl_workspaces workspaces;
};

void sl_rank_steps_free(struct sl_rank_steps *steps);
int sl_rank_steps_opened(struct sl_rank_steps *steps, const struct sl_phase *phase, uint64_t at); /* 0 or -ENOMEM */
void sl_rank_steps_ended(struct sl_rank_steps *steps);

/* What is known of a step (-1: none) so far. cut_off: it has not ended. Decisions add to steps' workspaces. */
struct sl_step_facts sl_rank_steps_facts(struct sl_rank_steps *steps, int64_t step, bool cut_off);

#endif
