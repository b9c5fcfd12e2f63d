/* What every command that asks a ledger has in common: open it, print, say what went wrong, end with the right status.
 */
#ifndef SHARDLEDGER_REPORT_H
#define SHARDLEDGER_REPORT_H

#include "command.h"
#include "storage/db.h"

/* Prints from an open ledger. 0, or a negative errno with the sentence in error. context is the command's own. */
typedef int sl_report(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error);

/* path NULL: the default directory. Returns the exit status. */
int sl_print_report(const char *path, const struct sl_output_arguments *format, sl_report *report, void *context);

#endif
