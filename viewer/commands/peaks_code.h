/* `peaks --by line|operator|stack`: where in the code what was allocated at a peak was made. */
#ifndef SHARDLEDGER_PEAKS_CODE_H
#define SHARDLEDGER_PEAKS_CODE_H

#include "ask_ledger.h"

enum sl_peaks_code { SL_PEAKS_BY_line, SL_PEAKS_BY_operator, SL_PEAKS_BY_stack };

/*
 * Of these ranks the step, or the period (-1, -1: the highest period of each). source: with the text of each line,
 * where its file can be read. 0 or a negative errno.
 */
int sl_print_peaks_code(struct sl_db *db, struct sl_output *out, enum sl_peaks_code by, const struct sl_ranks *ranks,
                        int64_t step, int64_t period, bool source, struct sl_error *error);

#endif
