/* The changes that advice chooses among: candidates.def. */
#ifndef SHARDLEDGER_CANDIDATES_H
#define SHARDLEDGER_CANDIDATES_H

#include "storage/predict/changes/changes.h"
#include "storage/predict/tape/tape.h"

enum sl_price {                   /* where what a change costs in time comes from */
                SL_PRICE_nothing, /* none is known of */
                SL_PRICE_unknown, /* nothing in the record tells */
                SL_PRICE_forward, /* the forward of these modules, once more */
                SL_PRICE_gather,  /* all-gathers, once more */
                SL_PRICE_reduce,  /* reduce-scatters, for each micro-batch */
                SL_PRICE_copy,    /* gradients to the host and parameters back, at the rate of the run's own copies */
                SL_PRICE_batch,   /* as many samples take about as long */
};

enum sl_candidate_kind {
  SL_CANDIDATE_change,
  SL_CANDIDATE_leak,     /* whatever else would help is used up some steps later */
  SL_CANDIDATE_last,     /* it helps nearly always, and always costs: after the others */
  SL_CANDIDATE_training, /* its results are others */
};

struct sl_apply { /* what a change may need beside the tape */
  struct sl_db *db;
  bool at_latest; /* what a change leaves open ends as late as it can (sl_tape.most) */
};

struct sl_candidate {
  const char *word;
  int excludes;
  const char *conf;
  int (*apply)(const struct sl_apply *with, struct sl_tape *tape,
               struct sl_error *error); /* as changes of storage/predict; NULL: none */
  const char *options;
  const char *fact;
  enum sl_candidate_kind kind;
  enum sl_price price;
  const char *text, *counted, *code;
  enum sl_change_turn turn;          /* of apply */
  bool needs_calls;                  /* apply needs to know when modules ran, to the end of what is known */
  const char *fact_text, *fact_code; /* where it can't be predicted, instead of text and code; NULL: the same */
};

extern const struct sl_candidate sl_candidates[];
extern const int sl_candidate_count;

static inline bool sl_is_predictable(const struct sl_candidate *candidate) {
  return candidate->apply || *candidate->conf;
}

#endif
