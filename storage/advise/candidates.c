#include "candidates.h"

#include "storage/predict/change_optimizer.h"
#include "storage/predict/change_workspaces.h"
#include "storage/tables/sql_text.h"

/* ---- how each is made of a tape: apply_WORD ---- */

#define SETTING(...)
#define FACT(...)
#define CHANGE(word, excludes, apply, ...)                                                                             \
  static int apply_##word(const struct sl_apply *with, struct sl_tape *tape, struct sl_error *error) {                 \
    (void)with;                                                                                                        \
    return apply;                                                                                                      \
  }
#include "candidates.def"
#undef SETTING
#undef FACT
#undef CHANGE

/* ---- the list ---- */

#define sl_advise_fact_none_sql NULL
#define ENTRY(word, excludes, conf, apply, options, fact, kind, price, text, counted, code)                            \
  {#word, excludes, conf, apply, options, sl_advise_fact_##fact##_sql, SL_CANDIDATE_##kind, SL_PRICE_##price,          \
   text,  counted,  code},
#define SETTING(word, excludes, conf, ...) ENTRY(word, excludes, conf, NULL, "", __VA_ARGS__)
#define FACT(word, excludes, ...) ENTRY(word, excludes, "", NULL, "", __VA_ARGS__)
#define CHANGE(word, excludes, apply, options, ...) ENTRY(word, excludes, "", apply_##word, options, __VA_ARGS__)
const struct sl_candidate sl_candidates[] = {
#include "candidates.def"
};
const int sl_candidate_count = sizeof sl_candidates / sizeof sl_candidates[0];
