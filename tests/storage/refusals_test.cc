// Requests that were refused: which of them count, and what was alive then.
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
using Rows = std::vector<std::string>;

class Refusals : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("refusals-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }
  static void failure(LogBuilder &log, LogBuilder::Thread &thread, uint64_t mib, const std::string &owner,
                      uint32_t result = 2) {
    thread.append(sl_event_driver_failure{mib * kMiB, log.string(owner), log.string("cuMemAlloc_v2"), result, 0});
  }
  static void success(LogBuilder &log, LogBuilder::Thread &thread, uint64_t mib, const std::string &owner) {
    thread.append(sl_event_driver_allocation{0x9000000, mib * kMiB, 0, log.string(owner), log.string("cuMemAlloc_v2"),
                                             0, SL_MEMORY_DEVICE});
  }
  Rows rows(const std::string &sql) {
    sl_error note{}, error{};
    std::string output = directory / "ledger.sqlite";
    EXPECT_EQ(sl_ledger_build(directory.c_str(), output.c_str(), nullptr, &note, &error), 0) << error.text;
    return ledger_rows(output, sql);
  }

  fs::path directory;
};

/* A forward of one module that is refused 64 MiB, and the exception's way out of it. */
void refused_forward(LogBuilder &log) {
  log.device(0, "GPU", 1000 * kMiB).module(1, 0, "", "Model", SL_MODULE_ROOT, 0, 1024, 0);
  auto &t = log.thread(1);
  t.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 40 * kMiB).range_start(1, "step 0", SL_KIND_step, 0);
  t.at(110).range_push("Model", SL_KIND_forward, 1).allocator(SL_ALLOC, 0x1000000, 24 * kMiB);
  t.at(111).allocator(SL_ALLOC, 0x2800000, 8 * kMiB);
  t.at(112).allocator(SL_FREE_REQUESTED, 0x2800000, 8 * kMiB).allocator(SL_FREE_COMPLETED, 0x2800000, 8 * kMiB);
  t.at(113).allocator(SL_OUT_OF_MEMORY, 30 * kMiB, 64 * kMiB);
  t.at(114).range_pop();
}

TEST_F(Refusals, ThePyTorchAllocatorsWordIsKeptWithItsBlocksAndTheRangesThread) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    refused_forward(log);
    log.thread(1).at(115).allocator(SL_FREE_REQUESTED, 0x1000000, 24 * kMiB).process_end();
  }
  EXPECT_EQ(
      rows("SELECT at_ns, source, requested_bytes >> 20, free_bytes >> 20, allocated_bytes >> 20, reserved_bytes >> 20,"
           " largest_free_bytes >> 20, o.step, p.kind, m.class FROM oom o JOIN phase p ON p.id = o.phase_id"
           " JOIN module m ON m.id = o.module_id"),
      (Rows{"113|allocator|64|30|24|40|16|0|forward|Model"}));
  EXPECT_EQ(rows("SELECT at_ns, category, phase, bytes >> 20, allocations FROM oom_owner"),
            (Rows{"113|activation|forward|24|1"}))
      << "not what was freed before, and all that was freed only by the exception";
  EXPECT_EQ(rows("SELECT owner, bytes >> 20 FROM device_balance WHERE at_ns = 113 AND bytes > 0 ORDER BY owner"),
            (Rows{"allocated|24", "cached|16", "cuda_context|930", "used|970"}));
}

TEST_F(Refusals, WhatLivesWhenTheLogIsCutOffIsAnActivationAndNoSurvivor) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    refused_forward(log);
  }
  EXPECT_EQ(rows("SELECT category, decided_by FROM allocation WHERE free_ns IS NULL"),
            (Rows{"activation|forward_activation"}));
  EXPECT_EQ(rows("SELECT category FROM oom_owner"), (Rows{"activation"}));
}

TEST_F(Refusals, ALibrarysAttemptCountsUnlessTheSameThreadsNextOneSucceeds) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1), &other = log.thread(2);
    failure(log, t.at(100), 10, "libnccl.so.2");
    success(log, other.at(101), 10, "libnccl.so.2"); // another thread's
    failure(log, t.at(102), 10, "libnccl.so.2");     // again: one refusal, not two
    failure(log, t.at(103), 20, "libcublas.so.13");
    success(log, t.at(104), 20, "libcublas.so.13"); // saved
    failure(log, t.at(105), 30, "libmine.so", 800); // not a question of memory
    t.process_end();
  }
  EXPECT_EQ(rows("SELECT at_ns, source, requested_bytes >> 20, coalesce(free_bytes, 'unknown'),"
                 " coalesce(allocated_bytes, 'unknown') FROM oom"),
            (Rows{"102|libnccl.so.2|10|unknown|unknown"}));
}

TEST_F(Refusals, PyTorchsOwnAttemptsAtTheDriverAreItsAllocatorsAffair) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    failure(log, t.at(101), 10, "libc10_cuda.so");
    t.process_end();
  }
  EXPECT_EQ(rows("SELECT * FROM oom"), Rows{});
}

} // namespace
