/*
 * What `run` and `rehearse` do before a job starts, a directory for its logs and the variables that attach the plugin,
 * and after it has ended: what it recorded.
 */
#ifndef SHARDLEDGER_RECORDING_H
#define SHARDLEDGER_RECORDING_H

#include <stdbool.h>

/* Whether a job has recorded something there. */
bool sl_holds_a_run(const char *directory);

/*
 * Makes the run directory, or a sibling of it when it holds an earlier run, and gives its absolute path, since the
 * command may change directories. The caller frees *out. Returns 1 when it made the directory, 0 when that was there,
 * or a negative errno after saying why, in the name of the command.
 */
int sl_recording_directory(const char *command, const char *wanted, bool siblings, char **out);

/* It was made for nothing, then; it stays when something else than rules is in it. */
void sl_recording_remove(const char *directory);

/*
 * The variables that attach the plugin. Another tool in CUDA's place is started by the plugin, before itself; one in
 * NVTX's place keeps it, because there is room for one only, and the companion's ranges come without NVTX.
 */
void sl_recording_inject(const char *plugin, const char *directory, const char *command);

/*
 * Makes the ledger and prints its summary; of a command that failed, why it may have died comes first, and of a
 * rehearsal whether it fits comes last. What fails here is said, and is not the command's failure.
 */
void sl_recording_show(const char *directory, bool keep_all, bool failed);

#endif
