/* `peaks --by idle`: what was allocated at a peak, but used by no operator any more, or not yet. */
#ifndef SHARDLEDGER_PEAKS_IDLE_H
#define SHARDLEDGER_PEAKS_IDLE_H

#include "ask_ledger.h"

/*
 * Of these ranks the step, or the period (-1, -1: each one's highest step in which uses were followed). 0 or a negative
 * errno.
 */
int sl_print_peaks_idle(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, int64_t step,
                        int64_t period, struct sl_error *error);

#endif
