/*
 * A recorded optimizer's steps, where it is one of those that change_optimizer.h lists, to the byte and in their order.
 */
#ifndef SHARDLEDGER_OPTIMIZER_RECORD_H
#define SHARDLEDGER_OPTIMIZER_RECORD_H

#include "storage/predict/tape/tape.h"

enum sl_optimizer {
  SL_OPTIMIZER_as_recorded,
  SL_OPTIMIZER_foreach,
  SL_OPTIMIZER_fused,
  SL_OPTIMIZER_forloop,
  SL_OPTIMIZER_sgd,
  SL_OPTIMIZER_host
};

struct sl_optimizer_parameter { /* by its states, of sl_tape.allocations; UINT32_MAX: has none such */
  uint32_t step, first, second;
};

struct sl_optimizer_window { /* one step of an optimizer: what was made in it, in order: states, then temporaries */
  const struct sl_tape_optimizer_step *at;
  enum sl_optimizer from;
  uint32_t *made; /* of sl_tape.allocations */
  size_t count, states;
  size_t first, parameters; /* its optimizer's, of all */
};

struct sl_optimizer_record {
  struct sl_optimizer_window *windows;
  size_t window_count;
  struct sl_optimizer_parameter *parameters; /* in the order of their first step */
  size_t parameter_count;
};

/*
 * Of steps first to last (INT64_MAX: to the end); free it with sl_optimizer_record_free. 0; -ENOTSUP, with the reason
 * as the rest of a sentence in error; or -ENOMEM.
 */
int sl_optimizer_record_read(const struct sl_tape *tape, int64_t first, int64_t last, struct sl_optimizer_record *out,
                             struct sl_error *error);
void sl_optimizer_record_free(struct sl_optimizer_record *record);

/* Of the n-th parameter of a window's optimizer; of the n-th temporary of a window. */
static inline uint64_t sl_optimizer_bytes(const struct sl_tape *tape, const struct sl_optimizer_record *record,
                                          const struct sl_optimizer_window *window, size_t n) {
  return tape->allocations[record->parameters[window->first + n].first].requested;
}

static inline const struct sl_tape_allocation *
sl_optimizer_temporary(const struct sl_tape *tape, const struct sl_optimizer_window *window, size_t n) {
  return &tape->allocations[window->made[window->states + n]];
}

#endif
