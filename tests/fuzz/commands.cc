#include "commands.h"

extern "C" {
#include "command.h"
}

#include <cstdlib>
#include <cstring>
#include <vector>

/* LEDGER stands for the ledger; what is written goes beside it. */
static const std::vector<std::vector<const char *>> commands = {
    {"info", "LEDGER"},
    {"peaks", "LEDGER"},
    {"peaks", "--by", "category", "LEDGER", "--csv"},
    {"peaks", "--by", "step", "LEDGER", "--json"},
    {"peaks", "--by", "rank", "LEDGER"},
    {"snapshots", "LEDGER"},
    {"nccl", "LEDGER"},
    {"device", "LEDGER"},
    {"oom", "LEDGER"},
    {"survivors", "LEDGER"},
    {"explain", "1", "LEDGER"},
    {"whatif", "LEDGER", "--alloc-conf", "expandable_segments:True", "--memory-limit", "64MiB", "--floor"},
    {"whatif", "LEDGER", "--optimizer", "adamw-forloop", "--reshard", "off", "--no-workspaces", "--by", "period"},
    {"whatif", "LEDGER", "--world-size", "6", "--reshard", "on", "--recompute", "all", "--accumulate", "2"},
    {"whatif", "LEDGER", "--recompute", "none", "--mixed-precision", "bf16", "--loss-chunks", "3"},
    {"whatif", "LEDGER", "--reshard", "2", "--offload-optimizer", "--recompute", "*", "--accumulate", "3", "--no-sync"},
    {"whatif", "LEDGER", "--optimizer-in-backward", "--optimizer", "adamw-fused", "--recompute", "all"},
    {"diff", "LEDGER", "LEDGER"},
    {"check", "LEDGER", "--max-peak", "1MiB", "--max-growth", "1MiB/step"},
    {"rules", "LEDGER"},
    {"query", "SELECT * FROM step_summary", "LEDGER"},
    {"query", "SELECT * FROM module_peaks", "LEDGER", "--json"},
    {"export", "LEDGER", "--format", "perfetto", "-o", "OUT.pftrace"},
    {"export", "LEDGER", "--format", "kineto", "-o", "OUT.kineto"},
    {"export", "LEDGER", "--format", "nsys", "-o", "OUT.sqlite"},
    {"export", "LEDGER", "--format", "snapshot", "-o", "OUT.snapshot"},
};
const size_t command_count = commands.size();

void command_run(size_t number, const std::string &ledger) {
  const auto &words = commands[number % command_count];
  std::vector<std::string> arguments;
  for (const char *word : words) {
    std::string text = word;
    if (text == "LEDGER")
      text = ledger;
    if (text.compare(0, 3, "OUT") == 0)
      text = ledger + text.substr(3);
    arguments.push_back(text);
  }
  std::vector<char *> argv;
  for (std::string &argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  for (int i = 0; i < sl_command_count; i++)
    if (strcmp(sl_commands[i].name, words[0]) == 0) {
      const int status = sl_commands[i].run(&sl_commands[i], (int)words.size(), argv.data());
      if (status != SL_EXIT_OK && status != SL_EXIT_CHECK_FAILED && status != SL_EXIT_USAGE)
        abort();
      return;
    }
  abort();
}
