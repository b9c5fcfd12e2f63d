// Requests of PyTorch's allocator that were refused first, and served when its cache was given back.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint32_t kOutOfMemory = 2;
using Rows = std::vector<std::string>;
const std::string kC10 = "libc10_cuda.so";

class Retries : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("retries-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }
  static void refuse(LogBuilder &log, LogBuilder::Thread &t, uint64_t mib, const std::string &owner = kC10,
                     uint32_t result = kOutOfMemory) {
    t.append(sl_event_driver_failure{mib * kMiB, log.string(owner), log.string("cuMemAlloc_v2"), result, 0});
  }
  static void give(LogBuilder &log, LogBuilder::Thread &t, uint64_t address, uint64_t mib) {
    t.append(sl_event_driver_allocation{address, mib * kMiB, 0, log.string(kC10), log.string("cuMemAlloc_v2"), 0,
                                        SL_MEMORY_DEVICE});
  }
  static void take(LogBuilder &log, LogBuilder::Thread &t, uint64_t address) {
    t.append(sl_event_driver_free{address, 0, log.string(kC10), log.string("cuMemFree_v2")});
  }
  /* Two segments of which nothing is in use, in step 0's forward. */
  static LogBuilder::Thread &begin(LogBuilder &log) {
    log.device(0, "GPU", 1000 * kMiB).module(1, 0, "", "Model", SL_MODULE_ROOT, 0, 1024, 0);
    auto &t = log.thread(1);
    give(log, t.at(90), 0x1000000, 40);
    t.allocator(SL_SEGMENT_ALLOC, 0x1000000, 40 * kMiB);
    give(log, t.at(95), 0x9000000, 24);
    t.allocator(SL_SEGMENT_ALLOC, 0x9000000, 24 * kMiB);
    t.at(100).range_start(1, "step 0", SL_KIND_step, 0).range_push("Model", SL_KIND_forward, 1);
    return t;
  }
  static void free_cache(LogBuilder &log, LogBuilder::Thread &t) {
    take(log, t, 0x1000000);
    t.allocator(SL_SEGMENT_FREE, 0x1000000, 40 * kMiB);
    take(log, t, 0x9000000);
    t.allocator(SL_SEGMENT_FREE, 0x9000000, 24 * kMiB);
  }
  Rows retries() {
    sl_error note{}, error{};
    std::string output = directory / "ledger.sqlite";
    EXPECT_EQ(sl_ledger_build(directory.c_str(), output.c_str(), nullptr, &note, &error), 0) << error.text;
    return ledger_rows(output, "SELECT at_ns, served_ns, y.bytes >> 20, refusals, freed_bytes >> 20, y.step, p.kind"
                               " FROM retry y LEFT JOIN phase p ON p.id = y.phase_id ORDER BY at_ns");
  }
  fs::path directory;
};

TEST_F(Retries, ARequestIsServedWhenTheCacheWasGivenBack) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = begin(log);
    refuse(log, t.at(110), 64);
    free_cache(log, t.at(150));
    give(log, t.at(170), 0x20000000, 64);
    t.at(171).allocator(SL_SEGMENT_ALLOC, 0x20000000, 64 * kMiB).range_pop().range_end(1).process_end();
  }
  EXPECT_EQ(retries(), (Rows{"110|170|64|1|64|0|forward"}));
}

TEST_F(Retries, ASegmentThatComesInPiecesIsOneRequest) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = begin(log);
    give(log, t.at(105), 0x30000000, 20);
    refuse(log, t.at(110), 20);
    take(log, t.at(120), 0x30000000); // what it had of it already
    free_cache(log, t.at(150));
    give(log, t.at(160), 0x30000000, 20);
    refuse(log, t.at(165), 20);
    give(log, t.at(170), 0x31400000, 20);
    t.at(171).allocator(SL_SEGMENT_MAP, 0x30000000, 40 * kMiB).range_pop().range_end(1).process_end();
  }
  EXPECT_EQ(retries(), (Rows{"110|170|20|2|84|0|forward"}));
}

TEST_F(Retries, WhatIsRefusedForGoodIsNone) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = begin(log);
    refuse(log, t.at(110), 64);
    free_cache(log, t.at(150));
    refuse(log, t.at(160), 64);
    t.at(161).allocator(SL_OUT_OF_MEMORY, 30 * kMiB, 64 * kMiB);
    give(log, t.at(170), 0x20000000, 2); // another request
    t.at(171).allocator(SL_SEGMENT_ALLOC, 0x20000000, 2 * kMiB).range_pop().range_end(1).process_end();
  }
  EXPECT_EQ(retries(), Rows{});
}

TEST_F(Retries, OthersRequestsOtherErrorsAndOtherThreadsAreNone) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = begin(log);
    refuse(log, t.at(110), 64, "libnccl.so.2");
    refuse(log, t.at(111), 64, kC10, 201);
    refuse(log, log.thread(2).at(112), 64);
    give(log, t.at(170), 0x20000000, 64);
    t.at(171).allocator(SL_SEGMENT_ALLOC, 0x20000000, 64 * kMiB).range_pop().range_end(1).process_end();
  }
  EXPECT_EQ(retries(), Rows{});
}

TEST_F(Retries, WithoutTheAllocatorsOwnEventsTheDriversWordCounts) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    give(log, t.at(100), 0x1000000, 40);
    refuse(log, t.at(110), 64);
    take(log, t.at(150), 0x1000000);
    give(log, t.at(170), 0x20000000, 64);
    refuse(log, t.at(180), 64);
    give(log, t.at(190), 0x30000000, 64);
    t.process_end();
  }
  EXPECT_EQ(retries(), (Rows{"110|170|64|1|40||", "180|190|64|1|0||"}));
}

} // namespace
