// What `watch` shows of jobs that are hard to show: many ranks, names of other people's, nothing recorded.
#include "fakes/command.h"
#include "fakes/log_builder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <string>

namespace {

constexpr uint64_t kStart = 1'000'000'000'000'000'000;
constexpr uint64_t kMiB = 1 << 20;

class Watch : public ::testing::Test {
protected:
  // A rank that has allocated some and ended.
  void rank(int number, uint64_t bytes, int of, const std::string &name = "Block", bool refused = false) {
    LogBuilder log(run / ("host-" + std::to_string(number) + "-1"), kStart);
    log.info("rank", std::to_string(number)).info("world_size", std::to_string(of));
    log.module(1, 0, name, name, SL_MODULE_ROOT);
    auto &thread = log.thread(1);
    thread.at(kStart + 100).range_start(1, "step 0", SL_KIND_step, 0).range_push(name, SL_KIND_forward, 1);
    thread.allocator(SL_SEGMENT_ALLOC, 0x10000000, bytes).allocator(SL_ALLOC, 0x10000000, bytes);
    if (refused)
      thread.allocator(SL_OUT_OF_MEMORY, 0, 1 << 30);
    thread.process_end();
    log.finish();
  }
  CommandResult watch(std::vector<std::string> arguments, bool terminal = false) {
    arguments.insert(arguments.begin(), {"watch", run.string()});
    CommandOptions options;
    options.terminal = terminal;
    return shardledger(arguments, options);
  }

  TemporaryDirectory directory;
  std::filesystem::path run = directory.path + "/run";
};

TEST_F(Watch, WhereNotAllRanksFitTroubleTheHighestAndTheLowestPeaksAreShown) {
  for (int i = 0; i < 24; i++)
    rank(i, (i + 1) * 2 * kMiB, 24, "Block", i == 1);
  CommandResult result = watch({}, true); // it draws, sees that the job has ended, and prints everything
  EXPECT_EQ(result.status, 0);
  const std::string drawn = result.out.substr(0, result.out.find("\033[?1049l"));
  EXPECT_NE(drawn.find("24 ranks, alike in status and peak in 24 rows, of which the highest and the lowest are here"),
            std::string::npos)
      << drawn;
  auto shows = [](const std::string &text, int number) {
    const std::string word = std::to_string(number);
    return text.find("\n" + word + std::string(7 - word.size(), ' ') + "ended") != std::string::npos;
  };
  for (int i = 0; i < 24; i++) {
    EXPECT_EQ(shows(drawn, i), i < 2 || i > 5) << i; // 20 rows
    EXPECT_EQ(shows(result.out.substr(drawn.size()), i), i < 2 || i > 9) << i;
  }
}

TEST_F(Watch, RanksThatAreAlikeShareARowUnlessAllAreAskedFor) {
  for (int i = 0; i < 40; i++)
    rank(i, (i == 7 ? 3 : 2) * kMiB, 40, "Block", i == 1 || i == 2);
  const std::string out = watch({"--once"}).out, all = watch({"--once", "--limit", "all"}).out;
  EXPECT_NE(out.find("\nRanks 1-2: out of memory, step 0, forward Block"), std::string::npos) << out;
  EXPECT_NE(out.find("\n1-2 "), std::string::npos) << out;
  EXPECT_NE(out.find("\n7 "), std::string::npos) << out;
  EXPECT_NE(out.find("\n0,3-6,8-39 "), std::string::npos) << out;
  EXPECT_LT(std::count(out.begin(), out.end(), '\n'), 20);
  EXPECT_NE(all.find("\n  39  ended"), std::string::npos) << all;
  const std::string csv = watch({"--once", "--csv", "--table", "ranks"}).out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 41);
}

TEST_F(Watch, TheRankOfTheHighestPeakIsShownInDetailOrTheOneThatWasNamed) {
  rank(0, 2 * kMiB, 2);
  rank(1, 4 * kMiB, 2);
  EXPECT_NE(watch({"--once"}).out.find("Alive on rank 1"), std::string::npos);
  EXPECT_NE(watch({"--once", "--rank", "0"}).out.find("Alive on rank 0"), std::string::npos);
  CommandResult result = watch({"--once", "--rank", "7"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.error.find("has no rank 7"), std::string::npos);
}

// Of many ranks only the one that is shown is read with its categories; JSON has those of all.
TEST_F(Watch, OfManyRanksTheOneInDetailIsReadInFull) {
  for (int i = 0; i < 20; i++)
    rank(i, (i == 7 ? 3 : 2) * kMiB, 20);
  const std::string out = watch({"--once"}).out, other = watch({"--once", "--rank", "4"}).out;
  EXPECT_NE(out.find("unattributed at the last peak of rank 7;"), std::string::npos) << out;
  EXPECT_NE(out.find("Alive on rank 7"), std::string::npos) << out;
  EXPECT_NE(out.find("3.0 MiB  100.0%"), std::string::npos) << out;
  EXPECT_NE(other.find("unattributed at the last peak of rank 4;"), std::string::npos) << other;
  EXPECT_NE(other.find("2.0 MiB  100.0%"), std::string::npos) << other;
  const std::string json = watch({"--once", "--json"}).out;
  size_t alive = 0;
  for (size_t at = 0; (at = json.find("\"decided\"", at)) != std::string::npos; at++)
    alive++;
  EXPECT_EQ(alive, 20u) << json;
  EXPECT_EQ(watch({"--once", "--rank", "20"}).status, 2);
}

TEST_F(Watch, APeakOutsideOfStepsSaysBetweenWhich) {
  LogBuilder log(run / "host-0-1", kStart);
  log.info("rank", "0").info("world_size", "1");
  auto &thread = log.thread(1);
  thread.at(kStart + 100).allocator(SL_SEGMENT_ALLOC, 0x10000000, 32 * kMiB).allocator(SL_ALLOC, 0x10000000, 2 * kMiB);
  thread.at(kStart + 200).range_start(1, "step 4", SL_KIND_step, 4).at(kStart + 300).range_end(1);
  thread.at(kStart + 400).allocator(SL_ALLOC, 0x10200000, 8 * kMiB);
  thread.at(kStart + 500).process_end();
  log.finish();
  const std::string out = watch({"--once"}).out;
  EXPECT_NE(out.find("between, after step 4\n"), std::string::npos) << out;
  EXPECT_NE(watch({"--once", "--json"}).out.find("\"peak_place\": \"between, after step 4\""), std::string::npos);
}

TEST_F(Watch, APeakBeforeTheFirstStepIsTheSetups) {
  LogBuilder log(run / "host-0-1", kStart);
  log.info("rank", "0").info("world_size", "1");
  auto &thread = log.thread(1);
  thread.at(kStart + 100).allocator(SL_SEGMENT_ALLOC, 0x10000000, 32 * kMiB).allocator(SL_ALLOC, 0x10000000, 2 * kMiB);
  thread.at(kStart + 200).process_end();
  log.finish();
  const std::string out = watch({"--once"}).out;
  EXPECT_NE(out.find("  setup\n"), std::string::npos) << out;
}

TEST_F(Watch, WithoutOnceJsonIsALineEachLookAndTheSameDocument) {
  rank(0, 2 * kMiB, 1, "Bl\nock");
  const CommandResult result = watch({"--json"}); // the job has ended: one look
  EXPECT_EQ(result.status, 0);
  std::string once = watch({"--once", "--json"}).out;
  once.erase(std::remove(once.begin(), once.end(), '\n'), once.end());
  EXPECT_EQ(result.out, once + "\n");
  EXPECT_EQ(watch({"--csv"}).status, 2);
}

TEST_F(Watch, TheLastStepsPeakIsItsOwnAndNotThatOfTheLife) {
  LogBuilder log(run / "host-0-1", kStart);
  log.info("rank", "0").info("world_size", "1");
  log.module(1, 0, "Block", "Block", SL_MODULE_ROOT);
  auto &thread = log.thread(1);
  thread.at(kStart + 100).allocator(SL_SEGMENT_ALLOC, 0x10000000, 32 * kMiB);
  thread.range_start(1, "step 4", SL_KIND_step, 4).allocator(SL_ALLOC, 0x10000000, 8 * kMiB);
  thread.at(kStart + 150)
      .allocator(SL_FREE_REQUESTED, 0x10000000, 8 * kMiB)
      .allocator(SL_FREE_COMPLETED, 0x10000000, 8 * kMiB);
  thread.at(kStart + 200).range_end(1);
  thread.at(kStart + 300).range_start(2, "step 5", SL_KIND_step, 5).range_push("Block", SL_KIND_forward, 1);
  thread.allocator(SL_ALLOC, 0x10000000, 2 * kMiB).range_pop().at(kStart + 400).range_end(2).process_end();
  log.finish();
  const std::string out = watch({"--once", "--json", "--table", "ranks"}).out;
  EXPECT_NE(out.find("\"peak_step\": 4,"), std::string::npos) << out;
  EXPECT_NE(out.find("\"last_step\": 5, \"last_peak_allocated_bytes\": 2097152, \"last_peak_phase\": \"forward\", "
                     "\"last_peak_module\": \"Block\""),
            std::string::npos)
      << out;
}

TEST_F(Watch, NamesCanNotSteerATerminal) {
  rank(0, 2 * kMiB, 1, "\033]0;title\a\033[2J");
  for (bool terminal : {false, true}) {
    CommandResult result = watch({}, terminal);
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.out.find("?]0;title"), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("\033]"), std::string::npos);
    EXPECT_EQ(result.out.find("\033[2J"), std::string::npos);
  }
}

TEST_F(Watch, AJobWithoutAllocationsSaysSo) {
  LogBuilder log(run / "host-1-1", kStart);
  log.info("rank", "0");
  log.thread(1).at(kStart).range_start(1, "step 0", SL_KIND_step, 0).range_end(1).process_end();
  log.finish();
  CommandResult result = watch({"--once"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("PyTorch's allocations are not recorded"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("Alive"), std::string::npos);
}

} // namespace
