/* Budgets for CI: what keeps them exits 0, what doesn't exits 1 with a reason, what can't be told exits 2. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* Its peak is 1.78 GiB on rank 0 in the backward of blocks.1, step 3. */
class Check : public testing::Test {
protected:
  void SetUp() override {
    build_two_rank_run(path);
  }
  CommandResult check(std::vector<std::string> options) {
    options.insert(options.begin(), {"check", path});
    return shardledger(options);
  }
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";
};

TEST_F(Check, KeptBudgetsExitWithZero) {
  CommandResult result = check({"--max-peak", "2GiB", "--max-category", "activation=1GiB", "--max-category=temp=3MiB"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(result.error, "");
  EXPECT_TRUE(contains(result.out, "max-peak                 kept     1.79 GiB  2.00 GiB\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "max-category temp        kept      3.0 MiB   3.0 MiB\n"))
      << "as much is not too much";
}

TEST_F(Check, AFailedBudgetExitsWithOneAndSaysByHowMuchAndWhere) {
  CommandResult result = check({"--max-peak", "1GiB", "--max-category", "activation=600MiB"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.out, "max-peak: the peak is 1.79 GiB (rank 0, step 3, backward of blocks.1): "))
      << result.out;
  EXPECT_TRUE(contains(result.out, "over the budget of 1.00 GiB; 2 ranks are over it: 0-1\n"));
  EXPECT_TRUE(
      contains(result.out, "activation has 616.0 MiB at the peak of step 3 on rank 0: 16.0 MiB over the budget of"))
      << result.out;
}

TEST_F(Check, GrowthIsWhatEachStepLeavesForGood) {
  {
    LedgerBuilder ledger(path = directory / "leak.sqlite");
    ledger.rank(0);
    int64_t head = ledger.module(0, "head", "Linear");
    for (int step = 0; step < 5; step++) {
      ledger.step(0, step, 100 * mib).peak(0, step, 0, "step", {{"activation", 100 * mib}});
      ledger.allocation(0, step, 2 * mib, "other", head)
          .sql("UPDATE allocation SET last_step = 4 WHERE id = last_insert_rowid()");
    }
  }
  EXPECT_EQ(check({"--max-growth", "2MiB/step"}).status, 0);
  CommandResult result = check({"--max-growth", "1MiB/step"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(
      result.out, "rank 0 grows 2.0 MiB a step on average, from step 1 to 4: 1.0 MiB over the budget of 1.0 MiB a step;"
                  " most of it, 6.0 MiB in all, is other of Linear.head"))
      << result.out;
}

TEST_F(Check, GrowthOfTwoStepsCantBeTold) {
  {
    LedgerBuilder ledger(path = directory / "short.sqlite");
    ledger.rank(0).step(0, 0, mib).step(0, 1, mib);
  }
  CommandResult result = check({"--max-growth", "1MiB/step"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "growth can't be told from 2 steps; at least four are needed")) << result.error;
}

TEST_F(Check, RanksThatWereNotRecordedAreAFailureUnlessTheyAreAllowed) {
  {
    LedgerBuilder ledger(path = directory / "part.sqlite");
    for (int rank : {0, 1, 3})
      ledger.rank(rank, 6).step(rank, 0, 100 * mib).peak(rank, 0, 0, "step", {{"activation", 100 * mib}});
  }
  const std::string junit = directory / "junit.xml";
  CommandResult result = check({"--max-peak", "1GiB", "--junit", junit});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out.find("3 of 6 ranks, missing: 2,4-5; "), 0u) << result.out;
  EXPECT_TRUE(contains(result.out, "\nranks: 3 of 6 ranks were recorded; what the others had (2,4-5) is not known: "
                                   "--allow-missing checks those that are there alone\n"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "\nmax-peak  kept    100.0 MiB  1.00 GiB\n")) << result.out;
  EXPECT_TRUE(contains(read_file(junit), "<testsuites tests=\"2\" failures=\"1\">")) << read_file(junit);
  EXPECT_TRUE(contains(check({"--max-peak", "1GiB", "--csv"}).out, "\nranks,failed,,,,\"3 of 6 ranks were recorded"));
  result = check({"--max-peak", "1GiB", "--allow-missing"});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_EQ(result.out.find("3 of 6 ranks, missing: 2,4-5; "), 0u) << result.out;
  EXPECT_EQ(check({"--max-peak", "1MiB", "--allow-missing"}).status, 1);
}

class CheckAgainst : public Check {
protected:
  void one_step(const std::string &file, int64_t activation, int ranks = 1) {
    LedgerBuilder ledger(file);
    for (int rank = 0; rank < ranks; rank++)
      ledger.rank(rank, ranks)
          .step(rank, 0, 100 * mib + activation)
          .peak(rank, 0, 0, "step", {{"sharded_param", 100 * mib}, {"activation", activation}});
  }
  void SetUp() override {
    path = directory / "now.sqlite";
    one_step(base, 100 * mib);
    one_step(path, 102 * mib);
  }
  std::string base = directory / "base.sqlite";
};

TEST_F(CheckAgainst, WithinTheToleranceIsKept) {
  EXPECT_EQ(check({"--against", base, "--tolerance", "1%"}).status, 0);
  EXPECT_EQ(check({"--against", base, "--tolerance", "0.9%"}).status, 1);
}

TEST_F(CheckAgainst, TheReasonNamesWhatGrew) {
  CommandResult result = check({"--against", base});
  EXPECT_EQ(result.status, 1) << "without a tolerance nothing may grow";
  EXPECT_TRUE(contains(result.out,
                       "against rank 0: the peak of rank 0 is 202.0 MiB and was 200.0 MiB: 2.0 MiB over the limit"
                       " (base and 0%) of 200.0 MiB; activation +2.0 MiB\n"))
      << result.out;
  one_step(path = directory / "less.sqlite", 50 * mib);
  EXPECT_EQ(check({"--against", base}).status, 0) << "less is fine";
}

TEST_F(CheckAgainst, RunsOfOtherRanksDontCompare) {
  one_step(path = directory / "two.sqlite", 100 * mib, 2);
  CommandResult result = check({"--against", base});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "different ranks (1 are in one only)")) << result.error;
}

TEST_F(CheckAgainst, ABaseThatIsNoLedgerIsBadInput) {
  write_file(directory / "text", "hello");
  EXPECT_EQ(check({"--against", directory / "text"}).status, 2);
  EXPECT_EQ(check({"--against", directory / "missing"}).status, 2);
}

TEST_F(Check, WhatIsNoBudgetIsBadInput) {
  for (std::vector<std::string> options :
       std::vector<std::vector<std::string>>{{},
                                             {"--max-peak", "5G"},
                                             {"--max-peak", "-1"},
                                             {"--max-peak", "big"},
                                             {"--max-category", "activation"},
                                             {"--max-category", "activation="},
                                             {"--max-category", "=1GiB"},
                                             {"--max-category", "activatoin=1GiB"},
                                             {"--max-growth", "1MiB"},
                                             {"--max-growth", "/step"},
                                             {"--tolerance", "1%"},
                                             {"--max-peak", "1GiB", "--tolerance", "1%"},
                                             {"--against", path, "--tolerance", "1"}}) {
    CommandResult result = check(options);
    EXPECT_EQ(result.status, 2) << (options.empty() ? "" : options.back());
    EXPECT_NE(result.error, "");
  }
}

/* A period outside of steps, with the bytes of its peak as temp. */
void outside(LedgerBuilder &ledger, int period, const std::string &kind, const std::string &name, int64_t bytes,
             const std::string &step = "NULL") {
  const std::string start = "(0, " + std::to_string(period) + ", ", peak = std::to_string(bytes);
  ledger.sql(
      "INSERT INTO period(rank, period, kind, step, name, start_ns, end_ns, peak_ns, peak_allocated_bytes) VALUES" +
      start + "'" + kind + "', " + step + ", '" + name + "', 1, 2, 1, " + peak +
      ");"
      "INSERT INTO peak_category(rank, period, phase, category, bytes) VALUES" +
      start + "'" + kind + "', 'temp', " + peak + ")");
}

TEST_F(Check, ThePeakIsThatOfTheWholeLifeAndTheStepsHaveTheirOwnBudget) {
  {
    LedgerBuilder ledger(path = directory / "load.sqlite");
    ledger.rank(0);
    for (int step = 0; step < 4; step++)
      ledger.step(0, step, 2 * gib).peak(0, step, 0, "step", {{"activation", 2 * gib}});
    outside(ledger, 6, "between", "load_state_dict", 6 * gib, "2");
  }
  CommandResult result = check({"--max-peak", "5GiB", "--max-category", "temp=4GiB"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.out, "max-peak: the peak is 6.00 GiB (rank 0, between steps 2 and 3 (load_state_dict)): "
                                   "1.00 GiB over the budget of 5.00 GiB\n"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "temp has 6.00 GiB at the peak between steps 2 and 3 (load_state_dict) on rank 0: "))
      << result.out;
  EXPECT_EQ(check({"--max-step-peak", "2GiB"}).status, 0);
  EXPECT_TRUE(
      contains(check({"--max-step-peak", "1GiB"}).out, "max-step-peak: the steps' peak is 2.00 GiB (rank 0, step 0, "))
      << check({"--max-step-peak", "1GiB"}).out;
}

TEST_F(Check, ARunWithoutStepsIsCheckedByItsWholeLife) {
  {
    LedgerBuilder ledger(path = directory / "server.sqlite");
    ledger.rank(0);
    outside(ledger, 0, "whole", "generate", 3 * gib);
  }
  EXPECT_EQ(check({"--max-peak", "3GiB", "--max-category", "temp=3GiB"}).status, 0);
  EXPECT_TRUE(contains(check({"--max-peak", "1GiB"}).out, "(rank 0, in a job without steps (generate)): 2.00 GiB over"))
      << check({"--max-peak", "1GiB"}).out;
  CommandResult steps = check({"--max-step-peak", "1GiB"});
  EXPECT_EQ(steps.status, 2);
  EXPECT_TRUE(contains(steps.error, "no step with allocations was recorded, so --max-step-peak can't be checked"))
      << steps.error;
}

TEST_F(CheckAgainst, LivesAreComparedAlsoWhereThePeakIsOutsideOfSteps) {
  {
    LedgerBuilder ledger(path = directory / "setup.sqlite");
    ledger.rank(0).step(0, 0, 200 * mib).peak(0, 0, 0, "step", {{"activation", 200 * mib}});
    outside(ledger, 0, "setup", "load_state_dict", 300 * mib);
  }
  CommandResult result = check({"--against", base});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.out, "the peak of rank 0 is 300.0 MiB and was 200.0 MiB: 100.0 MiB over the limit"
                                   " (base and 0%) of 200.0 MiB; temp +300.0 MiB\n"))
      << result.out;
}

TEST_F(Check, ARunWithoutAllocationsIsNotPassed) {
  {
    LedgerBuilder ledger(path = directory / "empty.sqlite");
    ledger.rank(0);
  }
  CommandResult result = check({"--max-peak", "1GiB"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "no allocations were recorded, so no budget can be checked")) << result.error;
}

TEST_F(Check, JUnitHasACaseForEachBudgetAndAFailureForEachReason) {
  {
    LedgerBuilder ledger(path = directory / "odd.sqlite");
    ledger.rank(0).step(0, 0, mib).peak(0, 0, 0, "step", {{"a<b>\"&", mib}});
  }
  std::string file = directory / "memory.xml";
  EXPECT_EQ(check({"--max-peak", "2MiB", "--max-category", "a<b>\"&=1KiB", "--junit", file}).status, 1);
  std::string xml = read_file(file);
  EXPECT_TRUE(contains(xml, "<testsuite name=\"shardledger check\" tests=\"2\" failures=\"1\">")) << xml;
  EXPECT_TRUE(contains(xml, "<testcase classname=\"shardledger.check\" name=\"max-peak\"><system-out>")) << xml;
  EXPECT_TRUE(
      contains(xml, "name=\"max-category a&lt;b&gt;&quot;&amp;\"><failure message=\"a&lt;b&gt;&quot;&amp; has 1.0 MiB"))
      << xml;
  EXPECT_EQ(check({"--max-peak", "2MiB", "--junit", directory / "none" + "/x.xml"}).status, 2);
}

TEST_F(Check, DataHasTheReasonsToo) {
  CommandResult result = check({"--max-peak", "1GiB", "--csv"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.out, "check,result,rank,bytes,limit_bytes,reason\nmax-peak,failed,0,")) << result.out;
}

} // namespace
