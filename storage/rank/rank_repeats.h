/*
 * Training repeats itself. The rows of a period that did what an earlier one did (rank_pattern.h) are left out, and its
 * row in `period` says which one speaks for it.
 *
 * A period's rows wait until the next one has ended: the last step of a log is kept whatever it did, and only then it
 * is known which of its allocations go on. So three periods' rows are in memory at most.
 *
 * Always kept are the first steps and what is around them, a period unlike the latest kept ones, the last step and what
 * follows it; what outlives the step after its own; everything of the driver; losses.
 *
 * An allocation or phase that reaches into the next period is kept if either is, so that whatever was alive in a kept
 * period is there.
 */
#ifndef SHARDLEDGER_RANK_REPEATS_H
#define SHARDLEDGER_RANK_REPEATS_H

#include "rank_allocations.h"
#include "rank_life.h"

struct sl_rank_repeats;

/* All stay the caller's, and must outlive it. NULL: no memory. */
struct sl_rank_repeats *sl_rank_repeats_new(struct sl_ledger_writer *writer, struct sl_phases *phases,
                                            const struct sl_rank_allocations *allocations);
struct sl_rank_repeats *sl_rank_repeats_free(struct sl_rank_repeats *repeats); /* returns NULL */

void sl_rank_repeats_keep_all(struct sl_rank_repeats *repeats);
bool sl_rank_repeats_keeps_next(const struct sl_rank_repeats *repeats); /* the period that begins now, in any case */

/* ---- where rows go ---- */

struct sl_rows *sl_rank_rows_of(const struct sl_rank_repeats *repeats, struct sl_rank_period *period);

/*
 * Those of something that ends in a period and began at this position. false: they are kept in any case, since it comes
 * from a kept period.
 */
bool sl_rank_rows_since(const struct sl_rank_repeats *repeats, struct sl_rank_period *period, uint64_t begun_at,
                        struct sl_rows **to);

/* Those of the device at this time. false: they are left out. */
bool sl_rank_rows_of_device(struct sl_rank_repeats *repeats, struct sl_rank_life *life, uint64_t at_ns,
                            struct sl_rows **to);

/* ---- what becomes of them. 0 or a negative errno ---- */

/* A collective's row, of whichever period. */
int sl_rank_repeats_collective(struct sl_rank_repeats *repeats, struct sl_rank_life *life,
                               const struct sl_collective_row *row, struct sl_error *error);

/* The period has been summed up: does it repeat another one? Settles the one before it. */
int sl_rank_repeats_decide(struct sl_rank_repeats *repeats, struct sl_rank_period *period, struct sl_error *error);

/* All its rows are made. Takes over what waits of the period, and leaves it empty lists. */
int sl_rank_repeats_end(struct sl_rank_repeats *repeats, struct sl_rank_period *period, struct sl_error *error);

/* What was held back until here, of the period that goes on too, is kept. */
int sl_rank_repeats_flush(struct sl_rank_repeats *repeats, struct sl_rank_period *current, struct sl_error *error);

/* The same, and no step will follow: everything from here on is kept. */
int sl_rank_repeats_last(struct sl_rank_repeats *repeats, struct sl_rank_period *current, struct sl_error *error);

/* The log has ended, and all collectives are known. */
int sl_rank_repeats_finish(struct sl_rank_repeats *repeats, struct sl_error *error);

#endif
