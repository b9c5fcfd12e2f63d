/* Several runs in one directory: which one commands show, how another one is chosen, and ranks that are missing. */
#include "fakes/command.h"
#include "fakes/fleet.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Attempts : public testing::Test {
protected:
  void SetUp() override {
    job.ranks = 4;
    job.ranks_per_host = 2;
    job.steps = 2;
  }
  void record(const std::string &place = "run") {
    const std::string aside = directory / ("aside" + std::to_string(count++));
    write_fleet(aside, job);
    fs::create_directories(directory / place);
    for (const auto &entry : fs::directory_iterator(aside))
      fs::rename(entry.path(),
                 fs::path(directory / place) / (entry.path().filename().string() + "-" + std::to_string(count)));
  }
  /* The same again a minute later, with less. */
  void two_runs() {
    record();
    job.start_ns += 60'000'000'000;
    job.absent = {0, 1, 2};
    job.steps = 1;
    record();
  }
  std::string ask(const std::string &sql, std::vector<std::string> more = {}, const std::string &place = "run") {
    std::vector<std::string> words = {"query", sql, directory / place, "--csv"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string out = shardledger(words).out;
    return out.substr(out.find('\n') + 1);
  }
  TemporaryDirectory directory;
  Fleet job;
  int count = 0;
};

TEST_F(Attempts, EachCommandShowsTheChosenRun) {
  two_runs();
  const std::string run = directory / "run";
  EXPECT_EQ(ask("SELECT rank FROM rank"), "3\n");
  EXPECT_EQ(ask("SELECT count(*) FROM rank", {"--run", "1"}), "4\n");
  for (const std::string command :
       {"info", "peaks", "oom", "nccl", "survivors", "device", "snapshots", "whatif", "advise"}) {
    EXPECT_EQ(shardledger({command, run}).out.find("run 2 of 2; 1 of 4 ranks, missing: 0-2; "), 0u) << command;
    EXPECT_EQ(shardledger({command, run, "--run", "1"}).out.find("run 1 of 2; 0 events lost"), 0u) << command;
  }
  EXPECT_EQ(shardledger({"check", run, "--max-peak", "1TiB"}).out.find("run 2 of 2; 1 of 4 ranks, missing: 0-2; "), 0u);
  EXPECT_EQ(shardledger({"watch", run, "--once"}).out.find("1 of 4 ranks, missing: 0-2; "), 0u);
  EXPECT_EQ(shardledger({"watch", run, "--once", "--run", "1"}).out.find("0 events lost"), 0u);
  const std::string diff = shardledger({"diff", run, "--run", "1", "--other-run", "2", "--rank", "3"}).out;
  EXPECT_TRUE(contains(diff, "run 1 of 2; ")) << diff;
  EXPECT_TRUE(contains(diff, "run 2 of 2; ")) << diff;
}

TEST_F(Attempts, ARunIsCheckedAgainstAnotherOneOfItsDirectory) {
  record();
  job.start_ns += 60'000'000'000;
  job.more = {{{2}, 64ull << 20, 1, 0}};
  record();
  const std::string run = directory / "run";
  const auto check = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"check", run};
    words.insert(words.end(), more.begin(), more.end());
    return shardledger(words);
  };
  CommandResult result = check({"--against", run, "--against-run", "1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.out, "\nagainst rank 2: the peak of rank 2 is ")) << result.out;
  EXPECT_TRUE(contains(result.out, "; activation +64.0 MiB\n")) << result.out;
  EXPECT_EQ(check({"--against", run}).status, 0) << "the newest against itself";
  EXPECT_EQ(check({"--run", "1", "--against", run, "--against-run", "2"}).status, 0) << "less is fine";
  result = check({"--against", run, "--against-run", "3"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "has runs 1 to 2, and no '3'")) << result.error;
  EXPECT_TRUE(contains(check({"--max-peak", "1GiB", "--against-run", "1"}).error, "--against-run goes with --against"));
}

TEST_F(Attempts, DumpPrintsTheLogsOfTheChosenRun) {
  two_runs();
  const auto ranks = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"dump", directory / "run", "--type", "info", "--limit", "all"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string out = shardledger(words).out;
    std::string found;
    for (size_t at = 0; (at = out.find("key=\"rank\" value=\"", at)) != std::string::npos; at++)
      found += out[at + std::string("key=\"rank\" value=\"").size()];
    return found;
  };
  EXPECT_EQ(ranks({"--run", "1"}), "0123");
  EXPECT_EQ(ranks({"--run", "2"}), "3");
  EXPECT_EQ(ranks({}).size(), 5u);
  CommandResult result = shardledger({"dump", directory / "run", "--run", "9"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "has runs 1 to 2, and no '9'")) << result.error;
}

TEST_F(Attempts, InfoListsThem) {
  two_runs();
  const CommandResult result = shardledger({"info", directory / "run"});
  EXPECT_TRUE(contains(result.error, "holds 2 runs: the newest, run 2 (began 2023-11-14 22:14:20 UTC, 1 of 4 ranks) is "
                                     "used; --run 1 shows the last whole one"))
      << result.error;
  EXPECT_TRUE(contains(result.out, "    1         2023-11-14 22:13:20.000 UTC      4   4  0-3       rank and time\n"
                                   "    2  shown  2023-11-14 22:14:20.000 UTC      1   4  3         rank and time\n"))
      << result.out;
}

TEST_F(Attempts, TheLedgerOfAnOlderRunIsNotTakenForTheNewestOnes) {
  two_runs();
  const std::string run = directory / "run", steps = "SELECT count(*) FROM step";
  EXPECT_EQ(ask(steps, {"--run", "1"}), "8\n");
  EXPECT_FALSE(fs::exists(run + "/ledger.sqlite"));
  EXPECT_EQ(ask(steps), "1\n");
  EXPECT_EQ(ask(steps, {"--run", "1"}), "8\n");
  EXPECT_EQ(shardledger({"ingest", run, "--run", "1"}).out, run + "/ledger-1-1700000000000000000.sqlite\n");
  ASSERT_EQ(shardledger({"ingest", run, "--run", "1", "-o", run + "/ledger.sqlite"}).status, 0);
  EXPECT_EQ(ask(steps), "1\n") << "it is made again";
  CommandResult result = shardledger({"info", run + "/ledger.sqlite", "--run", "1"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "is the ledger of one run; --run chooses among those of a run directory"));
  result = shardledger({"peaks", run, "--run", "7"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "has runs 1 to 2, and no '7'; 'shardledger info ")) << result.error;
}

TEST_F(Attempts, MergeJoinsTheSameRunOfEachDirectory) {
  const Fleet whole = job;
  for (int start = 0; start < 2; start++) {
    job.start_ns = whole.start_ns + start * 60'000'000'000;
    job.steps = 1 + start;
    job.absent = {2, 3};
    record("node0");
    job.absent = {0, 1};
    record("node1");
  }
  const std::string out = directory / "merged.sqlite";
  const auto merge = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"merge", directory / "node0", directory / "node1", "-o", out};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = shardledger(words);
    EXPECT_EQ(result.status, 0) << result.error;
    return shardledger(
               {"query", "SELECT (SELECT count(*) FROM rank) || '|' || (SELECT count(*) FROM step) AS n", out, "--csv"})
        .out;
  };
  EXPECT_EQ(merge({}), "n\n4|8\n");
  EXPECT_EQ(merge({"--run", "1"}), "n\n4|4\n");
}

TEST_F(Attempts, MissingRanksAreNamedWhereAllSeemedWell) {
  job.ranks = 16;
  job.absent = {5, 9, 10};
  record();
  const std::string run = directory / "run", missing = "13 of 16 ranks, missing: 5,9-10; ";
  for (const std::string command : {"info", "peaks", "oom", "nccl"})
    EXPECT_EQ(shardledger({command, run}).out.find(missing), 0u) << command;
  EXPECT_EQ(shardledger({"watch", run, "--once"}).out.find(missing), 0u);
  const std::string oom = shardledger({"oom", run}).out, info = shardledger({"info", run}).out;
  EXPECT_FALSE(contains(oom, "every rank ended in order")) << oom;
  EXPECT_TRUE(contains(oom, "how ranks 5,9-10 did is not known")) << oom;
  EXPECT_FALSE(contains(info, "was recorded.")) << info;
  EXPECT_TRUE(contains(info, "ranks recorded       13 of 16; missing: 5,9-10\n")) << info;
  EXPECT_TRUE(contains(shardledger({"peaks", run, "--csv"}).error, missing));
}

TEST_F(Attempts, ManyMissingRanksTakeOneLine) {
  job.ranks = 64;
  for (uint32_t rank = 1; rank < 64; rank += 2)
    job.absent.insert(rank);
  record();
  for (const CommandResult &result :
       {shardledger({"peaks", directory / "run"}), shardledger({"watch", directory / "run", "--once"})}) {
    EXPECT_EQ(result.out.find("32 of 64 ranks, missing: 1,3,5,7,9,11,13,15,…"), 0u) << result.out;
    EXPECT_LT(result.out.find('\n'), 200u);
  }
}

} // namespace
