/* One ledger of several nodes: the same as if they had shared a disk, and only of directories that belong together. */
#include "fakes/command.h"
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>

namespace {

namespace fs = std::filesystem;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines(const std::string &text) {
  std::istringstream stream(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(stream, line);)
    found.push_back(line);
  return found;
}

class Merge : public testing::Test {
protected:
  /* The recorded run, its processes in a directory each: as of two nodes without a common disk. */
  void split(const std::string &recorded, const std::string &name = "node") {
    int node = 0;
    for (const auto &entry : fs::directory_iterator(std::string(SL_TEST_DATA "/") + recorded)) {
      if (!entry.is_directory())
        continue;
      fs::path place = directory / (name + std::to_string(node++));
      fs::create_directory(place);
      fs::copy(entry.path(), place / entry.path().filename(), fs::copy_options::recursive);
    }
    ASSERT_EQ(node, 2);
  }
  /* A process that only waited. */
  void process(const std::string &run, const std::string &rank, uint64_t start_ns,
               const std::string &world_size = "2") {
    LogBuilder log(directory / (run + "/host-" + rank + "-1"), start_ns);
    log.info("rank", rank).info("world_size", world_size).info("start_ns", std::to_string(start_ns));
    log.thread(1).at(start_ns).range_push("wait").at(start_ns + 1000).range_pop();
  }
  CommandResult merge(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"merge", directory / "node0", directory / "node1", "-o", out};
    words.insert(words.end(), more.begin(), more.end());
    return shardledger(words);
  }
  void expect_refusal(const std::string &reason) {
    write_file(out, "what was there");
    CommandResult result = merge();
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(contains(result.error, reason)) << result.error;
    EXPECT_EQ(lines(result.error).size(), 1u) << result.error;
    EXPECT_EQ(read_file(out), "what was there");
  }
  TemporaryDirectory directory;
  std::string out = directory / "merged.sqlite";
};

TEST_F(Merge, HasEveryRowOfTheRunWhole) {
  for (const char *run : {"fsdp2-2rank", "nccl-2rank", "oom-forward-2rank"}) {
    split(run);
    std::string whole = directory / "whole.sqlite";
    ASSERT_EQ(shardledger({"ingest", std::string(SL_TEST_DATA "/") + run, "-o", whole}).status, 0);
    CommandResult result = merge();
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_EQ(result.out, out + "\n");
    const auto tables =
        ledger_rows(whole, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name <> 'meta'");
    EXPECT_GT(tables.size(), 20u);
    for (const std::string &table : tables)
      EXPECT_TRUE(ledger_rows(out, "SELECT * FROM " + table) == ledger_rows(whole, "SELECT * FROM " + table))
          << run << ": " << table;
    fs::remove_all(directory / "node0");
    fs::remove_all(directory / "node1");
  }
}

TEST_F(Merge, OfANodeAloneSaysThatRanksAreMissing) {
  split("fsdp2-2rank");
  EXPECT_EQ(shardledger({"merge", directory / "node0", "-o", out}).status, 0);
  EXPECT_EQ(shardledger({"peaks", out}).out.find("1 of 2 ranks, missing: "), 0u);
}

TEST_F(Merge, RefusesTheSameRankTwice) {
  split("fsdp2-2rank");
  fs::remove_all(directory / "node1");
  fs::copy(directory / "node0", directory / "node1", fs::copy_options::recursive);
  expect_refusal("is in " + (directory / "node0") + " and in " + (directory / "node1"));
}

TEST_F(Merge, RefusesRunsWithoutACommonCommunicator) {
  split("versions/1"); // recorded before logs named their run
  split("nccl-2rank", "other");
  std::string sql = "SELECT rank FROM rank", rank = shardledger({"query", sql, directory / "node0"}).out;
  bool same = shardledger({"query", sql, directory / "other0"}).out == rank;
  fs::remove_all(directory / "node1");
  fs::rename(directory / (same ? "other1" : "other0"), directory / "node1");
  expect_refusal("no communicator in common");
}

TEST_F(Merge, RefusesRunsOfDifferentSizes) {
  process("node0", "0", 1'000'000, "2");
  process("node1", "1", 1'000'000, "4");
  expect_refusal("of a job with 2 ranks and " + (directory / "node1") + " of one with 4");
}

TEST_F(Merge, RefusesRunsOfDifferentTimesWhereNothingElseTells) {
  process("node0", "0", 1'000'000);
  process("node1", "1", 9'000'000);
  expect_refusal("recorded at different times");
  fs::remove_all(directory / "node1");
  process("node1", "1", 1'000'500);
  EXPECT_EQ(merge().status, 0);
}

TEST_F(Merge, RanksKeepTheirNumbersAndHosts) {
  for (const char *rank : {"1", "0"}) {
    LogBuilder log(directory / (std::string("node") + rank + "/process"), 1'000'000);
    log.info("rank", rank).info("world_size", "2").info("host", std::string("host-") + rank);
    log.thread(1).at(1'000'000).range_push("wait").at(1'001'000).range_pop();
  }
  EXPECT_EQ(merge().status, 0);
  EXPECT_EQ(shardledger({"query", "SELECT rank, host FROM rank", out, "--csv"}).out, "rank,host\n0,host-0\n1,host-1\n");
}

TEST_F(Merge, TakesTheNewestRunOfEachDirectoryAndSaysSo) {
  process("node0", "0", 1'000'000);
  process("node1", "1", 1'000'500);
  {
    LogBuilder older(directory / "node1/host-1-0", 500);
    older.info("rank", "1").info("world_size", "2").info("start_ns", "500");
  }
  CommandResult result = merge();
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.error, (directory / "node0") + " and 1 more hold 2 runs")) << result.error;
  EXPECT_EQ(shardledger({"query", "SELECT min(start_ns) FROM rank", out, "--csv"}).out, "min(start_ns)\n1000000\n");
}

TEST_F(Merge, RulesAreThoseOfAllDirectoriesOrNamed) {
  process("node0", "0", 1'000'000);
  process("node1", "1", 1'000'500);
  write_file(directory / "node0/rules", "range wait kind step\n");
  expect_refusal("name those to use with --rules");
  std::string steps = "SELECT count(*) FROM step";
  EXPECT_EQ(merge({"--rules", directory / "node0/rules"}).status, 0);
  EXPECT_EQ(shardledger({"query", steps, out, "--csv"}).out, "count(*)\n2\n");
  EXPECT_FALSE(fs::exists(directory / "node1/rules"));
  write_file(directory / "node1/rules", "range wait kind step\n");
  EXPECT_EQ(merge().status, 0);
  EXPECT_EQ(shardledger({"query", steps, out, "--csv"}).out, "count(*)\n2\n");
}

TEST_F(Merge, NamesWhatIsNoRunDirectory) {
  process("node0", "0", 1'000'000);
  expect_refusal("node1: no such directory");
  fs::create_directory(directory / "node1");
  expect_refusal("node1: no logs here");
  fs::remove(directory / "node1");
  write_file(directory / "node1", "");
  expect_refusal("node1 is a file");
  EXPECT_TRUE(contains(shardledger({"merge"}).error, "run directories are missing"));
  EXPECT_TRUE(contains(shardledger({"merge", directory / "node0"}).error, "-o FILE is missing"));
}

} // namespace
