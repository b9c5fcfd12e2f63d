/* What remains of NCCL's calls in steps whose own rows are left out: totals by step, communicator and operation. */
#ifndef SHARDLEDGER_COLLECTIVE_TOTALS_H
#define SHARDLEDGER_COLLECTIVE_TOTALS_H

#include "storage/error.h"
#include "storage/tables/ledger_writer.h"

#include <stddef.h>
#include <stdint.h>

struct sl_collective_totals;

struct sl_collective_totals *sl_collective_totals_new(void);                                 /* NULL: no memory */
struct sl_collective_totals *sl_collective_totals_free(struct sl_collective_totals *totals); /* returns NULL */

/* Counts a call of the period-th step, or of the time before it. 0 or -ENOMEM. */
int sl_collective_totals_add(struct sl_collective_totals *totals, size_t period, const struct sl_collective_row *row,
                             struct sl_error *error);

/* The period's own rows are kept. */
void sl_collective_totals_forget(struct sl_collective_totals *totals, size_t period);

/*
 * Writes and forgets what is counted for the periods before this one, whose steps step tells. What comes for them later
 * makes rows of its own.
 */
int sl_collective_totals_write(struct sl_collective_totals *totals, size_t before_period,
                               int64_t (*step)(void *context, size_t period), void *context,
                               struct sl_ledger_writer *writer, struct sl_error *error);

#endif
