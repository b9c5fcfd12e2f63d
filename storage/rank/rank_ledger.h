/*
 * One rank's log becomes one rank's rows: the only place that knows the order of things.
 *
 *   log ─► phases ─► who and when ┐
 *       └► block map ─► how much ─┼► at each step's end: attribution ─► sweep ─► rows
 *       └► tags ─► what ──────────┘
 *
 * Memory is bounded by two steps and what is alive, not by the length of the log.
 */
#ifndef SHARDLEDGER_RANK_LEDGER_H
#define SHARDLEDGER_RANK_LEDGER_H

#include "storage/ledger.h"
#include "storage/log/log_reader.h"
#include "storage/tables/ledger_writer.h"

/*
 * Reads log to its end and writes all rows of the writer's current rank. Progress is told in bytes of this log, of
 * total. 0, or a negative errno.
 */
int sl_rank_ledger_build(struct sl_log *log, struct sl_ledger_writer *writer, const struct sl_ledger_options *options,
                         uint64_t total, struct sl_error *error);

#endif
