/* What would have helped where memory ran out. */
#ifndef SHARDLEDGER_OOM_OPTIONS_H
#define SHARDLEDGER_OOM_OPTIONS_H

#include "commands/oom_death.h"
#include "output/table.h"

/*
 * Prints what would help, each with an estimate of bytes from what was alive, what that counted, and whether it is a
 * bound; the largest first, but a leak before all when it is enough. 0 or a negative errno.
 */
int sl_print_oom_options(struct sl_db *db, struct sl_output *out, const struct sl_death *death, struct sl_error *error);

#endif
