/*
 * Which process directories make up a run. SHARDLEDGER_DIR may be used by one job after the other, so a directory can
 * hold several runs: the newest one counts, and what is left out is said.
 */
#ifndef SHARDLEDGER_RUN_DIRECTORY_H
#define SHARDLEDGER_RUN_DIRECTORY_H

#include "storage/error.h"

#include <stddef.h>
#include <stdint.h>

struct sl_run_process {
  char *path;     /* of the process directory; owned by the run */
  uint32_t rank;  /* unique within the run */
  uint64_t bytes; /* of its log, on disk */
  uint64_t start_ns;
  int64_t world_size; /* -1: unknown */
  size_t directory;   /* which of the directories that were opened it is in */
};

struct sl_run {
  struct sl_run_process *processes; /* in order of rank; owned */
  size_t count;
};

/*
 * Looks into the run or process directories of one job, mostly one; of a job on several nodes there may be one a node.
 * No log stays open: there may be more ranks than files that may be open, and each takes memory.
 * note: one sentence about what was left out, or "". -ENOENT, -ENODATA, -EBADMSG, -EPROTO as in ledger.h; -EINVAL: a
 * rank is in several of the directories, or they speak of different numbers of ranks. Close with sl_run_close, also
 * after a failure.
 */
int sl_run_open(const char *const *directories, size_t count, struct sl_run *out, struct sl_error *note,
                struct sl_error *error);
void sl_run_close(struct sl_run *run);

/*
 * Calls visit for every process directory in directory, in no order, until it fails; where there is none, for itself if
 * it is one. Links are not followed. 0 or a negative errno.
 */
int sl_run_visit(const char *directory, int (*visit)(void *context, const char *path), void *context);

/* Latest change of any log file of its processes, ns since the epoch; 0 when there is none. 0 or a negative errno. */
int sl_run_changed(const char *directory, uint64_t *changed_ns);

#endif
