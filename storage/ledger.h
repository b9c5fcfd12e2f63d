/*
 * The ledger of a run: what `shardledger ingest` makes and every other command asks.
 */
#ifndef SHARDLEDGER_LEDGER_H
#define SHARDLEDGER_LEDGER_H

#include "error.h"
#include "ledger_options.h"
#include "storage/rules/user_rules.h"

#include <stddef.h>

#define SL_LEDGER_NAME "ledger.sqlite" /* inside a run directory */

/*
 * Builds the ledger of a run directory (its process directories' newest run) or of one process directory, and puts it
 * at output in one rename: a reader sees the old file or the whole new one.
 *
 * note receives one sentence for the user when something was left out on purpose (an older run in the same
 * directory), else "". -ENOENT: no such directory; -ENODATA: nothing recorded in it; -EBADMSG: damaged beyond use;
 * -EPROTO: made by a newer version; -EINVAL: the rules kept in the directory are wrong; -EACCES, -EROFS, -ENOSPC, …:
 * output can't be written. options may be NULL.
 */
int sl_ledger_build(const char *directory, const char *output, const struct sl_ledger_options *options,
                    struct sl_error *note, struct sl_error *error);

/*
 * The same from the directories of one job on several nodes: one ledger with all its ranks. What is not one job is
 * refused in words (-EINVAL): a rank that is in two of them, different numbers of ranks, no common communicator, no
 * common time. Rules of the options are not kept in the directories; those kept there have to be the same in all.
 */
int sl_ledger_merge(const char *const *directories, size_t count, const char *output,
                    const struct sl_ledger_options *options, struct sl_error *note, struct sl_error *error);

/*
 * Where the ledger of an attempt lies in its run directory: of the newest one, or NULL, SL_LEDGER_NAME, of an older one
 * a name with its number and start, so that none is taken for another's. Owned by the caller. As sl_ledger_build for
 * errors; -EINVAL: there is no such attempt.
 */
int sl_ledger_place(const char *directory, const char *attempt, char **out, struct sl_error *error);

/* 1 when the ledger at output is missing or older than a log or the rules in directory, 0 when it is current, or a
 * negative errno.
 */
int sl_ledger_is_stale(const char *directory, const char *output);

#endif
