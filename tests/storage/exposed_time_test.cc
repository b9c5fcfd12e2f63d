// The exposed part of collectives, from made-up logs: kernels as CUPTI may deliver them, in any order.
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/tables/db.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Interval {
  uint64_t start, end;
};

class ExposedTime : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("exposed-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
    log = std::make_unique<LogBuilder>(directory / "host-1-1", 50);
    log->info("rank", "0").info("world_size", "1");
  }
  void TearDown() override {
    log.reset();
    fs::remove_all(directory);
  }

  // A call at 100 whose kernel ran then, as its correlation id tells.
  void collective(uint64_t start, uint64_t end, uint16_t device = 0, uint32_t stream = 19) {
    uint32_t correlation = ++calls;
    auto &thread = log->thread(1);
    thread.at(100).range_push("ncclAllGather", 0, 0, "NCCL");
    thread.append(sl_event_launch{correlation, 0});
    thread.range_pop("NCCL");
    kernel("ncclDevKernel_AllGather_RING_LL(x)", start, end, device, stream, correlation);
  }
  void compute(uint64_t start, uint64_t end, uint16_t device = 0, uint32_t stream = 7) {
    kernel("void at::native::elementwise_kernel()", start, end, device, stream, 0);
  }
  void kernel(const char *name, uint64_t start, uint64_t end, uint16_t device, uint32_t stream, uint32_t correlation) {
    log->thread(9).at(1'000'000).append(sl_event_kernel{start, end, log->string(name), correlation, stream, device, 1});
  }

  // In the order of the calls; "-" for NULL.
  std::string exposed() {
    log->finish();
    fs::path output = directory / "ledger.sqlite";
    std::string found;
    sl_error note{}, error{};
    sl_db *db = nullptr;
    sl_statement *rows = nullptr;
    if (sl_ledger_build(directory.c_str(), output.c_str(), nullptr, &note, &error) == 0 &&
        sl_db_open(output.c_str(), SL_DB_READ, &db, &error) == 0 &&
        sl_db_prepare(db, "SELECT coalesce(exposed_ns, '-') FROM collective ORDER BY id", &rows, &error) == 0)
      while (sl_statement_step(rows, &error) > 0)
        found += (found.empty() ? "" : " ") + std::string(sl_column_text(rows, 0));
    EXPECT_STREQ(error.text, "");
    sl_statement_close(rows);
    sl_db_close(db);
    return found;
  }

  fs::path directory;
  std::unique_ptr<LogBuilder> log;
  uint32_t calls = 0;
};

TEST_F(ExposedTime, WithoutComputeKernelsNothingIsKnown) {
  collective(200, 300);
  EXPECT_EQ(exposed(), "-");
}

TEST_F(ExposedTime, IsAllOfACollectiveThatRanAlone) {
  compute(100, 200);
  collective(200, 300);
  compute(300, 400);
  EXPECT_EQ(exposed(), "100");
}

TEST_F(ExposedTime, LeavesOutWhatOverlapsAtEitherEnd) {
  compute(150, 220);
  collective(200, 300);
  compute(290, 400);
  EXPECT_EQ(exposed(), "70");
}

TEST_F(ExposedTime, CountsKernelsOfSeveralStreamsAndKernelsInsideOfOthersOnce) {
  collective(200, 300);
  compute(210, 250, 0, 7);
  compute(220, 230, 0, 8); // inside of it
  compute(240, 260, 0, 9); // goes on behind it
  compute(240, 245, 0, 7);
  EXPECT_EQ(exposed(), "50");
}

TEST_F(ExposedTime, IsNothingUnderOneKernelThatRunsBeforeAndBehindIt) {
  compute(100, 1000);
  collective(200, 300);
  collective(400, 500);
  EXPECT_EQ(exposed(), "0 0");
}

TEST_F(ExposedTime, OfCollectivesAtTheSameTimeIsEachOnesOwn) {
  collective(200, 300, 0, 19);
  collective(250, 400, 0, 23);
  compute(240, 260);
  EXPECT_EQ(exposed(), "80 140");
}

TEST_F(ExposedTime, IsNotReducedByCopiesOrByOtherCollectives) {
  collective(200, 300, 0, 19);
  collective(200, 300, 0, 23);
  compute(10, 20);
  log->thread(9).append(sl_event_memory_copy{210, 290, 64, 0, 7, 0, 8, SL_MEMORY_DEVICE, SL_MEMORY_DEVICE, 0, 0});
  EXPECT_EQ(exposed(), "100 100");
}

TEST_F(ExposedTime, OfACollectiveThatDidNotEndOrWhoseKernelIsNotKnownIsUnknown) {
  compute(100, 150);
  collective(200, 0);
  log->thread(1).at(100).range_push("ncclAllGather", 0, 0, "NCCL").range_pop("NCCL");
  EXPECT_EQ(exposed(), "- -");
}

TEST_F(ExposedTime, IsOfTheDeviceThatTheCollectiveRanOn) {
  collective(200, 300, 0, 19);
  collective(200, 300, 1, 29);
  collective(200, 300, 2, 39); // no compute kernel is known there
  compute(200, 290, 1);
  compute(200, 240, 0);
  EXPECT_EQ(exposed(), "60 10 -");
}

TEST_F(ExposedTime, IsThatOfEveryNanosecondCountedByItself) {
  std::mt19937 random(20261128);
  auto number = [&](uint64_t low, uint64_t high) { return std::uniform_int_distribution<uint64_t>(low, high)(random); };
  constexpr uint64_t kEnd = 40'000;
  std::vector<bool> busy(kEnd);
  std::vector<Interval> collectives;
  for (int i = 0; i < 900; i++) {
    uint64_t start = number(1, kEnd - 200), end = start + number(1, i % 50 ? 40 : 190);
    compute(start, end, 0, 7 + i % 3);
    std::fill(busy.begin() + start, busy.begin() + end, true);
    if (i % 3)
      continue;
    start = number(1, kEnd - 3000);
    collectives.push_back({start, start + number(0, i % 20 ? 200 : 3000)});
    collective(collectives.back().start, collectives.back().end);
  }
  std::string expected;
  for (const Interval &c : collectives)
    expected +=
        (expected.empty() ? "" : " ") + std::to_string(std::count(busy.begin() + c.start, busy.begin() + c.end, false));
  EXPECT_EQ(exposed(), expected);
}

} // namespace
