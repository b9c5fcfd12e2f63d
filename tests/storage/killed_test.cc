// Jobs that were killed: recorded logs as they were at some instant, held against the ledger of the whole run.
#include "fakes/growing_log.h"
#include "fakes/ledger_rows.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

namespace fs = std::filesystem;

class Killed : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("killed-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory / "run");
    build(recorded, directory / "whole.sqlite");
  }
  void TearDown() override {
    fs::remove_all(directory);
  }
  void build(const fs::path &from, const fs::path &to) {
    sl_ledger_options options{};
    sl_error note{}, error{};
    options.keep_all = true; /* every allocation is to be compared */
    ASSERT_EQ(sl_ledger_build(from.c_str(), to.c_str(), &options, &note, &error), 0) << error.text;
  }

  // Every process of the job, as it was at this instant: what a kill leaves.
  void kill_at(uint64_t at_ns) {
    fs::remove_all(directory / "run");
    for (const auto &process : fs::directory_iterator(recorded))
      if (process.is_directory())
        GrowingLog(process.path(), directory / "run" / process.path().filename()).grow(at_ns);
    fs::remove(directory / "killed.sqlite");
    build(directory / "run", directory / "killed.sqlite");
  }

  // Rows as text.
  std::vector<std::string> rows(const char *ledger, const std::string &sql) {
    return ledger_rows(directory / ledger, sql);
  }
  std::vector<std::string> whole(const std::string &sql) {
    return rows("whole.sqlite", sql);
  }
  std::vector<std::string> killed(const std::string &sql) {
    return rows("killed.sqlite", sql);
  }

  // In each step, early and as it is nearly over.
  std::vector<uint64_t> instants() {
    std::vector<uint64_t> found;
    for (const char *share : {"15", "85"})
      for (const std::string &at : whole(std::string("SELECT start_ns + (end_ns - start_ns) * ") + share +
                                         " / 100 FROM step WHERE rank = 0 ORDER BY step"))
        found.push_back(std::stoull(at));
    return found;
  }

  fs::path recorded = fs::path(SL_TEST_DATA) / GetParam(), directory;
};

TEST_P(Killed, EveryStepThatHadEndedAndAllThatWasAliveIsThere) {
  for (uint64_t at : instants()) {
    const std::string t = std::to_string(at),
                      alive = " alloc_ns <= " + t + " AND (free_ns IS NULL OR free_ns > " + t + ") ";
    const std::string ended = // a step that was cut off has a row, too, but its phase has no end
        "SELECT s.rank, s.step, peak_requested_bytes, peak_allocated_bytes, peak_active_bytes, peak_reserved_bytes,"
        " end_allocated_bytes, end_reserved_bytes, end_largest_free_bytes FROM step AS s JOIN phase AS p"
        " ON p.rank = s.rank AND p.kind = 'step' AND p.step = s.step WHERE p.end_ns <= " +
        t + " ORDER BY s.rank, s.step";
    SCOPED_TRACE("killed at " + t);
    kill_at(at);
    EXPECT_EQ(killed("SELECT sum(clean_exit), sum(events_lost) FROM rank"), (std::vector<std::string>{"0|0"}));
    EXPECT_EQ(killed("SELECT reason FROM gap WHERE lost > 0 AND source <> 'ranges'"), std::vector<std::string>());
    EXPECT_EQ(killed(ended), whole(ended));
    EXPECT_EQ(killed("SELECT rank, address, bytes, alloc_ns FROM allocation WHERE free_ns IS NULL ORDER BY 1, 2"),
              whole("SELECT rank, address, bytes, alloc_ns FROM allocation WHERE" + alive + "ORDER BY 1, 2"));
    EXPECT_EQ(killed("SELECT rank, sum(bytes) FROM segment WHERE owner = 'pytorch' AND free_ns IS NULL GROUP BY rank"),
              whole("SELECT rank, sum(bytes) FROM segment WHERE owner = 'pytorch' AND" + alive + "GROUP BY rank"));
    EXPECT_EQ(killed("SELECT rank, count(*), max(seq) FROM collective GROUP BY rank"),
              whole("SELECT rank, count(*), max(seq) FROM collective WHERE enqueue_ns <= " + t + " GROUP BY rank"));
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Killed, testing::Values("fsdp2-2rank", "fsdp2-2rank-kernels", "oom-leak-2rank"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
