/* A recorded run as tools of a coding assistant, over stdin and stdout. */
#include "command.h"
#include "open_ledger.h"
#include "serve/mcp_server.h"
#include "serve/skill.h"

#include <stdio.h>

int sl_cmd_mcp(const struct sl_command *command, int argc, char **argv) {
  const char *directory = sl_default_directory(), *run = NULL;
  bool skill = false;
  const struct sl_argument arguments[] = {
      {"skill", 0, NULL, "print SKILL.md, for assistants that run commands instead", SL_ARGUMENT_FLAG, &skill},
      SL_RUN_ARGUMENT(run),
  };
  struct sl_error error = {{0}};
  int r = sl_parse(command, arguments, sizeof arguments / sizeof arguments[0], argc, argv, &directory, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (skill) {
    fputs(sl_skill_text, stdout);
    return SL_EXIT_OK;
  }
  if (sl_mcp_serve(stdin, stdout, directory, run, &error) == 0)
    return SL_EXIT_OK;
  sl_complain("mcp: %s", error.text);
  return SL_EXIT_USAGE;
}
