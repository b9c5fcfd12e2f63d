/* Documentation that can't rot: every command explains itself, and README.md names it. */
#include "fakes/command.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* The names in the list that `shardledger help` prints. */
std::vector<std::string> command_names() {
  std::istringstream lines(shardledger({"help"}).out);
  std::vector<std::string> names;
  std::string line;
  while (std::getline(lines, line) && line != "Commands:") {
  }
  while (std::getline(lines, line) && line.rfind("  ", 0) == 0)
    names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

TEST(Help, ListsTheCommands) {
  std::vector<std::string> names = command_names();
  for (const char *name : {"run", "ingest", "info", "peaks", "snapshots", "survivors", "explain", "rules", "query",
                           "dump", "doctor", "help"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  EXPECT_EQ(shardledger({"--help"}).out, shardledger({"help"}).out);
}

TEST(Help, EveryCommandHasUsageOptionsAndAnExampleOfItself) {
  for (const std::string &name : command_names()) {
    CommandResult result = shardledger({name, "--help"});
    EXPECT_EQ(result.status, 0) << name;
    EXPECT_EQ(result.error, "") << name;
    EXPECT_TRUE(contains(result.out, "Usage: shardledger " + name)) << result.out;
    EXPECT_TRUE(contains(result.out, "Options:\n")) << name;
    EXPECT_TRUE(contains(result.out, "Example:\n  shardledger " + name)) << result.out;
    EXPECT_EQ(shardledger({"help", name}).out, result.out) << name;
    EXPECT_EQ(shardledger({name, "-h"}).out, result.out) << name;
  }
}

TEST(Help, LinesFitATerminal) {
  for (const std::string &name : command_names()) {
    std::istringstream lines(shardledger({name, "--help"}).out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST(Help, ReadmeNamesEveryCommand) {
  std::string path = std::string(SL_SOURCE_DIR) + "/README.md";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "there is no README.md yet";
  std::string readme = read_file(path);
  for (const std::string &name : command_names())
    EXPECT_TRUE(contains(readme, "shardledger " + name)) << name;
}

TEST(Help, VersionIsOneLine) {
  CommandResult result = shardledger({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.find("shardledger 0."), 0u);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
}

TEST(Help, TheEnvironmentIsExplained) {
  std::string out = shardledger({"run", "--help-env"}).out;
  for (const char *variable :
       {"SHARDLEDGER_DIR", "SHARDLEDGER_KERNELS", "SHARDLEDGER_STEPS", "SHARDLEDGER_CUPTI", "SHARDLEDGER_TORCH",
        "SHARDLEDGER_PYTHON", "SHARDLEDGER_MODULES", "SHARDLEDGER_MAX_BYTES", "SHARDLEDGER_LOG"})
    EXPECT_TRUE(contains(out, variable)) << variable;
}

} // namespace
