/*
 * Which of a directory's processes ran together. SHARDLEDGER_DIR may be used by one job after the other, by two at the
 * same time, and by a job that is restarted, in whole or in part: each of these is a run of its own, and ranks of two
 * are never taken for one.
 *
 * Processes are taken by the time of their start. Each goes to the run of its family (run_identity.h) that has a place
 * for its rank and has not ended; where several do, launcher, communicator and time decide. Where launchers gave no id,
 * the id of the communicator with all ranks is looked up as soon as there is a doubt.
 */
#ifndef SHARDLEDGER_RUN_ATTEMPTS_H
#define SHARDLEDGER_RUN_ATTEMPTS_H

#include "run_directory.h"

/*
 * Makes run->attempts of run->processes, of which there is one at least, and puts the processes in the order of their
 * attempts, the ranks of each in order. 0 or a negative errno.
 */
int sl_run_sort(struct sl_run *run, struct sl_error *error);

/*
 * The attempt that the user means by a number from 1 (the oldest) or an id; of several with that id the newest; NULL or
 * "": the newest. -EINVAL, with the sentence: there is none.
 */
int sl_run_choose(const struct sl_run *run, const char *directory, const char *word, size_t *out,
                  struct sl_error *error);

/* One sentence on what there is in the directory, or in it and others, and what of it is used. */
void sl_run_note(const struct sl_run *run, const char *directory, size_t directories, struct sl_error *note);

void sl_attempt_free(struct sl_attempt *attempt); /* what it owns */

#endif
