/* Keeps logs within their limits while a job records, by dropping the middle of those that come near (keep-last). */
#include "command.h"
#include "commands/trimmer.h"
#include "open_ledger.h"
#include "storage/trim/run_trim.h"

int sl_cmd_trim(const struct sl_command *command, int argc, char **argv) {
  bool follows = false;
  const struct sl_argument arguments[] = {
      {"follow", 0, NULL, "go on until the job has ended", SL_ARGUMENT_FLAG, &follows},
  };
  const char *directory = sl_default_directory();
  int r = sl_parse(command, arguments, sizeof arguments / sizeof arguments[0], argc, argv, &directory, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (!follows && !sl_path_exists(directory)) {
    sl_complain("%s: no such directory; record a run with 'shardledger run -o %s -- CMD'", directory, directory);
    return SL_EXIT_USAGE;
  }
  r = follows ? sl_trimmer_follow(directory, 0) : sl_run_trim_once(directory, sl_trimmer_say);
  return r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
