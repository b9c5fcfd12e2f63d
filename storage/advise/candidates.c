/* Lists the changes that advice chooses among, for one rank's tape. */
#include "candidates.h"

#include "storage/predict/changes/change_loss_chunks.h"
#include "storage/predict/changes/change_optimizer.h"
#include "storage/predict/changes/change_optimizer_in_backward.h"
#include "storage/predict/changes/change_recompute.h"
#include "storage/predict/changes/change_reshard_on.h"
#include "storage/predict/changes/change_workspaces.h"
#include "storage/tables/sql_text.h"

/* ---- how each is made of a tape: apply_WORD ---- */

#define SETTING(...)
#define FACT(...)
#define CHANGE(word, excludes, turn, apply, ...)                                                                       \
  static int apply_##word(const struct sl_apply *with, struct sl_tape *tape, struct sl_error *error) {                 \
    (void)with;                                                                                                        \
    return apply;                                                                                                      \
  }
#define CALLS CHANGE
#include "candidates.def"
#undef SETTING
#undef FACT
#undef CHANGE
#undef CALLS

/* ---- the list ---- */

#define sl_advise_fact_none_sql NULL
#define ENTRY(word, excludes, conf, apply, options, turn, needs_calls, fact_text, fact_code, fact, kind, price, text,  \
              counted, code)                                                                                           \
  {#word,                                                                                                              \
   excludes,                                                                                                           \
   conf,                                                                                                               \
   apply,                                                                                                              \
   options,                                                                                                            \
   sl_advise_fact_##fact##_sql,                                                                                        \
   SL_CANDIDATE_##kind,                                                                                                \
   SL_PRICE_##price,                                                                                                   \
   text,                                                                                                               \
   counted,                                                                                                            \
   code,                                                                                                               \
   turn,                                                                                                               \
   needs_calls,                                                                                                        \
   fact_text,                                                                                                          \
   fact_code},
#define SETTING(word, excludes, conf, ...)                                                                             \
  ENTRY(word, excludes, conf, NULL, "", SL_TURNS, false, NULL, NULL, __VA_ARGS__)
#define FACT(word, excludes, ...) ENTRY(word, excludes, "", NULL, "", SL_TURNS, false, NULL, NULL, __VA_ARGS__)
#define CHANGE(word, excludes, turn, apply, options, ...)                                                              \
  ENTRY(word, excludes, "", apply_##word, options, SL_TURN_##turn, false, NULL, NULL, __VA_ARGS__)
#define CALLS(word, excludes, turn, apply, options, ...)                                                               \
  ENTRY(word, excludes, "", apply_##word, options, SL_TURN_##turn, true, __VA_ARGS__)
const struct sl_candidate sl_candidates[] = {
#include "candidates.def"
};
const int sl_candidate_count = sizeof sl_candidates / sizeof sl_candidates[0];
