/* Makes a run of PyTorch's memory snapshots, one file a rank. */
#include "run_snapshots.h"

#include "run_attempts.h"
#include "storage/rank_ranges.h"
#include "storage/snapshot/snapshot_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_directory_and_name(const void *left, const void *right) {
  const struct sl_run_process *a = left, *b = right;
  return a->directory != b->directory ? (a->directory > b->directory) - (a->directory < b->directory)
                                      : strcmp(a->path, b->path);
}

static int by_rank(const void *left, const void *right) {
  const struct sl_run_process *a = left, *b = right;
  return (a->rank > b->rank) - (a->rank < b->rank);
}

static int ranks_give(struct sl_run *run, struct sl_error *error) {
  const struct sl_run_process *without = NULL, *with = NULL;
  qsort(run->processes, run->count, sizeof *run->processes, by_directory_and_name);
  for (size_t i = 0; i < run->count; i++) {
    struct sl_run_process *process = &run->processes[i];
    const int64_t rank = sl_snapshot_rank(process->path);
    if (!process->is_snapshot)
      return sl_error_set(error, -EINVAL, "%s is a memory snapshot and %s a recording: these are different runs",
                          run->processes[0].path, process->path);
    *(rank < 0 ? &without : &with) = process;
    process->rank = rank < 0 ? (uint32_t)i : (uint32_t)rank;
  }
  if (with && without)
    return sl_error_set(error, -EINVAL,
                        "%s tells its rank and %s does not; give all of them names with a rank, such as "
                        "snapshot_rank0.pickle",
                        with->path, without->path);
  qsort(run->processes, run->count, sizeof *run->processes, by_rank);
  for (size_t i = 1; i < run->count; i++)
    if (run->processes[i].rank == run->processes[i - 1].rank)
      return sl_error_set(error, -EINVAL, "%s and %s are both of rank %" PRIu32 "; name one file a rank",
                          run->processes[i - 1].path, run->processes[i].path, run->processes[i].rank);
  return 0;
}

int sl_run_of_snapshots(struct sl_run *run, const char *directory, const char *attempt, struct sl_error *error) {
  int r = ranks_give(run, error);
  if (r < 0)
    return r;
  struct sl_rank_ranges ranks = {0};
  for (size_t i = 0; i < run->count && r == 0; i++)
    r = sl_rank_ranges_add(&ranks, run->processes[i].rank, run->processes[i].rank);
  run->attempts = calloc(1, sizeof *run->attempts);
  if (run->attempts) {
    *run->attempts = (struct sl_attempt){.number = 1,
                                         .world_size = -1,
                                         .count = run->count,
                                         .name = strdup(""),
                                         .ranks = r == 0 ? sl_rank_ranges_text(&ranks, 0) : NULL,
                                         .told_by = SL_TOLD_user};
    run->attempt_count = 1;
  }
  free(ranks.list);
  if (!run->attempts || !run->attempts->name || !run->attempts->ranks)
    return sl_no_memory(error);
  return sl_run_choose(run, directory, attempt, &run->chosen, error);
}
