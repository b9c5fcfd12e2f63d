/*
 * How much of a collective nothing hid: the part of its time on the device in which no other kernel of the process ran
 * there. Needs the times of compute kernels (SHARDLEDGER_KERNELS=all); without any, collective.exposed_ns stays NULL.
 *
 *   collective      |-----------|          16 of time, of which 4 + 2 are exposed
 *   compute       |--|    |---|
 *   compute            |------|  |--|
 *
 * Compute is every kernel that is not NCCL's. Copies and memsets are not: they leave the SMs alone.
 */
#ifndef SHARDLEDGER_EXPOSED_TIME_H
#define SHARDLEDGER_EXPOSED_TIME_H

#include "storage/tables/ledger_writer.h"

/*
 * Fills exposed_ns of the rank that is being written, once all its kernels and collectives are. Both are swept in the
 * order of their starts, so it takes time as sorting does, and memory for the kernels that run during one collective.
 * 0 or a negative errno.
 */
int sl_exposed_time_write(struct sl_ledger_writer *writer, struct sl_error *error);

#endif
