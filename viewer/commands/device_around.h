/* The device at any moment of a rank's life: the samples around it, and how far from it they were taken. */
#ifndef SHARDLEDGER_DEVICE_AROUND_H
#define SHARDLEDGER_DEVICE_AROUND_H

#include "ask_ledger.h"
#include "output/table.h"
#include "storage/tables/db.h"

/* Of ranks the first that was sampled. after_ns: since its beginning. 0 or a negative errno. */
int sl_print_device_around(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, int64_t after_ns,
                           struct sl_error *error);

#endif
