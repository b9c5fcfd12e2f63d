/* Pinned host memory over a rank's whole life: how much at most, and whether it grows from step to step. */
#ifndef SHARDLEDGER_DEVICE_PINNED_H
#define SHARDLEDGER_DEVICE_PINNED_H

#include "output/table.h"
#include "storage/tables/db.h"

/* Nothing where none was pinned. 0 or a negative errno. */
int sl_print_pinned_life(struct sl_db *db, struct sl_output *out, int64_t rank, struct sl_error *error);

#endif
