/* Runs the user's command as if nobody stood between it and its parent. */
#ifndef SHARDLEDGER_CHILD_H
#define SHARDLEDGER_CHILD_H

#include <stdbool.h>

/*
 * Runs argv (NULL-terminated, found on PATH) in this process group and waits for it. Signals that are sent to this
 * process reach it once, however they come: those to the group reach it by themselves, the others are passed on.
 * Returns the exit status, 128 + signal after a signal, 127 when there is no such command, 126 when it can't be run
 * (said on stderr); in these two cases *started is false.
 */
int sl_run_child(char *const argv[], bool *started);

#endif
