#include "candidates.h"

#include "storage/predict/change_optimizer.h"
#include "storage/predict/change_workspaces.h"
#include "storage/tables/sql_text.h"

/* ---- how each is made of a tape: one line a change ---- */

#define APPLY(name, change)                                                                                            \
  static int sl_apply_##name(struct sl_tape *tape, struct sl_error *error) {                                           \
    return change;                                                                                                     \
  }
APPLY(adamw_fused, sl_change_optimizer(tape, SL_OPTIMIZER_fused, 0, INT64_MAX, error))
APPLY(adamw_forloop, sl_change_optimizer(tape, SL_OPTIMIZER_forloop, 0, INT64_MAX, error))
APPLY(sgd, sl_change_optimizer(tape, SL_OPTIMIZER_sgd, 0, INT64_MAX, error))
APPLY(no_workspaces, sl_change_no_workspaces(tape, error))

/* ---- the list ---- */

#define sl_advise_fact_NULL_sql NULL
#define CANDIDATE(word, excludes, conf, apply, options, fact, kind, price, text, counted, code)                        \
  {#word, excludes, conf, apply, options, sl_advise_fact_##fact##_sql, SL_CANDIDATE_##kind, SL_PRICE_##price,          \
   text,  counted,  code},
const struct sl_candidate sl_candidates[] = {
#include "candidates.def"
};
const int sl_candidate_count = sizeof sl_candidates / sizeof sl_candidates[0];
