// Ranks that behave alike are one group; what is different is found, with what, where and since when, and nothing else
// is.
#include "fakes/fleet.h"
#include "fakes/ledger_rows.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/run/rank_slope.h"
}

#include <gtest/gtest.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;
constexpr uint64_t MiB = 1 << 20;

class RankGroups : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("rank-groups-" + std::to_string(getpid()));
    fs::remove_all(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  void build(const Fleet &fleet) {
    fs::remove_all(directory);
    write_fleet(directory, fleet);
    struct sl_error note, error;
    ledger = directory / "ledger.sqlite";
    ASSERT_EQ(sl_ledger_build(directory.c_str(), ledger.c_str(), nullptr, &note, &error), 0) << error.text;
  }
  Rows ask(const std::string &sql) {
    return ledger_rows(ledger, sql);
  }
  /* group: ranks, the lowest, the highest. */
  Rows groups() {
    return ask("SELECT group_number, count(*), min(rank), max(rank) FROM rank_group GROUP BY 1 ORDER BY 1");
  }
  Rows facts() {
    return ask(
        "SELECT group_number, kind, bytes / 1048576, bytes_per_step / 1048576, category, module, phase, since_step, last_step,"
        " steps FROM rank_difference ORDER BY group_number, place");
  }

  fs::path directory;
  std::string ledger;
};

TEST_F(RankGroups, RanksThatAreAlikeAreOneGroupWithoutAnyDifference) {
  Fleet fleet;
  build(fleet);
  EXPECT_EQ(groups(), Rows{"0|16|0|15"});
  EXPECT_EQ(facts(), Rows{});
  EXPECT_EQ(ask("SELECT DISTINCT representative FROM rank_group"), Rows{"0"});
}

/* The example of the page, with hosts of four. */
TEST_F(RankGroups, EachOutlierIsFoundWithWhatWhereAndSinceWhen) {
  Fleet fleet;
  fleet.ranks = 64;
  fleet.ranks_per_host = 4;
  fleet.steps = 24;
  fleet.more = {
      {{37}, 2048 * MiB, 2, 14}, {fleet_ranks("16-19"), 256 * MiB, 1, 0}, {fleet_ranks("44-59"), 128 * MiB, 3, 5}};
  fleet.leaks = {{{9}, 4 * MiB, 10}};
  build(fleet);
  EXPECT_EQ(groups(), (Rows{"0|42|0|63", "1|1|37|37", "2|4|16|19", "3|16|44|59", "4|1|9|9"}));
  EXPECT_EQ(facts(),
            (Rows{"1|peak|2048||activation|blocks.2|forward|14||10", "2|peak|256||activation|blocks.1|forward|0||24",
                  "3|peak|128||activation|blocks.3|forward|5||19", "4|growth|56|4|other||step|10||14"}));
  EXPECT_EQ(ask("SELECT is_all_of FROM rank_difference WHERE group_number = 2"), Rows{"host gpu-node-04"});
  EXPECT_EQ(ask("SELECT is_all_of IS NULL FROM rank_difference WHERE group_number <> 2"), (Rows{"1", "1", "1"}));
}

TEST_F(RankGroups, NoiseOfHalfAPercentMakesNoOutlierAndHidesNone) {
  Fleet fleet;
  fleet.ranks = 64;
  fleet.noise = 0.005;
  build(fleet);
  EXPECT_EQ(groups(), Rows{"0|64|0|63"});
  fleet.more = {{{37}, 64 * MiB, 2, 4}};
  fleet.leaks = {{{9}, 4 * MiB, 1}};
  build(fleet);
  EXPECT_EQ(ask("SELECT min(rank), count(*) FROM rank_group WHERE group_number > 0 GROUP BY group_number"),
            (Rows{"37|1", "9|1"}));
  EXPECT_EQ(ask("SELECT kind, category, module, since_step FROM rank_difference ORDER BY group_number, place"),
            (Rows{"peak|activation|blocks.2|4", "growth|other||1"}));
}

/* Batches of other lengths on each rank and in each step: a tenth more or less is chance, and half as much again is
 * not. */
TEST_F(RankGroups, WhatShapesDependOnIsMeasuredAndNotTakenForADifference) {
  Fleet fleet;
  fleet.ranks = 32;
  fleet.steps = 16;
  fleet.noise = 0.1;
  build(fleet);
  EXPECT_EQ(groups(), Rows{"0|32|0|31"});
  fleet.more = {{{7}, 512 * MiB, 2, 4}};
  build(fleet);
  EXPECT_EQ(ask("SELECT min(rank), count(*) FROM rank_group WHERE group_number > 0 GROUP BY group_number"),
            Rows{"7|1"});
}

TEST_F(RankGroups, AStageIsItsCommunicatorAndItsCoordinateOfTheMesh) {
  Fleet fleet;
  fleet.stages = 4;
  fleet.more = {{fleet_ranks("4-7"), 64 * MiB, 0, 0}, {fleet_ranks("2,6,10,14"), 32 * MiB, 1, 0}};
  build(fleet);
  EXPECT_EQ(ask("SELECT is_all_of IS NULL FROM rank_difference ORDER BY group_number"), (Rows{"1", "1", "1"}));
  fleet.more.pop_back();
  build(fleet);
  EXPECT_EQ(ask("SELECT is_all_of LIKE 'communicator 0x%' FROM rank_difference"), Rows{"1"});
  fleet.mesh = {{"pp", 4}, {"dp", 4}};
  build(fleet);
  EXPECT_EQ(ask("SELECT is_all_of FROM rank_difference"), Rows{"mesh pp=1"});
  EXPECT_EQ(ask("SELECT * FROM mesh WHERE rank = 6"), (Rows{"6|0|0|pp|4|1", "6|0|1|dp|4|2"}));
}

/* A stage holds what it holds from the beginning; a rank of it is told next to the stage, and not next to the first
 * one.
 */
TEST_F(RankGroups, AnOutlierOfAStageIsToldNextToItsStage) {
  Fleet fleet;
  fleet.ranks = 32;
  fleet.ranks_per_host = 16; /* two stages each */
  fleet.steps = 12;
  fleet.mesh = {{"pp", 4}, {"dp", 8}};
  fleet.more = {{fleet_ranks("8-15"), 64 * MiB, 0, 0},
                {fleet_ranks("16-23"), 128 * MiB, 1, 0},
                {fleet_ranks("24-31"), 200 * MiB, 2, 0},
                {{20}, 96 * MiB, 3, 5},
                {{29, 30}, 40 * MiB, 3, 0}};
  fleet.leaks = {{{10}, 4 * MiB, 4}};
  build(fleet);
  EXPECT_EQ(facts(),
            (Rows{"1|peak|96||activation|blocks.3|forward|5||7", "2|peak|40||activation|blocks.3|forward|0||12",
                  "3|growth|32|4|other||step|4||8", "4|peak|200||activation|blocks.2|forward|0||12",
                  "5|peak|128||activation|blocks.1|forward|0||12", "6|peak|64||activation|blocks.0|forward|0||12"}));
  EXPECT_EQ(
      ask("SELECT d.group_number, group_concat(rank), next_to, is_all_of, is_rest_of FROM rank_difference d JOIN rank_group "
          "USING (group_number) GROUP BY 1"),
      (Rows{"1|20|5||", "2|29,30|4||", "3|10|6||", "4|24,25,26,27,28,31|0||mesh pp=3",
            "5|16,17,18,19,21,22,23|0||mesh pp=2", "6|8,9,11,12,13,14,15|0||mesh pp=1"}));
  EXPECT_EQ(ask("SELECT base, count(*), min(rank), max(rank) FROM rank_group GROUP BY base"),
            (Rows{"0|8|0|7", "8|8|8|15", "16|8|16|23", "24|8|24|31"}))
      << "each next to its own stage";
}

TEST_F(RankGroups, ALeakOfAStageIsToldNextToItsStageAlsoWhereAnotherComesNearer) {
  Fleet fleet;
  fleet.ranks = 32;
  fleet.steps = 24;
  fleet.more = {{fleet_ranks("8-15"), 64 * MiB, 0, 0},
                {fleet_ranks("16-23"), 80 * MiB, 1, 0},
                {fleet_ranks("24-31"), 96 * MiB, 2, 0}};
  fleet.leaks = {{{10}, 2 * MiB, 0}, {{20}, 9 * MiB, 1}}; /* less and more than the tolerance in each step */
  build(fleet);
  EXPECT_EQ(
      ask("SELECT kind, bytes_per_step / 1048576, (SELECT min(rank) FROM rank_group o WHERE o.group_number = d.next_to) FROM "
          "rank_difference d JOIN rank_group g USING (group_number) WHERE g.rank IN (10, 20) ORDER BY g.rank"),
      (Rows{"growth|2|8", "growth|9|16"}));
}

/* Next to the largest group two ranks differ as often; that another group is half as far says nothing. */
TEST_F(RankGroups, AnOutlierOfTheLargestGroupIsToldNextToNoOther) {
  Fleet fleet;
  fleet.ranks = 32;
  fleet.steps = 12;
  fleet.more = {
      {fleet_ranks("24-31"), 128 * MiB, 2, 0}, {fleet_ranks("4-7"), 256 * MiB, 1, 0}, {{9}, 2048 * MiB, 3, 5}};
  fleet.leaks = {{{12}, 4 * MiB, 4}};
  build(fleet);
  EXPECT_EQ(
      ask("SELECT min(rank), next_to FROM rank_difference JOIN rank_group USING (group_number) GROUP BY group_number"),
      (Rows{"9|0", "4|0", "24|0", "12|0"}));
}

TEST_F(RankGroups, OfTwoRanksThatDifferTheLowerOneIsWhatTheOtherIsToldNextTo) {
  Fleet fleet;
  fleet.ranks = 2;
  fleet.more = {{{0}, 64 * MiB, 0, 3}};
  build(fleet);
  EXPECT_EQ(groups(), (Rows{"0|1|1|1", "1|1|0|0"}));
  EXPECT_EQ(facts(), Rows{"1|peak|64||activation|blocks.0|forward|3||5"});
  fleet.ranks = 1;
  build(fleet);
  EXPECT_EQ(groups(), Rows{"0|1|0|0"});
  EXPECT_EQ(facts(), Rows{});
}

TEST_F(RankGroups, ARankThatEndedEarlyIsComparedOverTheStepsThatItHas) {
  Fleet fleet;
  fleet.deaths = {{{3}, Fleet::End::killed, 5, 0}, {{4}, Fleet::End::refused, 6, 0}, {{5}, Fleet::End::waits, 5, 0}};
  build(fleet);
  EXPECT_EQ(groups(), Rows{"0|16|0|15"});
  fleet.more = {{{3}, 64 * MiB, 1, 4}};
  build(fleet);
  EXPECT_EQ(groups(), (Rows{"0|15|0|15", "1|1|3|3"}));
  EXPECT_EQ(facts(), Rows{"1|peak|64||activation|blocks.1|forward|4||1"});
}

/* What a log ends in is not compared, but where it is higher already. */
TEST_F(RankGroups, ARankThatDiesOfWhatItHasMoreIsDifferent) {
  Fleet fleet;
  fleet.more = {{{3}, 1024 * MiB, 1, 5}};
  fleet.deaths = {{{3}, Fleet::End::refused, 5, 0}, {fleet_ranks("0-2,4-15"), Fleet::End::waits, 6, 0}};
  build(fleet);
  EXPECT_EQ(groups(), (Rows{"0|15|0|15", "1|1|3|3"}));
  EXPECT_EQ(ask("SELECT kind, category, module, since_step, last_step FROM rank_difference"),
            Rows{"peak|activation|blocks.1|5|"});
}

TEST_F(RankGroups, ALeakBelowTheToleranceIsToldAsASlope) {
  Fleet fleet;
  fleet.steps = 12;
  fleet.leaks = {{{11}, 1 * MiB, 6}}; /* 6 MiB in all: 2 % of the peak only in the last step */
  fleet.more = {{fleet_ranks("0-15"), 1024 * MiB, 0, 0}};
  build(fleet);
  EXPECT_EQ(facts(), Rows{"1|growth|6|1|other||step|6||6"});
}

TEST_F(RankGroups, ADifferenceThatPassesSaysInWhichSteps) {
  Fleet fleet;
  fleet.more = {{{2}, 64 * MiB, 1, 3}, {{2}, (uint64_t)0 - 64 * MiB, 1, 5}}; /* and from 5 on as before */
  build(fleet);
  EXPECT_EQ(facts(), Rows{"1|peak|64||activation|blocks.1|forward|3|4|2"});
}

/* ---- slopes ---- */

struct sl_slope slope_of(const std::vector<int64_t> &difference, int64_t noise = 0) {
  std::vector<int64_t> steps;
  for (size_t i = 0; i < difference.size(); i++)
    steps.push_back((int64_t)i);
  struct sl_slope slope = {};
  if (sl_slope_find(steps.data(), difference.data(), difference.size(), noise, &slope) != 1)
    return {};
  return slope;
}

TEST(Slope, OneJumpOrAFewAreNone) {
  EXPECT_EQ(slope_of({0, 0, 0, 100000, 100000, 100000, 100000}).bytes, 0);
  EXPECT_EQ(slope_of({0, 50000, 50000, 100000, 100000, 150000, 150000}).bytes, 0);
}

TEST(Slope, WhatComesAndGoesIsNone) {
  EXPECT_EQ(slope_of({0, 90000, 10000, 80000, 20000, 70000, 0, 90000}, 50000).bytes, 0);
  EXPECT_EQ(slope_of({0, 20000, 40000, 60000, 80000, 0}).bytes, 0); /* freed in the end */
}

TEST(Slope, WhatFillsAndThenStaysIsNone) {
  EXPECT_EQ(slope_of({0,     10000, 20000, 30000, 40000, 50000, 50000, 50000, 50000, 50000, 50000, 50000,
                      50000, 50000, 50000, 50000, 50000, 50000, 50000, 50000, 50000, 50000, 50000, 50000})
                .bytes,
            0);
}

TEST(Slope, ALeakHasItsFirstStepAndItsRateAlsoWhenItIsTheOtherOnes) {
  const std::vector<int64_t> leak = {0, 0, 0, 10000, 20000, 30000, 40000, 50000};
  EXPECT_EQ(slope_of(leak).since_step, 3);
  EXPECT_EQ(slope_of(leak).bytes_per_step, 10000);
  EXPECT_EQ(slope_of(leak).bytes, 50000);
  std::vector<int64_t> mirrored;
  for (const int64_t bytes : leak)
    mirrored.push_back(-bytes);
  EXPECT_EQ(slope_of(mirrored).bytes_per_step, -10000);
  EXPECT_EQ(slope_of({10000, 20000, 30000, 40000, 50000, 60000}).since_step, 0);
}

TEST(Slope, AFewBytesAStepAreKeptLosses) {
  EXPECT_EQ(slope_of({0, 512, 1024, 1536, 2048, 2560, 3072}).bytes, 0);
}

} // namespace
