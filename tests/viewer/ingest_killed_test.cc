/* `ingest` and what can stop it: kills at any moment, full disks, limits. A ledger is whole, or it is not there. */
#include "fakes/command.h"
#include "fakes/ledger_rows.h"
#include "fakes/rounds.h"

#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class IngestKilled : public testing::Test {
protected:
  void SetUp() override {
    fs::copy(fs::path(SL_TEST_DATA) / "fsdp2-2rank", run, fs::copy_options::recursive);
  }
  /* Names in the run directory that are neither logs nor truth files. */
  std::vector<std::string> made() {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(run))
      if (!fs::exists(fs::path(SL_TEST_DATA) / "fsdp2-2rank" / entry.path().filename()))
        names.push_back(entry.path().filename());
    return names;
  }
  TemporaryDirectory directory;
  std::string run = directory / "run", ledger = run + "/ledger.sqlite";
};

TEST_F(IngestKilled, AtAnyMomentItLeavesTheWholeLedgerOrNoneAndTheNextOneIsTheSame) {
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  const auto whole = ledger_dump(ledger);
  std::string bytes = read_file(ledger); /* of which the rows were looked at */
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  auto takes = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::minstd_rand random(1);
  const char *const jobs[] = {"1", "2", "8"};
  int killed = 0, left = 0;
  for (int round = 0; round < rounds(40); round++) {
    if (round % 2)
      fs::remove(ledger);
    const bool had_one = fs::exists(ledger);
    const size_t parts_before = made().size() - had_one;
    const std::string command = std::string(SL_BUILD_DIR) + "/bin/shardledger";
    pid_t child = fork();
    if (child == 0) {
      if (!freopen("/dev/null", "w", stdout))
        _exit(98);
      execl(command.c_str(), command.c_str(), "ingest", run.c_str(), "--jobs", jobs[round % 3], nullptr);
      _exit(99);
    }
    usleep(random() % (unsigned)takes.count());
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    killed += WIFSIGNALED(status);
    takes = WIFSIGNALED(status) ? takes * 33 / 32 : takes * 3 / 4; /* as busy as the machine is by now */
    left += made().size() - fs::exists(ledger) > parts_before;
    ASSERT_TRUE(!had_one || fs::exists(ledger)) << "an older ledger stays until the new one is whole";
    if (fs::exists(ledger) && read_file(ledger) != bytes) {
      ASSERT_EQ(ledger_dump(ledger), whole) << "in round " << round;
      bytes = read_file(ledger);
    }
  }
  printf("%d of %d were killed before their end, %d of them while they wrote\n", killed, rounds(40), left);
  EXPECT_GT(killed, rounds(40) / 4);
  /* What they left is removed, once it can't be one that is just beginning. */
  for (const std::string &name : made())
    fs::last_write_time(run + "/" + name, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  EXPECT_EQ(made(), (std::vector<std::string>{"ledger.sqlite"}));
  EXPECT_EQ(ledger_dump(ledger), whole);
}

TEST_F(IngestKilled, APartThatSomebodyBuildsIsLeftToThem) {
  const std::string part = ledger + ".00000000000000a1.part";
  write_file(part, "");
  fs::last_write_time(part, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  const std::string locked = "flock " + part + " " + SL_BUILD_DIR + "/bin/shardledger ingest " + run + " >/dev/null";
  ASSERT_EQ(system(locked.c_str()), 0);
  EXPECT_TRUE(fs::exists(part));
  for (const char *own : {".bak", ".1.part"}) {
    write_file(ledger + own, "a user's own");
    fs::last_write_time(ledger + own, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  }
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  EXPECT_FALSE(fs::exists(part));
  EXPECT_TRUE(fs::exists(ledger + ".bak") && fs::exists(ledger + ".1.part"));
}

TEST_F(IngestKilled, AFullDiskIsSaidWithTheNextStepAndLeavesNothing) {
  const std::string disk = directory / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=512k") != 0)
    GTEST_SKIP() << "needs the right to mount a small file system";
  for (const char *jobs : {"1", "2"}) {
    CommandResult result = shardledger({"ingest", run, "-o", disk + "/ledger.sqlite", "--jobs", jobs});
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(contains(result.error, "can't be written (No space left on device); put the ledger elsewhere"))
        << result.error;
    EXPECT_TRUE(fs::is_empty(disk));
  }
  umount(disk.c_str());
}

TEST_F(IngestKilled, ALimitOnFileSizesIsAnErrorAndNoDeath) {
  for (const char *jobs : {"1", "2"}) {
    const std::string command = "ulimit -f 200; exec " + std::string(SL_BUILD_DIR) + "/bin/shardledger ingest " + run +
                                " --jobs " + jobs + " 2>" + (directory / "said");
    const int status = system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status;
    EXPECT_TRUE(contains(read_file(directory / "said"), "can't be written")) << read_file(directory / "said");
    EXPECT_EQ(made(), std::vector<std::string>());
  }
}

TEST_F(IngestKilled, WhatIsNoFileIsNotReplacedByALedger) {
  const std::string link = directory / "null";
  fs::create_symlink("/dev/null", link);
  for (const std::string &output : {link, run}) {
    CommandResult result = shardledger({"ingest", run, "-o", output});
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(contains(result.error, output + " is no file; name one with -o")) << result.error;
  }
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(IngestKilled, RunDoesNotHandItsOwnSignalsToTheCommand) {
  CommandResult result = shardledger({"run", "-o", directory / "out", "--", "sh", "-c", "kill -XFSZ $$"});
  EXPECT_EQ(result.status, 128 + SIGXFSZ);
}

TEST_F(IngestKilled, ARunOfWhichRanksAreMissingSaysSoFirst) {
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  EXPECT_FALSE(contains(shardledger({"peaks", run}).out, "of 2 ranks"));
  for (const auto &entry : fs::directory_iterator(run))
    if (contains(entry.path().filename(), "vm-714"))
      fs::remove_all(entry.path());
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  EXPECT_EQ(shardledger({"peaks", run}).out.rfind("1 of 2 ranks, missing: 1; 0 events lost", 0), 0u);
  EXPECT_TRUE(contains(shardledger({"peaks", run, "--csv"}).error, "1 of 2 ranks"));
}

} // namespace
