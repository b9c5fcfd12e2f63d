// Ranks that are ingested at once: the ledger is that of one after the other, whatever their number and their logs.
#include "fakes/ledger_rows.h"
#include "fakes/repeated_run.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

class RankJobs : public testing::Test {
protected:
  void SetUp() override {
    fs::remove_all(directory);
    fs::create_directories(directory / "made");
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  // All that the ledger has. Beside it nothing is left.
  Lines build(const fs::path &run, size_t jobs, bool keep_all = false) {
    options.jobs = jobs;
    options.keep_all = keep_all;
    EXPECT_EQ(sl_ledger_build(run.c_str(), ledger.c_str(), &options, &note, &error), 0) << error.text;
    for (const auto &entry : fs::directory_iterator(ledger.parent_path()))
      EXPECT_EQ(entry.path(), ledger);
    return ledger_dump(ledger);
  }

  // A job of so many ranks, which all do the same.
  void record(uint32_t ranks) {
    RepeatedRun repeated;
    for (const auto &process : fs::directory_iterator(fs::path(SL_TEST_DATA) / "fsdp2-2rank-recompute"))
      if (process.is_directory())
        repeated.from = process.path();
    repeated.to = run / "rank";
    repeated.first = 2;
    repeated.last = 4;
    repeated.times = 2;
    repeated.ranks = ranks;
    std::string reason;
    ASSERT_GT(repeat_steps(repeated, reason), 0u) << reason;
    std::ofstream(run / SL_USER_RULES_NAME) << "range FSDP::* category mine\n"; /* all threads look into them */
  }

  // A stretch in the middle of a rank's log is overwritten.
  void damage(uint32_t rank) {
    const fs::path log = run / ("rank-" + std::to_string(rank)) / "sealed.slogz", own = log.string() + ".own";
    fs::copy(log, own); // all ranks share one file
    fs::rename(own, log);
    std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp((std::streamoff)fs::file_size(log) * 2 / 5);
    file << std::string(1000, 'x');
  }

  fs::path directory = fs::temp_directory_path() / ("rank-jobs-" + std::to_string(getpid()));
  fs::path run = directory / "run", ledger = directory / "made" / "ledger.sqlite";
  sl_ledger_options options{};
  sl_error note{}, error{};
};

TEST_F(RankJobs, OfRecordedJobsAnyNumberMakesTheSameLedger) {
  for (const char *name : {"fsdp2-2rank-kernels", "matrix/late-attach"})
    for (bool keep_all : {false, true}) {
      const fs::path recorded = fs::path(SL_TEST_DATA) / name;
      const Lines one = build(recorded, 1, keep_all);
      for (size_t jobs : {2, 8})
        EXPECT_EQ(build(recorded, jobs, keep_all), one) << name << " with " << jobs;
    }
}

TEST_F(RankJobs, OfSevenRanksAnyNumberMakesTheSameLedger) {
  record(7);
  const Lines one = build(run, 1);
  EXPECT_EQ(ledger_rows(ledger, "SELECT group_concat(rank), min(events) = max(events), min(world_size) FROM rank"),
            Lines{"0,1,2,3,4,5,6|1|7"});
  for (size_t jobs : {0, 2, 3, 1000})
    EXPECT_EQ(build(run, jobs), one) << jobs;
}

TEST_F(RankJobs, ADamagedLogCostsItsOwnRankOnly) {
  record(4);
  build(run, 1);
  const std::string whole = ledger_rows(ledger, "SELECT min(events) FROM rank")[0];
  damage(0);
  damage(2);
  const Lines one = build(run, 1);
  EXPECT_EQ(build(run, 3), one);
  EXPECT_EQ(ledger_rows(ledger, "SELECT DISTINCT rank FROM gap ORDER BY rank"), (Lines{"0", "2"}));
  EXPECT_EQ(ledger_rows(ledger, "SELECT rank FROM rank WHERE events = " + whole), (Lines{"1", "3"}));
}

TEST_F(RankJobs, ThereMayBeMoreRanksThanOpenFiles) {
  record(40);
  rlimit before{}, few{};
  getrlimit(RLIMIT_NOFILE, &before);
  few = {30, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  options.jobs = 3;
  const int r = sl_ledger_build(run.c_str(), ledger.c_str(), &options, &note, &error);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(r, 0) << error.text;
  EXPECT_EQ(ledger_rows(ledger, "SELECT count(*), sum(steps) FROM rank JOIN rank_steps USING (rank)"), Lines{"40|320"});
}

TEST_F(RankJobs, TheirProgressIsThatOfAllLogsTogetherAndNeverGoesBack) {
  record(5);
  struct Seen {
    uint64_t done = 0, total = 0;
    int reports = 0;
  } seen;
  options.progress_context = &seen;
  options.progress = [](void *context, uint64_t done, uint64_t total) {
    auto *seen = (Seen *)context;
    EXPECT_GE(done, seen->done);
    *seen = {done, total, seen->reports + 1};
  };
  build(run, 3);
  EXPECT_GE(seen.reports, 5);
  EXPECT_EQ(seen.done, seen.total);
  uint64_t bytes = 0;
  for (const auto &entry : fs::recursive_directory_iterator(run))
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  EXPECT_NEAR((double)seen.total, (double)bytes, 0.01 * (double)bytes);
}

} // namespace
