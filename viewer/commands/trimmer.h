/* Trimming the logs of a running job (storage/trim/run_trim.h), for `trim` and, in a process beside the job, for `run`.
 */
#ifndef SHARDLEDGER_TRIMMER_H
#define SHARDLEDGER_TRIMMER_H

#include <sys/types.h>

/* Why nothing of the log in directory can be dropped, on stderr. */
void sl_trimmer_say(const char *directory, const char *text);

/*
 * Until the job has ended or a signal stops it; while `parent`, unless that is 0, is our parent, until a signal does.
 * Takes SIGINT, SIGTERM and SIGHUP of the process, and a low priority. 0 or a negative errno.
 */
int sl_trimmer_follow(const char *directory, pid_t parent);

/*
 * Starts a process for it where SHARDLEDGER_MAX_BYTES and SHARDLEDGER_AT_MAX=keep-last ask for one. It is in a group of
 * its own, so what a terminal sends to the job does not end it, and goes on should we be killed. 0: there is none.
 */
pid_t sl_trimmer_start(const char *directory);

/* Ends it at once; 0 is fine. */
void sl_trimmer_stop(pid_t trimmer);

#endif
