/* `shardledger ingest`: makes the ledger of a run. */
#include "command.h"
#include "open_ledger.h"
#include "storage/ledger.h"
#include "storage/snapshot/snapshot_log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Several directories are a job on several nodes, which merge reads. */
static int check_several(const char *const *named, int count, struct sl_error *error) {
  for (int i = 0; i < count; i++) {
    struct stat status;
    if (stat(named[i], &status) == 0 && S_ISDIR(status.st_mode))
      return sl_error_set(
          error, -EINVAL,
          "ingest: %s is a directory; name several memory snapshots, or one directory, and join the run "
          "directories of several nodes with 'shardledger merge'",
          named[i]);
  }
  return 0;
}

int sl_cmd_ingest(const struct sl_command *command, int argc, char **argv) {
  const char *output = NULL, *rules_path = NULL, *run = NULL;
  struct sl_user_rules *rules = NULL;
  int keep = SL_KEEP_changes;
  int64_t jobs = 0;
  const struct sl_argument arguments[] = {
      {"output", 'o', "FILE", "where to put the ledger; default: DIR/" SL_LEDGER_NAME, SL_ARGUMENT_TEXT, &output},
      {"rules", 0, "FILE", "what names of ranges and modules mean; kept in DIR for later ingests", SL_ARGUMENT_TEXT,
       &rules_path},
      SL_KEEP_ARGUMENT(keep),
      SL_JOBS_ARGUMENT(jobs),
      SL_RUN_ARGUMENT(run),
  };
  struct sl_error error = {{0}};
  const char **named = calloc((size_t)argc + 1, sizeof *named);
  if (!named) {
    sl_complain("ingest: out of memory");
    return SL_EXIT_USAGE;
  }
  named[0] = sl_default_directory();
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, named, argc);
  if (r < 0) {
    free(named);
    return sl_parse_exit(r);
  }
  const int count = r > 1 ? r : 1;
  char *made = NULL;
  r = count > 1 ? check_several(named, count, &error) : 0;
  if (r == 0 && count > 1 && !output)
    output = made = sl_snapshots_place(named[0]);
  r = r < 0 ? r : rules_path ? sl_user_rules_read(rules_path, &rules, &error) : 0;
  const struct sl_ledger_options options = {
      .rules = rules, .keep_all = keep == SL_KEEP_all, .attempt = run, .jobs = (size_t)jobs};
  if (r == 0 && count > 1)
    r = output ? sl_ingest_job(named, count, output, &options, &error) : sl_no_memory(&error);
  else if (r == 0)
    r = sl_ingest(named[0], output, &options, &error);
  rules = sl_user_rules_free(rules);
  if (r == 0 && !output)
    r = sl_ledger_place(named[0], run, &made, &error);
  free(named);
  if (r < 0) {
    free(made);
    sl_complain("%s", error.text);
    return SL_EXIT_USAGE;
  }
  r = sl_print_path(output ? output : made);
  free(made);
  return r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
