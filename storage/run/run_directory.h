/*
 * Which process directories make up a run. SHARDLEDGER_DIR may be used by one job after the other, so a directory can
 * hold several runs (run_attempts.h): the newest one counts where none is chosen, and what is left out is said.
 * Processes that only attend to ranks (run_attendants.h) are no run that counts.
 */
#ifndef SHARDLEDGER_RUN_DIRECTORY_H
#define SHARDLEDGER_RUN_DIRECTORY_H

#include "run_identity.h"
#include "storage/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_run_process {
  char *path;     /* of the process directory, or of a memory snapshot of PyTorch's; owned by the run */
  uint32_t rank;  /* unique within the run */
  uint64_t bytes; /* of its log, on disk */
  uint64_t start_ns;
  int64_t world_size; /* -1: unknown */
  size_t directory;   /* which of the directories that were opened it is in */
  size_t attempt;     /* index of sl_run.attempts */
  bool is_snapshot;
  bool attends; /* it has no steps, and started a process of the same rank that has, or was started by it */
  struct sl_run_identity identity;
};

enum sl_told_by { SL_TOLD_launcher, SL_TOLD_communicator, SL_TOLD_time, SL_TOLD_user, SL_TOLD_parent };

/* A start of a job: processes that ran together. */
struct sl_attempt {
  size_t number;           /* from 1, in the order of their beginnings */
  uint64_t start_ns;       /* of its first process */
  int64_t world_size;      /* -1: unknown */
  size_t first, count;     /* its processes, before one is chosen; count: how many ranks were recorded */
  char *name;              /* what launchers call it, or ""; owned */
  char *ranks;             /* those that were recorded: "0-6,8"; owned */
  enum sl_told_by told_by; /* what shows that these processes belong together */
  bool attends;            /* all of its processes do */
};

struct sl_run {
  struct sl_run_process *processes; /* of the chosen attempt, in order of rank; owned */
  size_t count;
  struct sl_attempt *attempts; /* all of the directories, the newest last; owned */
  size_t attempt_count, chosen;
};

/*
 * Looks into the run or process directories of one job, mostly one; of a job on several nodes there may be one a node.
 * Where a memory snapshot of PyTorch's is named, or a directory that holds such files and no log, these are the ranks
 * (run_snapshots.h).
 * No log stays open: there may be more ranks than files that may be open, and each takes memory.
 * attempt: which one, by its number or an id that its launcher gave it; NULL: the newest one that counts. note: one
 * sentence about what was left out, or "". -ENOENT, -ENODATA, -EBADMSG, -EPROTO as in ledger.h; -EINVAL: there is no
 * such attempt, or one of the directories has nothing of it. Close with sl_run_close, also after a failure.
 */
int sl_run_open(const char *const *directories, size_t count, const char *attempt, struct sl_run *out,
                struct sl_error *note, struct sl_error *error);
void sl_run_close(struct sl_run *run);

/*
 * Calls visit for every process directory in directory, in no order, until it fails; where there is none, for itself if
 * it is one, else for every snapshot in it. Of a file that is a snapshot, for itself. Links are not followed. 0 or a
 * negative errno.
 */
int sl_run_visit(const char *directory, int (*visit)(void *context, const char *path), void *context);

/* All that sl_run_visit calls visit for, sorted. Their number or a negative errno; *out and its strings belong to the
 * caller: sl_paths_free. out may be NULL. */
int sl_run_paths(const char *directory, char ***out);
void sl_paths_free(char **paths, int count);

/* Latest change of any log file of its processes, ns since the epoch; 0 when there is none. 0 or a negative errno. */
int sl_run_changed(const char *directory, uint64_t *changed_ns);

#endif
