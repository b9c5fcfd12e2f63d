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
 * Whether the ledger has this rank and this step of it, or of any rank; each may be -1: not asked for. 0, or a negative
 * errno with the sentence in error, which says what there is.
 */
int sl_check_selection(struct sl_db *db, int64_t rank, int64_t step, struct sl_error *error);

#endif
