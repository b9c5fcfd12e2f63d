/* `shardledger merge`: makes one ledger of several nodes' directories. */
#include "command.h"
#include "open_ledger.h"
#include "storage/ledger.h"
#include "storage/run/run_directory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What is no run directory is named before anything is read. */
static int check_directories(const char *const *directories, int count) {
  for (int i = 0; i < count; i++) {
    struct stat status;
    int processes = sl_run_paths(directories[i], NULL);
    if (processes > 0)
      continue;
    if (stat(directories[i], &status) != 0)
      sl_complain("merge: %s: no such directory", directories[i]);
    else if (!S_ISDIR(status.st_mode))
      sl_complain("merge: %s is a file; name the run directories, whose logs are read", directories[i]);
    else if (processes < 0)
      sl_complain("merge: %s can't be read: %s", directories[i], strerror(-processes));
    else
      sl_complain("merge: %s: no logs here; name the directory that SHARDLEDGER_DIR was on that node", directories[i]);
    return -1;
  }
  return 0;
}

int sl_cmd_merge(const struct sl_command *command, int argc, char **argv) {
  const char *output = NULL, *rules_path = NULL, *run = NULL;
  struct sl_user_rules *rules = NULL;
  int keep = SL_KEEP_changes;
  int64_t jobs = 0;
  const struct sl_argument arguments[] = {
      {"output", 'o', "FILE", "where to put the ledger", SL_ARGUMENT_TEXT, &output},
      {"rules", 0, "FILE", "what names of ranges and modules mean; default: the rules kept in the directories",
       SL_ARGUMENT_TEXT, &rules_path},
      SL_KEEP_ARGUMENT(keep),
      SL_JOBS_ARGUMENT(jobs),
      SL_RUN_ARGUMENT(run),
  };
  struct sl_error error = {{0}};
  const char **directories = calloc(argc, sizeof(*directories));
  int status = SL_EXIT_USAGE;
  if (!directories) {
    sl_complain("merge: out of memory");
    return SL_EXIT_USAGE;
  }
  int count = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, directories, argc);
  if (count < 0) {
    status = sl_parse_exit(count);
    goto finish;
  }
  if (count == 0 || !output) {
    sl_complain("merge: %s; for example: %s", count == 0 ? "run directories are missing" : "-o FILE is missing",
                command->example);
    goto finish;
  }
  if (check_directories(directories, count) < 0)
    goto finish;
  int r = rules_path ? sl_user_rules_read(rules_path, &rules, &error) : 0;
  const struct sl_ledger_options options = {
      .rules = rules, .keep_all = keep == SL_KEEP_all, .attempt = run, .jobs = (size_t)jobs};
  if (r == 0)
    r = sl_ingest_job(directories, count, output, &options, &error);
  if (r < 0) {
    sl_complain("%s", error.text);
    goto finish;
  }
  status = sl_print_path(output) < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;

finish:
  rules = sl_user_rules_free(rules);
  free(directories);
  return status;
}
