/*
 * A run of memory snapshots of PyTorch's: each file is a rank, and all that were named are one run. The rank is what
 * the file's name tells (sl_snapshot_rank); where no name tells one, they are 0, 1, … in the order given, those of a
 * directory by name.
 */
#ifndef SHARDLEDGER_RUN_SNAPSHOTS_H
#define SHARDLEDGER_RUN_SNAPSHOTS_H

#include "run_directory.h"

/*
 * Gives the run's processes, which are snapshots, their ranks, and makes one attempt of them. directory and attempt:
 * what the user named. -EINVAL, with the sentence: two files of one rank, names of which only some tell a rank,
 * something else than a snapshot among them, or an attempt other than the first.
 */
int sl_run_of_snapshots(struct sl_run *run, const char *directory, const char *attempt, struct sl_error *error);

#endif
