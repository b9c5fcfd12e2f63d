/* Which rank is different, as users read it: one line a group, also at the head of peaks and info. */
#include "fakes/command.h"
#include "fakes/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace {

constexpr uint64_t MiB = 1 << 20;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* The example of issue trackers: 256 ranks on 32 hosts, of which one is higher, one host, 64 in a row, and one leaks.
 */
class ManyRanks : public testing::Test {
protected:
  static void SetUpTestSuite() {
    directory = new TemporaryDirectory;
    Fleet fleet;
    fleet.ranks = 256;
    fleet.steps = 16;
    fleet.more = {
        {{137}, 2048 * MiB, 2, 9}, {fleet_ranks("64-71"), 256 * MiB, 1, 0}, {fleet_ranks("180-243"), 128 * MiB, 3, 4}};
    fleet.leaks = {{{20}, 4 * MiB, 6}};
    fleet.late = {{{200}, 50'000'000}};
    fleet.absent = {100, 101, 102, 255};
    write_fleet(directory->path + "/run", fleet);
    CommandResult done = shardledger({"ingest", directory->path + "/run", "-o", ledger()});
    ASSERT_EQ(done.status, 0) << done.error;
  }
  static void TearDownTestSuite() {
    delete directory;
  }
  static std::string ledger() {
    return directory->path + "/run.sqlite";
  }
  static TemporaryDirectory *directory;
};
TemporaryDirectory *ManyRanks::directory;

const char lines[] = "252 ranks in 5 groups; 178 alike (296.0 MiB)\n"
                     "     137 (gpu-node-17)           +2.00 GiB activation, blocks.2 forward, since step 9\n"
                     "     64-71 = all of gpu-node-08  +256.0 MiB activation, blocks.1 forward, since step 0\n"
                     "     180-243                     +128.0 MiB activation, blocks.3 forward, since step 4\n"
                     "     20 (gpu-node-02)            +4.0 MiB/step other/survivor, step, since step 6\n";

TEST_F(ManyRanks, AreToldInOneLineAGroupAndTheMissingOnesByName) {
  CommandResult result = shardledger({"ranks", ledger()});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, std::string(lines) + "missing: 100-102,255 (4 of 256)\n")) << result.out;
}

/* Stages that differ, and in two of them a rank, a host and a leak of their own. */
TEST(ManyRanksInStages, AreToldNextToTheirOwnStage) {
  TemporaryDirectory directory;
  const std::string run = directory.path + "/run";
  Fleet fleet;
  fleet.ranks = 64;
  fleet.steps = 12;
  fleet.mesh = {{"pp", 2}, {"dp", 32}};
  fleet.more = {
      {fleet_ranks("32-63"), 300 * MiB, 3, 0}, {fleet_ranks("40-47"), 100 * MiB, 1, 0}, {{33}, 64 * MiB, 0, 9}};
  fleet.leaks = {{{50}, 4 * MiB, 4}};
  write_fleet(run, fleet);
  const std::string text = shardledger({"ranks", run}).out;
  EXPECT_TRUE(contains(
      text,
      "64 ranks in 5 groups; 32 alike (296.0 MiB)\n"
      "     40-47 = all of gpu-node-05                   next to the rest of pp=1: +100.0 MiB activation, blocks.1 forward, "
      "since step 0\n"
      "     33 (gpu-node-04)                             next to the rest of pp=1: +64.0 MiB activation, blocks.0 forward, "
      "since step 9\n"
      "     50 (gpu-node-06)                             next to the rest of pp=1: +4.0 MiB/step other/survivor, step, "
      "since step 4\n"
      "     32,34-39,48-49,51-63 = pp=1 but 33,40-47,50  +300.0 MiB activation, blocks.3 forward, since step 0\n"))
      << text;
  EXPECT_TRUE(contains(shardledger({"survivors", run}).out,
                       "\nNext to the rest of pp=1: +4.0 MiB/step other/survivor, step, since step 4\n"));
  fleet.mesh.clear();
  std::filesystem::remove_all(run);
  write_fleet(run, fleet);
  EXPECT_TRUE(contains(
      shardledger({"ranks", "--rank", "33", run}).out,
      "33 (gpu-node-04)  next to 32,34-39,48-49,51-63: +64.0 MiB activation, blocks.0 forward, since step 9\n"));
}

TEST_F(ManyRanks, AreAskedForByRanges) {
  const std::string told = shardledger({"ranks", "--rank", "60-65,137", ledger()}).out;
  EXPECT_TRUE(contains(told, "\n     137 (gpu-node-17) ") && contains(told, "\n     64-71 = all of gpu-node-08 "))
      << told;
  EXPECT_FALSE(contains(told, "180-243") || contains(told, "20 (gpu-node-02)")) << told;
  EXPECT_TRUE(contains(shardledger({"ranks", "--rank", "0-9", ledger()}).out, "\n     0-9: alike\n"));
  const std::string hosts = shardledger({"ranks", "--by", "host", "--rank", "60-65", ledger(), "--csv"}).out;
  EXPECT_TRUE(contains(hosts, "\ngpu-node-08,2,64-65,") && contains(hosts, "\ngpu-node-07,4,60-63,")) << hosts;
  const std::string info = shardledger({"info", "--rank", "60-65,137", ledger(), "--csv", "--table", "ranks"}).out;
  EXPECT_EQ(std::count(info.begin(), info.end(), '\n'), 1 + 7) << info;
  for (const char *command : {"ranks", "info"})
    EXPECT_EQ(shardledger({command, "--rank", "100-102", ledger()}).status, 2) << command; /* were not recorded */
}

TEST_F(ManyRanks, AreDumpedAndWatchedByRanges) {
  const std::string run = directory->path + "/run";
  const CommandResult dumped = shardledger({"dump", "--rank", "60-61", "--type", "process_end", "--limit", "all", run});
  EXPECT_EQ(dumped.status, 0) << dumped.error;
  EXPECT_TRUE(contains(dumped.error, "gpu-node-07-1060-1") && contains(dumped.error, "gpu-node-07-1061-1"));
  EXPECT_EQ(std::count(dumped.error.begin(), dumped.error.end(), '\n'), 2) << dumped.error;
  EXPECT_EQ(shardledger({"dump", "--rank", "100-102", run}).status, 2);
  EXPECT_TRUE(contains(shardledger({"watch", "--once", "--rank", "60-70", run}).out, "Alive on rank 64"));
  EXPECT_EQ(shardledger({"watch", "--once", "--rank", "100-102", run}).status, 2);
}

TEST_F(ManyRanks, GrowOnAverageAndSinceTheyBeganTo) {
  const std::string text = shardledger({"survivors", ledger()}).out;
  EXPECT_TRUE(contains(text, " a step on average, from step ")) << text;
  EXPECT_TRUE(contains(text, "\nNext to most ranks: +4.0 MiB/step other/survivor, step, since step 6\n")) << text;
}

TEST_F(ManyRanks, AreTheHeadOfPeaksAndInfo) {
  EXPECT_TRUE(contains(shardledger({"peaks", ledger()}).out, lines));
  EXPECT_TRUE(contains(shardledger({"info", ledger()}).out, lines));
}

TEST_F(ManyRanks, HaveARowAGroupAndFactAsData) {
  CommandResult result = shardledger({"ranks", ledger(), "--csv"});
  EXPECT_TRUE(contains(result.out, "group,ranks,rank_count,representative,host,is_all_of,kind,bytes,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",peak_bytes,next_to,is_rest_of\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "\n1,137,1,137,gpu-node-17,,peak,2147483648,,activation,blocks.2,forward,"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "\n2,64-71,8,64,gpu-node-08,host gpu-node-08,peak,268435456,")) << result.out;
}

TEST_F(ManyRanks, AreSummedUpByHostThoseWithDifferentOnesFirst) {
  CommandResult result = shardledger({"ranks", ledger(), "--by", "host", "--csv"});
  EXPECT_TRUE(contains(result.out, "different_ranks\ngpu-node-08,8,64-71,")) << result.out;
  EXPECT_TRUE(contains(result.out, "\ngpu-node-17,8,136-143,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",1,137\n")) << result.out;
}

TEST_F(ManyRanks, WithoutAMeshSayThatThereIsNone) {
  CommandResult result = shardledger({"ranks", ledger(), "--by", "mesh"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.error, "no DeviceMesh was recorded")) << result.error;
}

TEST_F(ManyRanks, ThatLeakAreNamedBySurvivors) {
  EXPECT_TRUE(contains(shardledger({"survivors", ledger()}).out, "Rank 20 of 252, the only one that grows\n"));
}

TEST_F(ManyRanks, OverABudgetAreNamedByCheckAsRanges) {
  CommandResult result = shardledger({"check", ledger(), "--max-peak", "500MiB"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.out, "; 9 ranks are over it: 64-71,137\n")) << result.out;
}

TEST_F(ManyRanks, OfWhichOneIsLateAreTwoRowsInNccl) {
  CommandResult result = shardledger({"nccl", ledger()});
  EXPECT_TRUE(contains(result.out, "\n200 ")) << result.out;
  EXPECT_TRUE(contains(result.out, "\n0-99,103-199,201-254 ")) << result.out;
}

TEST(Ranks, OneIsComparedWithNone) {
  TemporaryDirectory directory;
  Fleet fleet;
  fleet.ranks = 1;
  write_fleet(directory / "run", fleet);
  CommandResult result = shardledger({"ranks", directory / "run"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "One rank: there is none to compare it with\nmissing: none\n")) << result.out;
}

TEST(Ranks, ThatAreAllAlikeSaySo) {
  TemporaryDirectory directory;
  Fleet fleet;
  write_fleet(directory / "run", fleet);
  EXPECT_TRUE(
      contains(shardledger({"ranks", directory / "run"}).out, "16 ranks, all alike (296.0 MiB)\nmissing: none\n"));
}

} // namespace
