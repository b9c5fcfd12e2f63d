/* What a rehearsal's record says at its end: whether the ranks fit, and what is not in it. */
#ifndef SHARDLEDGER_REHEARSAL_RESULT_H
#define SHARDLEDGER_REHEARSAL_RESULT_H

#include "output/table.h"
#include "storage/tables/db.h"

/*
 * A line for each rank on a device of the size that was asked for, else of the real one's; then that NCCL's memory is
 * not in the figures, and what is known of it. Text output only; nothing of a run that is no rehearsal. 0 or a negative
 * errno.
 */
int sl_print_rehearsal(struct sl_db *db, struct sl_output *out, struct sl_error *error);

#endif
