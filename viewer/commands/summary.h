/* The first things to know about a run: whether the record is whole, how high the peak was, and what it consisted of.
 */
#ifndef SHARDLEDGER_SUMMARY_H
#define SHARDLEDGER_SUMMARY_H

#include "ask_ledger.h"
#include "output/table.h"

#define SL_RANKS_SIDE_BY_SIDE 8 /* of more, reports show the highest and the spread */

/*
 * The first line of every report: lost events and unattributed bytes, also when there are none, and that it is a
 * rehearsal. CSV and JSON keep stdout to the data: there it goes to stderr, and only when something is missing. 0 or a
 * negative errno.
 */
int sl_print_coverage(struct sl_db *db, struct sl_output *out, struct sl_error *error);

/*
 * The highest point of every rank's life, where it was and its categories; without PyTorch's allocations the driver's.
 * Text output only. 0 or a negative errno.
 */
int sl_print_summary(struct sl_db *db, struct sl_output *out, bool in_info, struct sl_error *error);

/*
 * Where PyTorch's allocations are not in the record: the highest point of the driver's, by library and range. ranks: of
 * these; all. why: where to read on when there are none either. Data has the table alone. 0 or a negative errno.
 */
int sl_print_driver_peak(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, const char *why,
                         struct sl_error *error);

/*
 * Where the step that was asked for (-1: none) repeats another one: whose rows are shown for it. To stdout in text,
 * else to stderr. 0 or a negative errno.
 */
int sl_print_repeated(struct sl_db *db, struct sl_output *out, int64_t step, struct sl_error *error);

/* The colour that stands for a category, also for one that only this run knows. */
enum sl_style sl_category_style(const char *category);

#endif
