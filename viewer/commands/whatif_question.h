/* What 'shardledger whatif' was asked: its options, and what they change. */
#ifndef SHARDLEDGER_WHATIF_QUESTION_H
#define SHARDLEDGER_WHATIF_QUESTION_H

#include "ask_ledger.h"
#include "command.h"
#include "storage/predict/changes/changes.h"
#include "storage/predict/replay/whatif.h"

enum sl_whatif_by { SL_WHATIF_life, SL_WHATIF_period };

struct sl_whatif_question {
  struct sl_whatif_change change;
  const char *alloc_conf;
  int64_t device_bytes, limit_bytes, recorded_limit_bytes; /* 0: not given */
  struct sl_changes changes;
  int optimizer;                           /* enum sl_optimizer */
  const char *steps;                       /* "3-5"; NULL: all */
  const char *reshard;                     /* as-recorded, off, on, or ranks; NULL: as recorded */
  int64_t world_size;                      /* -1: as recorded */
  const char *recompute, *mixed_precision; /* "bf16", "bf16,bf16" */
  int64_t accumulate, loss_chunks;         /* -1: as recorded */
  bool no_sync, optimizer_in_backward, offload_optimizer;
  const char *batch, *sequence; /* "2", "2/3" */
  struct sl_text_list at;       /* "2=DIR" */
  bool no_workspaces, floor;
  int by;
  struct sl_ranks ranks;
};

/* The change as it was asked for; what is wrong with it is said. */
bool sl_whatif_take(struct sl_whatif_question *question);
void sl_whatif_say(struct sl_output *out, const struct sl_whatif_question *question);

/* Opens the other runs that --at names. 0, or a negative errno with the sentence in error; close them in any case. */
int sl_whatif_open(struct sl_whatif_question *question, struct sl_error *error);
void sl_whatif_close(struct sl_whatif_question *question);

#endif
