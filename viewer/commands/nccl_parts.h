/*
 * NCCL's calls added up by rank, operation, communicator and module, in a temporary table `part` that nccl.sql's
 * questions read. In one pass and by a hash table, since SQLite would sort millions of calls; the values that medians
 * need are kept as blobs, and the function median(blob) gives the lower median of all values in a group's blobs.
 */
#ifndef SHARDLEDGER_NCCL_PARTS_H
#define SHARDLEDGER_NCCL_PARTS_H

#include "storage/tables/db.h"

/* Makes the table. Parameters are those of nccl_calls: :rank and :step. 0 or a negative errno. */
int sl_nccl_parts_make(struct sl_db *db, const struct sl_parameter *parameters, struct sl_error *error);

#endif
