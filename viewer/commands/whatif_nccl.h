/* What NCCL would take beside PyTorch's memory on another number of ranks: an estimate, in no other figure. */
#ifndef SHARDLEDGER_WHATIF_NCCL_H
#define SHARDLEDGER_WHATIF_NCCL_H

#include "ask_ledger.h"

/* Text: a line for ranks that come to the same; data: the table `nccl`. 0, or a negative errno with the sentence in
 * error. */
int sl_print_whatif_nccl(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, struct sl_error *error);

#endif
