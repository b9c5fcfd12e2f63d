/* Run directories, what attaches to a job, and what is shown of it at its end. */
#include "commands/recording.h"

#include "command.h"
#include "commands/oom_print.h"
#include "commands/rehearsal_result.h"
#include "commands/summary.h"
#include "open_ledger.h"
#include "output/terminal.h"
#include "plugin/process/nsight_compute.h"
#include "storage/rules/user_rules.h"
#include "storage/run/run_directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool sl_holds_a_run(const char *directory) {
  return sl_run_paths(directory, NULL) > 0;
}

int sl_recording_directory(const char *command, const char *wanted, bool siblings, char **out) {
  char *path = strdup(wanted);
  int r = path ? 0 : -ENOMEM;
  while (path && strlen(path) > 1 && path[strlen(path) - 1] == '/')
    path[strlen(path) - 1] = '\0';
  for (int i = 2; r == 0 && siblings && sl_holds_a_run(path); i++) {
    size_t length = strlen(wanted);
    free(path);
    while (length > 1 && wanted[length - 1] == '/')
      length--;
    if (asprintf(&path, "%.*s-%d", (int)length, wanted, i) < 0) {
      path = NULL;
      r = -ENOMEM;
    }
  }
  if (r == 0)
    r = sl_make_directories(path);
  if (r >= 0 && access(path, W_OK | X_OK) != 0)
    r = -errno;
  if (r >= 0) {
    *out = realpath(path, NULL);
    r = *out ? r : -errno;
  }
  if (r < 0)
    sl_complain("%s: %s can't be used for the logs: %s; name another directory with -o", command, path ? path : wanted,
                strerror(-r));
  else if (strncmp(path, wanted, strlen(path)) != 0)
    sl_complain("%s holds an earlier run; recording into %s", wanted, path);
  free(path);
  return r;
}

/* Nsight Compute ends a program that has CUDA's variable, so there the plugin comes in by NVTX, where it has the place.
 */
static void leave_cuda_alone(const char *other_in_nvtx) {
  if (other_in_nvtx)
    sl_complain(
        "Nsight Compute ends programs that have CUDA_INJECTION64_PATH, and NVTX_INJECTION64_PATH is %s: nothing can be "
        "recorded; unset the latter",
        other_in_nvtx);
  else
    sl_complain(
        "Nsight Compute ends programs that have CUDA_INJECTION64_PATH, so this run attaches at the program's first "
        "NVTX call (NCCL makes one), and without CUPTI");
  unsetenv("CUDA_INJECTION64_PATH");
  setenv("SHARDLEDGER_ATTACH", "nvtx", 1);
}

/* The library in a tool's place when it is another than ours, else NULL. */
static const char *other_in(const char *variable, const char *plugin) {
  const char *path = getenv(variable);
  return path && *path && strcmp(path, plugin) != 0 ? path : NULL;
}

void sl_recording_inject(const char *plugin, const char *directory, const char *command) {
  const char *in_cuda = other_in("CUDA_INJECTION64_PATH", plugin), *in_nvtx = other_in("NVTX_INJECTION64_PATH", plugin);
  const bool nsight_compute = sl_is_nsight_compute(command) || sl_is_under_nsight_compute();
  if (nsight_compute)
    leave_cuda_alone(in_nvtx);
  if (in_cuda && !nsight_compute) {
    sl_complain("CUDA_INJECTION64_PATH was %s; ShardLedger starts it first, and leaves CUPTI to it", in_cuda);
    setenv("SHARDLEDGER_OTHER_INJECTION", in_cuda, 1);
  }
  if (!nsight_compute)
    setenv("CUDA_INJECTION64_PATH", plugin, 1);
  if (in_nvtx && !nsight_compute)
    sl_complain(
        "NVTX_INJECTION64_PATH is %s, which keeps all libraries' ranges; ShardLedger records those of its companion",
        in_nvtx);
  if (!in_nvtx)
    setenv("NVTX_INJECTION64_PATH", plugin, 1);
  setenv("SHARDLEDGER_DIR", directory, 1);
}

void sl_recording_remove(const char *directory) {
  char *rules = NULL;
  if (rmdir(directory) == 0 || asprintf(&rules, "%s/" SL_USER_RULES_NAME, directory) < 0)
    return;
  unlink(rules);
  rmdir(directory);
  free(rules);
}

void sl_recording_show(const char *directory, bool keep_all, bool failed) {
  struct sl_output out;
  struct sl_error error = {{0}};
  struct sl_db *db = NULL;
  const struct sl_ledger_options options = {.keep_all = keep_all};
  int r = keep_all ? sl_ingest(directory, NULL, &options, &error) : 0;
  if (r == 0)
    r = sl_open_ledger(directory, &db, &error);
  sl_output_open(&out, SL_FORMAT_text, false);
  if (r == 0)
    r = sl_print_coverage(db, &out, &error);
  if (r == 0 && failed)
    r = sl_print_death(db, &out, &error);
  if (r == 0)
    r = sl_print_summary(db, &out, false, &error);
  if (r == 0)
    r = sl_print_rehearsal(db, &out, &error);
  db = sl_db_close(db);
  sl_output_close(&out);
  if (r < 0)
    sl_complain("the run was recorded in %s, but can't be shown: %s", directory, error.text);
  else
    sl_complain("recorded in %s; go on with 'shardledger peaks %s'", directory, directory);
}
