/*
 * Runs a job on one GPU as rank R of N, for each rank that is asked for, one after the other. The environment says
 * which; the companion puts a process group of its own in NCCL's place
 * (nvtx_ranges/python/shardledger/_companion/rehearsing/) and ends the job after some steps. How it ended comes back in
 * a file, because launchers have exit statuses of their own.
 */
#include "command.h"
#include "commands/child.h"
#include "commands/recording.h"
#include "commands/rehearsal_plan.h"
#include "installation.h"
#include "open_ledger.h"
#include "plugin/process/package_place.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How one rank's job ended. */
struct outcome {
  bool reached; /* all steps that were asked for */
  bool refused; /* it wanted another rank's answer */
};

/* The directory whose sitecustomize Python is to run before the program. */
static int find_early(const char *plugin, char out[PATH_MAX]) {
  int r = sl_find_package(plugin, out, PATH_MAX - sizeof("/early"));
  if (r == 0)
    strcat(out, "/early");
  return r < 0 ? r : access(out, R_OK | X_OK) == 0 ? 0 : -ENOENT;
}

static void set_number(const char *name, int64_t number) {
  char text[24];
  snprintf(text, sizeof(text), "%lld", (long long)number);
  setenv(name, text, 1);
}

/* What launchers said of this process is not the job's place: libraries would take it for that. */
static void forget_launchers(void) {
  static const char *const names[] = {
      "SLURM_PROCID",
      "SLURM_LOCALID",
      "SLURM_NTASKS",
      "SLURM_NPROCS",
      "SLURM_STEP_NUM_TASKS",
      "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK",
      "PMI_RANK",
      "PMI_SIZE",
      "PMIX_RANK",
  };
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    unsetenv(names[i]);
}

/* As torchrun would set them, on the first of `local` GPUs; and what the companion reads. */
static void set_place(const struct sl_rehearsal_plan *plan, int64_t rank, const char *file) {
  char *text = NULL;
  set_number("RANK", rank);
  set_number("WORLD_SIZE", plan->world_size);
  set_number("LOCAL_RANK", 0);
  set_number("LOCAL_WORLD_SIZE", plan->local_size);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "29500", 1);
  setenv("TORCHELASTIC_RUN_ID", plan->id, 1);
  setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
  setenv("TORCHELASTIC_MAX_RESTARTS", "0", 1);
  setenv("SHARDLEDGER_REHEARSAL_ID", plan->id, 1);
  if (asprintf(&text, "rank=%lld world=%lld local_world=%lld steps=%lld memory=%lld outcome=%s", (long long)rank,
               (long long)plan->world_size, (long long)plan->local_size, (long long)plan->steps,
               (long long)plan->device_bytes, file) >= 0)
    setenv("SHARDLEDGER_REHEARSAL", text, 1);
  free(text);
}

static void put_before_python(const char *early) {
  const char *path = getenv("PYTHONPATH");
  char *text = NULL;
  if (asprintf(&text, "%s%s%s", early, path && *path ? ":" : "", path ? path : "") >= 0)
    setenv("PYTHONPATH", text, 1);
  free(text);
}

/* Lines that the companion wrote: "steps 3", "refused torch.distributed.recv wants …". */
static struct outcome read_outcome(const char *file) {
  struct outcome outcome = {0};
  char line[1024];
  FILE *stream = fopen(file, "re");
  while (stream && fgets(line, sizeof(line), stream)) {
    outcome.reached |= strncmp(line, "steps ", 6) == 0;
    outcome.refused |= strncmp(line, "refused ", 8) == 0;
  }
  if (stream)
    fclose(stream);
  unlink(file);
  return outcome;
}

/* What ranks said to those after them (mirror.py) is of this command alone. */
static void remove_said(const char *file) {
  char *pattern = NULL;
  glob_t found = {0};
  if (asprintf(&pattern, "%s.said-*", file) >= 0 && glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; i++)
      unlink(found.gl_pathv[i]);
  globfree(&found);
  free(pattern);
}

/* Runs the job as each rank, until one ends otherwise than it should. Returns the exit status. */
static int rehearse_ranks(const struct sl_rehearsal_plan *plan, const char *directory, char *const argv[]) {
  char *file = NULL;
  int status = SL_EXIT_OK;
  if (asprintf(&file, "%s/rehearsal-outcome", directory) < 0)
    return SL_EXIT_USAGE;
  for (int i = 0; i < plan->count && status == SL_EXIT_OK; i++) {
    bool started = false;
    set_place(plan, plan->ranks[i], file);
    unlink(file);
    status = sl_run_child(argv, &started);
    const struct outcome outcome = read_outcome(file);
    if (outcome.refused)
      status = SL_EXIT_USAGE;
    else if (outcome.reached)
      status = SL_EXIT_OK;
    if (started && !outcome.refused)
      sl_complain("rehearsed rank %lld of %lld: %s", (long long)plan->ranks[i], (long long)plan->world_size,
                  outcome.reached ? "ended after its steps"
                  : status == 0   ? "the program ended by itself"
                                  : "the program failed");
  }
  remove_said(file);
  free(file);
  return status;
}

int sl_cmd_rehearse(const struct sl_command *command, int argc, char **argv) {
  struct sl_rehearsal_plan plan = {.steps = 3};
  const char *ranks = "0", *output = NULL;
  char plugin[PATH_MAX], early[PATH_MAX];
  char *directory = NULL;
  int first = 0;
  const struct sl_argument arguments[] = {
      {"world-size", 'n', "N", "how many ranks the job is to have", SL_ARGUMENT_NUMBER, &plan.world_size},
      {"rank", 0, "RANKS", "the ranks to rehearse, one after the other: 5, 0,last or 0-3 (default: 0)",
       SL_ARGUMENT_TEXT, &ranks},
      {"steps", 0, "K", "training steps until the job is ended (default: 3)", SL_ARGUMENT_NUMBER, &plan.steps},
      {"device-memory", 0, "SIZE", "run as if the device had so much, such as 80GiB", SL_ARGUMENT_SIZE,
       &plan.device_bytes},
      {"gpus-per-node", 0, "L", "LOCAL_WORLD_SIZE (default: 8, or all of fewer ranks)", SL_ARGUMENT_NUMBER,
       &plan.local_size},
      {"output", 'o', "DIR", "where the logs go (default: shardledger-out)", SL_ARGUMENT_TEXT, &output},
  };
  int r = sl_parse_until_word(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &first);
  if (r < 0)
    return sl_parse_exit(r);
  if (first == argc) {
    sl_complain("rehearse: the command to run is missing; for example: shardledger rehearse --world-size 64 -- python "
                "train.py");
    return SL_EXIT_USAGE;
  }
  if (sl_rehearsal_plan_make(&plan, ranks) < 0)
    return SL_EXIT_USAGE;
  if (sl_find_plugin(plugin, sizeof(plugin)) < 0 || find_early(plugin, early) < 0) {
    sl_complain("rehearse: %s or its Python package is missing; build or install ShardLedger as a whole", plugin);
    r = -ENOENT;
  }
  const int made =
      r < 0 ? r : sl_recording_directory("rehearse", output ? output : sl_default_directory(), true, &directory);
  int status = SL_EXIT_USAGE;
  if (made >= 0) {
    forget_launchers();
    put_before_python(early);
    sl_recording_inject(plugin, directory, argv[first]);
    status = rehearse_ranks(&plan, directory, argv + first);
    if (sl_holds_a_run(directory)) {
      sl_recording_show(directory, false, status != 0);
    } else {
      if (made)
        sl_recording_remove(directory);
      sl_complain(
          "nothing was recorded: the command used no GPU, or could not be attached to; see 'shardledger doctor'");
    }
  }
  free(directory);
  sl_rehearsal_plan_free(&plan);
  return status;
}
