#include "command.h"
#include "open_ledger.h"
#include "storage/ledger.h"

#include <stdlib.h>

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
  const char *directory = sl_default_directory();
  struct sl_error error = {{0}};
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &directory, 1);
  if (r < 0)
    return sl_parse_exit(r);
  r = rules_path ? sl_user_rules_read(rules_path, &rules, &error) : 0;
  const struct sl_ledger_options options = {
      .rules = rules, .keep_all = keep == SL_KEEP_all, .attempt = run, .jobs = (size_t)jobs};
  if (r == 0)
    r = sl_ingest(directory, output, &options, &error);
  rules = sl_user_rules_free(rules);
  char *made = NULL;
  if (r == 0 && !output)
    r = sl_ledger_place(directory, run, &made, &error);
  if (r < 0) {
    sl_complain("%s", error.text);
    return SL_EXIT_USAGE;
  }
  r = sl_print_path(output ? output : made);
  free(made);
  return r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
