/* What every command that asks a ledger has in common: open it, print, say what went wrong, end with the right status.
 */
#ifndef SHARDLEDGER_REPORT_H
#define SHARDLEDGER_REPORT_H

#include "command.h"
#include "storage/tables/db.h"

/*
 * Prints from an open ledger. 0, or a negative errno with the sentence in error, which the ledger's path is put before.
 * context is the command's own.
 */
typedef int sl_report(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error);

/* path NULL: the default directory. Returns the exit status. */
int sl_print_report(const char *path, const struct sl_output_arguments *format, sl_report *report, void *context);

/* Says an error of something else than the report's own ledger, so that nothing is put before it. Returns r. */
int sl_say_other(int r, struct sl_error *error);

/*
 * The ranks that are asked for, as SL_ARGUMENT_RANKS has them. SQL compares with rank_in(rank, :rank), and ':rank' is
 * bound as SL_RANKS says. {0}: all.
 */
struct sl_ranks {
  const char *text; /* "0-3,7"; NULL: all */
  char one[24];     /* text, after sl_ranks_narrow */
};
#define SL_RANKS(ranks) SL_WORD(":rank", (ranks)->text)
void sl_ranks_narrow(struct sl_ranks *ranks, int64_t rank); /* to this one */

/* The option of every command that can speak of some ranks only. */
#define SL_RANKS_ARGUMENT(ranks)                                                                                       \
  { "rank", 0, "RANKS", "these ranks only, such as 7 or 0-3,7", SL_ARGUMENT_RANKS, &(ranks).text }

/*
 * Whether the ledger has these ranks, of a range at least one, and this step (-1: not asked for) on any of them. 0, or
 * a negative errno with the sentence in error, which says what there is.
 */
int sl_check_selection(struct sl_db *db, const struct sl_ranks *ranks, int64_t step, struct sl_error *error);

#endif
