/* `shardledger trim` as it is called. What it does to logs that grow is tests/plugin/keep_last_test.cc's. */
#include "fakes/command.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <map>

namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> contents(const std::string &directory) {
  std::map<std::string, std::string> files;
  for (const auto &file : fs::recursive_directory_iterator(directory))
    if (file.is_regular_file())
      files[file.path()] = read_file(file.path());
  return files;
}

TEST(Trim, LeavesLogsAloneThatAskForNothing) {
  TemporaryDirectory directory;
  fs::copy(SL_TEST_DATA "/fsdp2-2rank", directory / "run", fs::copy_options::recursive);
  const auto before = contents(directory.path);
  CommandResult result = shardledger({"trim", directory / "run"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out + result.error, "");
  EXPECT_EQ(contents(directory.path), before);
}

TEST(Trim, ADirectoryThatIsNotThereIsSaid) {
  CommandResult result = shardledger({"trim", "/no/such/directory"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.error, "shardledger: /no/such/directory: no such directory; record a run with 'shardledger run -o "
                          "/no/such/directory -- CMD'\n");
}

} // namespace
