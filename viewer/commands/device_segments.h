/* `shardledger device --segments`: the map of PyTorch's segments at an instant, and over the steps. */
#ifndef SHARDLEDGER_DEVICE_SEGMENTS_H
#define SHARDLEDGER_DEVICE_SEGMENTS_H

#include "ask_ledger.h"
#include "output/table.h"

enum sl_segments_at {
  SL_SEGMENTS_fitting, /* where memory ran out, else the end of the last step */
  SL_SEGMENTS_step,    /* the end of a step */
  SL_SEGMENTS_peak,    /* the highest allocated bytes */
  SL_SEGMENTS_last,    /* the end of the last step */
  SL_SEGMENTS_oom,     /* where memory ran out */
};

struct sl_segments_question {
  enum sl_segments_at at;
  int64_t step;                 /* with SL_SEGMENTS_step */
  const struct sl_ranks *ranks; /* of these the one that it fits best */
  bool by_step;                 /* a line a step instead of a map */
};

/* 0 or a negative errno; what can't be shown is said on stderr. */
int sl_print_segments(struct sl_db *db, struct sl_output *out, const struct sl_segments_question *question,
                      struct sl_error *error);

#endif
