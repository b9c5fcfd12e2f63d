/* The largest batch that fits, as `advise` is asked for it, and prints it. */
#ifndef SHARDLEDGER_VIEWER_LARGEST_BATCH_H
#define SHARDLEDGER_VIEWER_LARGEST_BATCH_H

#include "command.h"
#include "output/table.h"
#include "storage/advise/largest_batch.h"

struct sl_batch_question {
  int64_t own;            /* -1: not asked */
  struct sl_text_list at; /* "8=DIR" */
  struct sl_batch_run runs[SL_SCALE_RUNS];
  size_t run_count;
};

/* What is wrong with it is said. */
bool sl_batch_take(const struct sl_batch_question *question);

/* Opens the other runs. 0, or a negative errno with the sentence in error; close them in any case. */
int sl_batch_begin(struct sl_batch_question *question, struct sl_error *error);
void sl_batch_done(struct sl_batch_question *question);

/* A line or two, and as data the table "batch". 0 or a negative errno with the sentence in error. */
int sl_print_largest_batch(struct sl_output *out, struct sl_db *db, const struct sl_goal *goal,
                           const struct sl_batch_question *question, struct sl_error *error);

#endif
