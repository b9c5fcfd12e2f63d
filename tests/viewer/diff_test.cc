/* Two runs side by side: aligned by step, FQN and name, the largest change first. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

const std::string header =
    "what,rank,step_a,step_b,period_a,period_b,line,module,phase,category,a_bytes,b_bytes,change_bytes,a_own_bytes,"
    "b_own_bytes,own_change_bytes\n";

class Diff : public testing::Test {
protected:
  // One rank, steps 0 … count - 1; the last one has one MiB more.
  void run(const std::string &file, int64_t activation, int64_t block_own, int count = 2, const char *block = "block") {
    LedgerBuilder ledger(file);
    ledger.rank(0);
    int64_t root = ledger.module(0, "", "Model"), child = ledger.module(0, block, "Block", root);
    for (int step = 0; step < count; step++) {
      int64_t more = step == count - 1 ? mib : 0;
      LedgerBuilder::Categories parts = {{"sharded_param", 100 * mib}, {"activation", activation + more}};
      ledger.step(0, step, 100 * mib + activation + more).peak(0, step, 0, "step", parts);
      ledger.peak(0, step, root, "forward", parts, 10 * mib).peak(0, step, child, "forward", parts, block_own);
    }
  }
  CommandResult diff(std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"diff", a, b});
    return shardledger(options);
  }
  TemporaryDirectory directory;
  std::string a = directory / "a.sqlite", b = directory / "b.sqlite";
};

TEST_F(Diff, TheSameRunDiffersInNothing) {
  run(a, 10 * mib, mib);
  CommandResult result = shardledger({"diff", a, a});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "Peak A 111.0 MiB (rank 0, step 1), B 111.0 MiB (rank 0, step 1): 0 B\n"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "Nothing differs\n")) << result.out;
  EXPECT_EQ(shardledger({"diff", a, a, "--csv"}).out, header);
  EXPECT_TRUE(
      contains(shardledger({"diff", a, a, "--min", "0", "--csv"}).out, "step,0,0,0,,,,,,,115343360,115343360,0,"));
}

TEST_F(Diff, TheLargestChangesComeFirst) {
  run(a, 10 * mib, mib);
  run(b, 14 * mib, 9 * mib);
  std::string csv = diff({"--csv"}).out;
  EXPECT_EQ(csv, header + "step,0,0,0,,,,,,,115343360,119537664,4194304,,,\n"
                          "step,0,1,1,,,,,,,116391936,120586240,4194304,,,\n"
                          "category,0,1,1,,,,,,activation,11534336,15728640,4194304,,,\n"
                          "module,0,1,1,,,,block,forward,,116391936,120586240,4194304,1048576,9437184,8388608\n"
                          "module,0,1,1,,,,,forward,,116391936,120586240,4194304,10485760,10485760,0\n");
  std::string text = diff().out;
  EXPECT_TRUE(contains(text, ": +4.0 MiB\n")) << text;
  EXPECT_LT(text.find("Peak of each step"), text.find("Categories at the peak"));
  EXPECT_TRUE(contains(text, "\n0          1       1  Model   forward ")) << text;
  EXPECT_EQ(diff({"--csv", "--min", "5MiB"}).out,
            header + "module,0,1,1,,,,block,forward,,116391936,120586240,4194304,1048576,9437184,8388608\n");
}

TEST_F(Diff, AModuleThatOneSideLacksChangesByWhatItOwns) {
  run(a, 10 * mib, 3 * mib, 2, "old");
  run(b, 10 * mib, 5 * mib, 2, "new");
  EXPECT_EQ(diff({"--csv"}).out, header + "module,0,,1,,,,new,forward,,,116391936,,,5242880,5242880\n"
                                          "module,0,1,,,,,old,forward,,116391936,,,3145728,,-3145728\n");
}

TEST_F(Diff, ACategoryThatOneSideLacksCountsWhole) {
  run(a, 10 * mib, mib);
  {
    LedgerBuilder ledger(b);
    ledger.rank(0).step(0, 0, mib).peak(0, 0, 0, "step", {{"temp", mib}});
  }
  std::string csv = diff({"--csv", "--step", "0"}).out;
  EXPECT_TRUE(contains(csv, "category,0,,0,,,,,,temp,,1048576,1048576,")) << csv;
  EXPECT_TRUE(contains(csv, "category,0,0,,,,,,,sharded_param,104857600,,-104857600,")) << csv;
}

TEST_F(Diff, StepsWithoutAPartnerAreCountedAndNotCompared) {
  run(a, 10 * mib, mib, 2);
  run(b, 10 * mib, mib, 5);
  EXPECT_TRUE(contains(diff().out, "Steps in A only: 0, in B only: 3 (of all ranks); they are not compared\n"))
      << diff().out;
  EXPECT_FALSE(contains(diff({"--csv", "--min", "0"}).out, "step,0,,4"));
}

TEST_F(Diff, AStepCanBeChosen) {
  run(a, 10 * mib, mib);
  run(b, 14 * mib, mib);
  std::string csv = diff({"--csv", "--step", "0"}).out;
  EXPECT_TRUE(contains(csv, "category,0,0,0,,,,,,activation,10485760,14680064,4194304,")) << csv;
  EXPECT_FALSE(contains(csv, ",1,1,"));
  CommandResult missing = diff({"--step", "7"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(contains(missing.error, "there is no step 7")) << missing.error;
}

TEST_F(Diff, RanksThatOneSideLacksAreCountedAndNotCompared) {
  build_two_rank_run(a);
  {
    LedgerBuilder ledger(b);
    ledger.rank(0).step(0, 0, mib).peak(0, 0, 0, "step", {{"temp", mib}});
  }
  std::string text = diff().out;
  EXPECT_TRUE(contains(text, "Ranks in A only: 1, in B only: 0; they are not compared\n"
                             "Steps in A only: 3, in B only: 0 (of all ranks); they are not compared\n"))
      << text;
  std::string csv = diff({"--csv"}).out;
  EXPECT_TRUE(contains(csv, "\ncategory,0,3,,,,,,,optstate,536870912,,-536870912,")) << csv;
  EXPECT_FALSE(contains(csv, "\ncategory,1,")) << csv;
  EXPECT_FALSE(contains(csv, "\nmodule,1,")) << csv;
}

TEST_F(Diff, RunsWithoutACommonRankAreComparedByNamingTwo) {
  run(a, 10 * mib, mib);
  {
    LedgerBuilder ledger(b);
    ledger.rank(1).step(1, 0, mib).peak(1, 0, 0, "step", {{"temp", mib}});
  }
  EXPECT_EQ(diff().status, 2);
  EXPECT_TRUE(contains(diff().error, "no rank in common; name one of each: --rank R --other-rank R\n"));
  EXPECT_EQ(diff({"--rank", "0", "--other-rank", "1"}).status, 0);
}

TEST_F(Diff, TextSaysOnceWhatIsTheSameOnSeveralRanks) {
  build_two_rank_run(a);
  build_two_rank_run(b);
  sqlite3 *db = nullptr;
  ASSERT_EQ(sqlite3_open(b.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db,
                         "UPDATE period SET peak_allocated_bytes = peak_allocated_bytes + 1048576 WHERE step = 0;"
                         "UPDATE peak_category SET bytes = bytes + 1048576 WHERE rank = 1 AND step = 3 AND module_id"
                         " IS NULL AND category = 'temp'",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  std::string text = diff().out;
  EXPECT_TRUE(contains(text, "Rank  Step A  Step B         A         B    Change\n")) << text;
  EXPECT_TRUE(contains(text, "\n1          3       3  temp      3.0 MiB  4.0 MiB  +1.0 MiB\n")) << text;
  std::string csv = diff({"--csv"}).out;
  EXPECT_TRUE(contains(csv, "\nstep,0,0,0,,,")) << csv;
  EXPECT_TRUE(contains(csv, "\nstep,1,0,0,,,")) << "data has every rank: " << csv;
}

TEST_F(Diff, TwoRanksOfOneRunAreCompared) {
  build_two_rank_run(a);
  std::string csv = shardledger({"diff", a, "--rank", "0", "--other-rank", "1", "--csv"}).out;
  EXPECT_TRUE(contains(csv, "category,,3,3,,,,,,activation,645922816,612368384,-33554432,")) << csv;
  EXPECT_TRUE(contains(csv, "step,,0,0,,,,,,,")) << csv;
}

/* What is before step 0 or after it, in a run that has rank 0, or both ranks, with one step. */
void outside(LedgerBuilder &ledger, int rank, int period, const std::string &kind, int64_t bytes) {
  const std::string start = "(" + std::to_string(rank) + ", " + std::to_string(period) + ", ",
                    peak = std::to_string(bytes);
  ledger.sql(
      "INSERT INTO period(rank, period, kind, step, name, start_ns, end_ns, peak_ns, peak_allocated_bytes) VALUES" +
      start + "'" + kind + "', " + (period ? "0" : "NULL") + ", 'load', 1, 2, 1, " + peak +
      ");"
      "INSERT INTO peak_category(rank, period, phase, category, bytes) VALUES" +
      start + "'" + kind + "', 'program', " + peak + ")");
}

TEST_F(Diff, LivesAreComparedByTheirPeaksAlsoOutsideOfSteps) {
  for (const std::string &file : {a, b}) {
    LedgerBuilder ledger(file);
    ledger.rank(0).step(0, 0, 100 * mib).peak(0, 0, 0, "step", {{"activation", 100 * mib}});
    outside(ledger, 0, 0, "setup", file == a ? 200 * mib : 230 * mib);
    outside(ledger, 0, 2, "end", 50 * mib);
  }
  std::string text = diff().out;
  EXPECT_TRUE(contains(text,
                       "Peak A 200.0 MiB (rank 0, before step 0 (load)), B 230.0 MiB (rank 0, before step 0 (load)):"
                       " +30.0 MiB\n"))
      << text;
  EXPECT_EQ(diff({"--csv"}).out,
            header +
                "period,0,,,before step 0 (load),before step 0 (load),,,,,209715200,241172480,31457280,,,\n"
                "category,0,,,before step 0 (load),before step 0 (load),,,,program,209715200,241172480,31457280,,,\n");
}

TEST_F(Diff, RanksWhoseSetupsDifferAreSeen) {
  {
    LedgerBuilder ledger(a);
    for (int rank = 0; rank < 2; rank++) {
      ledger.rank(rank, 2).step(rank, 0, 100 * mib).peak(rank, 0, 0, "step", {{"activation", 100 * mib}});
      outside(ledger, rank, 0, "setup", rank ? 10 * mib : 90 * mib);
    }
  }
  CommandResult result = shardledger({"diff", a, "--rank", "0", "--other-rank", "1"});
  EXPECT_TRUE(contains(result.out, "Peaks outside of steps\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "-80.0 MiB")) << result.out;
  EXPECT_FALSE(contains(result.out, "Nothing differs")) << result.out;
}

TEST_F(Diff, TwoPeriodsOfOneRunAreCompared) {
  {
    LedgerBuilder ledger(a);
    ledger.rank(0).step(0, 0, 100 * mib).peak(0, 0, 0, "step", {{"activation", 100 * mib}});
    outside(ledger, 0, 0, "setup", 90 * mib);
  }
  CommandResult result = shardledger({"diff", a, "--period", "0", "--other-period", "1"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(
      contains(result.out, "Peak A 90.0 MiB (rank 0, before step 0 (load)), B 100.0 MiB (rank 0, step 0): +10.0 MiB"))
      << result.out;
  std::string csv = shardledger({"diff", a, "--period", "0", "--other-period", "1", "--rank", "0", "--csv"}).out;
  EXPECT_TRUE(contains(csv, "category,")) << csv;
  EXPECT_TRUE(contains(csv, ",program,94371840,,-94371840,")) << csv;
  CommandResult missing = shardledger({"diff", a, "--period", "0", "--other-period", "9"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(contains(missing.error, "the second side has no such period with allocations; ")) << missing.error;
  EXPECT_EQ(shardledger({"diff", a, "--other-period", "1"}).status, 2);
  EXPECT_EQ(shardledger({"diff", a, a, "--period", "1", "--step", "0"}).status, 2);
}

TEST_F(Diff, WhatIsNotComparableIsSaid) {
  run(a, 10 * mib, mib);
  EXPECT_EQ(shardledger({"diff"}).status, 2);
  EXPECT_EQ(shardledger({"diff", a}).status, 2);
  EXPECT_EQ(shardledger({"diff", a, a, "--other-rank", "1"}).status, 2);
  EXPECT_EQ(shardledger({"diff", a, directory / "missing"}).status, 2);
  EXPECT_EQ(shardledger({"diff", a, a, "--min", "much"}).status, 2);
  EXPECT_EQ(shardledger({"diff", a, a, "--rank", "9"}).status, 2);
}

} // namespace
