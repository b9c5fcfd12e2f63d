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

#include "storage/ledger_options.h"
#include "storage/log/log_reader.h"
#include "storage/tables/ledger_writer.h"

/*
 * Reads log to its end and writes all rows of the writer's current rank. Progress is told in bytes of this log, of
 * total. 0, or a negative errno.
 */
int sl_rank_ledger_build(struct sl_log *log, struct sl_ledger_writer *writer, const struct sl_ledger_options *options,
                         uint64_t total, struct sl_error *error);

/*
 * The same event by event, for who reads a log that grows. Functions that return int give 0 or a negative errno, with
 * the reason in the error that the builder was made with.
 */
struct sl_rank_builder;
struct sl_rank_builder *sl_rank_builder_new(struct sl_log *log, struct sl_ledger_writer *writer,
                                            const struct sl_user_rules *rules,
                                            struct sl_error *error);     /* NULL: no memory */
struct sl_rank_builder *sl_rank_builder_free(struct sl_rank_builder *b); /* returns NULL */

/* Before the first event. Steps that repeat another are kept, too; */
void sl_rank_builder_keep_all(struct sl_rank_builder *b);
/* … and no more calls of NCCL than this wait for their kernels (sl_joiner_limit). */
void sl_rank_builder_limit_calls(struct sl_rank_builder *b, uint32_t waiting);

/*
 * Before the first event. Nothing is decided and nothing but periods and collectives is written: figures, places and
 * names of periods are the same, at less than half of the time.
 */
void sl_rank_builder_figures_only(struct sl_rank_builder *b);

int sl_rank_builder_event(struct sl_rank_builder *b, const struct sl_event *event);

#endif
