// Who holds the device: made-up logs with a known answer, and the recorded runs.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = 1 << 20;
using Balance = std::map<std::string, int64_t>; // MiB

class DeviceBalance : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("balance-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  static void sample(LogBuilder::Thread &thread, uint64_t used_mib, uint32_t device = 0) {
    thread.append(sl_event_device_sample{1000 * kMiB, (1000 - used_mib) * kMiB, device, 0});
  }
  static void sample_by_nvml(LogBuilder::Thread &thread, uint64_t used_mib) {
    thread.append(sl_event_device_sample{1000 * kMiB, (1000 - used_mib) * kMiB, 0, SL_SAMPLED_BY_NVML});
  }
  static void driver(LogBuilder &log, LogBuilder::Thread &thread, uint64_t address, uint64_t mib,
                     const std::string &owner, uint32_t device = 0) {
    thread.append(sl_event_driver_allocation{address, mib * kMiB, 0, log.string(owner), log.string("cuMemAlloc_v2"),
                                             device, SL_MEMORY_DEVICE});
  }
  static void code(LogBuilder::Thread &thread, uint64_t mib, bool loaded = true) {
    thread.append(sl_event_gpu_module{mib * kMiB, 1, 0, loaded});
  }

  void build(const fs::path &from) {
    sl_error note{}, error{};
    ASSERT_EQ(sl_ledger_build(from.c_str(), (directory / "ledger.sqlite").c_str(), nullptr, &note, &error), 0)
        << error.text;
  }
  std::vector<std::vector<std::string>> rows(const std::string &sql) {
    return ledger_cells(directory / "ledger.sqlite", sql);
  }
  // Every sample, in MiB; lines of 0 are not there.
  std::vector<Balance> balances() {
    std::vector<Balance> found;
    std::string at;
    for (auto &row : rows("SELECT at_ns, owner, bytes FROM device_balance WHERE bytes <> 0 ORDER BY at_ns")) {
      if (row[0] != at)
        found.emplace_back();
      at = row[0];
      found.back()[row[1]] = std::stoll(row[2]) / static_cast<int64_t>(kMiB);
    }
    return found;
  }

  fs::path directory;
};

TEST_F(DeviceBalance, EveryByteInUseHasALine) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(100);
    driver(log, t, 0x1000000, 20, "libc10_cuda.so");
    t.allocator(SL_SEGMENT_ALLOC, 0x1000000, 20 * kMiB);
    sample(t.at(101), 520);
    code(t.at(102), 10);
    driver(log, t, 0x9000000, 64, "libnccl.so.2");
    driver(log, t, 0xd000000, 32, "libcublas.so.13");
    driver(log, t, 0xf000000, 3, "libmine.so");
    t.at(110).range_start(1, "step 0", SL_KIND_step, 0);
    t.at(111).allocator(SL_ALLOC, 0x1000000, 5 * kMiB).allocator(SL_ALLOC, 0x1500000, 2 * kMiB);
    t.allocator(SL_FREE_REQUESTED, 0x1500000, 2 * kMiB);
    sample(t.at(112), 520 + 64 + 32 + 3 + 25);
    t.at(120).range_end(1).process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 520}, {"cached", 20}, {"cuda_context", 500}},
                            {{"used", 644},
                             {"allocated", 5},
                             {"pending", 2},
                             {"cached", 13},
                             {"nccl", 64},
                             {"cublas", 32},
                             {"libmine.so", 3},
                             {"cuda_context", 500},
                             {"gpu_code", 25}},
                        }));
}

TEST_F(DeviceBalance, GrowthThatNothingExplainsIsSaidToBeSo) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    sample(t.at(100), 500);
    sample(t.at(101), 530); // no code was loaded
    code(t.at(102), 1);
    sample(t.at(103), 630); // far more than 1 MiB of code can take: 4 MiB and a page of 2
    sample(t.at(104), 560); // somebody gave 70 MiB back
    sample(t.at(105), 480); // and more than was unexplained: the first sample had counted it as the context's
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 500}, {"cuda_context", 500}},
                            {{"used", 530}, {"cuda_context", 500}, {"unexplained", 30}},
                            {{"used", 630}, {"cuda_context", 500}, {"gpu_code", 6}, {"unexplained", 124}},
                            {{"used", 560}, {"cuda_context", 500}, {"gpu_code", 6}, {"unexplained", 54}},
                            {{"used", 480}, {"cuda_context", 474}, {"gpu_code", 6}},
                        }));
}

TEST_F(DeviceBalance, CodeThatIsUnloadedGoes) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    sample(t.at(100), 500);
    code(t.at(101), 10);
    sample(t.at(102), 520);
    code(t.at(103), 10, false);
    sample(t.at(104), 510);
    t.process_end();
  }
  build(directory);
  auto found = balances();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1], (Balance{{"used", 520}, {"cuda_context", 500}, {"gpu_code", 20}}));
  EXPECT_EQ(found[2], (Balance{{"used", 510}, {"cuda_context", 500}, {"gpu_code", 10}}));
}

TEST_F(DeviceBalance, AFirstSampleBehindLoadedCodeDoesNotPretendToKnowTheContext) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    code(t.at(99), 10);
    sample(t.at(100), 500);
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{{{"used", 500}, {"context_and_code", 500}}}));
}

TEST_F(DeviceBalance, OtherProcessesAreWhatNvmlSaysAlsoWhenItIsAskedLater) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    sample(t.at(100), 800); // nobody asked yet
    t.at(101).append(sl_event_process_memory{500 * kMiB, 300 * kMiB, 0, 2});
    sample(t, 800);
    t.at(102).append(sl_event_process_memory{500 * kMiB, 350 * kMiB, 0, 2});
    sample(t, 850);
    sample(t.at(103), 850); // not asked this time: the last answer counts
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 800}, {"cuda_context", 800}},
                            {{"used", 800}, {"cuda_context", 500}, {"other_processes", 300}},
                            {{"used", 850}, {"cuda_context", 500}, {"other_processes", 350}},
                            {{"used", 850}, {"cuda_context", 500}, {"other_processes", 350}},
                        }));
  EXPECT_EQ(rows("SELECT own_bytes, other_bytes FROM device_sample ORDER BY at_ns")[3],
            (std::vector<std::string>{"", ""}));
}

TEST_F(DeviceBalance, OtherProcessesThatCameAfterTheFirstSampleAreNotTakenFromTheContext) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    sample(t.at(100), 400); // nobody asked: ours and others'
    t.at(101).append(sl_event_process_memory{300 * kMiB, 600 * kMiB, 0, 2});
    sample(t, 900);
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 400}, {"cuda_context", 400}},
                            {{"used", 900}, {"cuda_context", 300}, {"other_processes", 600}},
                        }));
}

TEST_F(DeviceBalance, ASampleDuringACallIsOffByItAndThoseAfterItAreNot) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    sample(t.at(100), 400);
    code(t.at(101), 1);
    driver(log, t.at(102), 0x1000, 100, "libmine.so");
    sample_by_nvml(t.at(103), 570); // a second call has its 70 MiB already, and returns later
    driver(log, t.at(104), 0x9000, 70, "libmine.so");
    sample_by_nvml(t.at(105), 573);
    sample_by_nvml(t.at(106), 503); // the same the other way round: it is freed, and the call returns later
    t.at(107).append(sl_event_driver_free{0x9000, 0, log.string("libmine.so"), log.string("cuMemFree_v2")});
    sample(t.at(108), 503);
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(),
            (std::vector<Balance>{
                {{"used", 400}, {"cuda_context", 400}},
                {{"used", 570}, {"cuda_context", 400}, {"libmine.so", 100}, {"gpu_code", 6}, {"unexplained", 64}},
                {{"used", 573}, {"cuda_context", 400}, {"libmine.so", 170}, {"gpu_code", 3}},
                {{"used", 503}, {"cuda_context", 333}, {"libmine.so", 170}},
                {{"used", 503}, {"cuda_context", 400}, {"libmine.so", 100}, {"gpu_code", 3}},
            }));
  EXPECT_EQ(rows("SELECT count(*) FROM device_sample WHERE sampled_by = 'nvml'")[0][0], "3");
}

TEST_F(DeviceBalance, AProgramThatNvmlAloneSamplesHasItsContextAndItsCode) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(100).append(sl_event_context{1, 0, 1});
    sample_by_nvml(t, 400);
    code(t.at(101), 1);
    sample_by_nvml(t, 403);
    driver(log, t.at(102), 0x1000, 100, "libmine.so");
    sample_by_nvml(t.at(103), 503);
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 400}, {"cuda_context", 400}},
                            {{"used", 403}, {"cuda_context", 400}, {"gpu_code", 3}},
                            {{"used", 503}, {"cuda_context", 400}, {"libmine.so", 100}, {"gpu_code", 3}},
                        }));
}

TEST_F(DeviceBalance, WhatGoesWhileNvmlIsNotAskedWasAnotherProcesss) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(100).append(sl_event_process_memory{500 * kMiB, 300 * kMiB, 0, 2});
    sample(t, 800);
    sample(t.at(101), 600);
    sample(t.at(102), 620); // and nobody knows who this is
    t.at(103).append(sl_event_process_memory{500 * kMiB, 120 * kMiB, 0, 2});
    sample(t, 620);
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 800}, {"cuda_context", 500}, {"other_processes", 300}},
                            {{"used", 600}, {"cuda_context", 500}, {"other_processes", 100}},
                            {{"used", 620}, {"cuda_context", 500}, {"other_processes", 100}, {"unexplained", 20}},
                            {{"used", 620}, {"cuda_context", 500}, {"other_processes", 120}},
                        }));
}

TEST_F(DeviceBalance, PrivatePoolsAreApart) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    t.allocator(SL_SEGMENT_ALLOC, 0x9000000, 20 * kMiB, 0, 0, 0, 7)
        .allocator(SL_ALLOC, 0x9000000, 8 * kMiB, 0, 0, 0, 7);
    sample(t.at(101), 22 + 400);
    t.at(102).allocator(SL_FREE_REQUESTED, 0x9000000, 8 * kMiB, 0, 0, 0, 7);
    t.allocator(SL_FREE_COMPLETED, 0x9000000, 8 * kMiB, 0, 0, 0, 7);
    t.allocator(SL_SEGMENT_FREE, 0x9000000, 20 * kMiB, 0, 0, 0, 7);
    sample(t.at(103), 2 + 400);
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 422}, {"cached", 2}, {"private_pools", 20}, {"cuda_context", 400}},
                            {{"used", 402}, {"cached", 2}, {"cuda_context", 400}},
                        }));
}

TEST_F(DeviceBalance, WhatTheDriversPoolsKeepIsNoMoreThanWhatWasFreed) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    sample(t.at(100), 400);
    uint32_t owner = log.string("libmine.so"), api = log.string("cuMemAllocAsync");
    t.append(sl_event_driver_allocation{0x1000000, 64 * kMiB, 0, owner, api, 0, SL_MEMORY_DEVICE});
    sample(t.at(101), 464);
    t.append(sl_event_driver_free{0x1000000, 0, owner, log.string("cuMemFreeAsync")});
    sample(t.at(102), 464); // the pool keeps it
    sample(t.at(103), 474); // and 10 MiB are somebody's
    sample(t.at(104), 400); // until it is trimmed
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 400}, {"cuda_context", 400}},
                            {{"used", 464}, {"libmine.so", 64}, {"cuda_context", 400}},
                            {{"used", 464}, {"driver_pools", 64}, {"cuda_context", 400}},
                            {{"used", 474}, {"driver_pools", 64}, {"unexplained", 10}, {"cuda_context", 400}},
                            {{"used", 400}, {"cuda_context", 400}},
                        }));
}

TEST_F(DeviceBalance, EachDeviceHasItsOwn) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(99);
    driver(log, t, 0x1000000, 10, "libnccl.so.2", 0);
    driver(log, t, 0x9000000, 30, "libnccl.so.2", 1);
    sample(t.at(100), 110, 0);
    sample(t.at(101), 230, 1);
    t.process_end();
  }
  build(directory);
  EXPECT_EQ(balances(), (std::vector<Balance>{
                            {{"used", 110}, {"nccl", 10}, {"cuda_context", 100}},
                            {{"used", 230}, {"nccl", 30}, {"cuda_context", 200}},
                        }));
}

TEST_F(DeviceBalance, TheStepsEndHasItsLargestFreeBlockAndWhatIsStuck) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(100).range_start(1, "step 0", SL_KIND_step, 0);
    t.at(101).allocator(SL_SEGMENT_ALLOC, 0x1000000, 20 * kMiB).allocator(SL_SEGMENT_ALLOC, 0x9000000, 6 * kMiB);
    t.allocator(SL_ALLOC, 0x1000000, 4 * kMiB);
    t.at(110).range_end(1).process_end();
  }
  build(directory);
  EXPECT_EQ(rows("SELECT end_largest_free_bytes, end_inactive_split_bytes FROM step")[0],
            (std::vector<std::string>{std::to_string(16 * kMiB), std::to_string(16 * kMiB)}));
}

class RecordedBalance : public DeviceBalance, public testing::WithParamInterface<const char *> {};

TEST_P(RecordedBalance, TheLinesAddUpAndNextToNothingIsUnexplained) {
  build(fs::path(SL_TEST_DATA) / GetParam());
  // Samples by NVML may fall into a call that takes memory (docs/device.md).
  auto sums =
      rows("SELECT d.rank, d.used_bytes, (SELECT sum(bytes) FROM device_owner o WHERE o.rank = d.rank AND o.at_ns ="
           " d.at_ns), (SELECT sum(abs(bytes)) FROM device_owner o WHERE o.rank = d.rank AND o.at_ns = d.at_ns"
           " AND owner = 'unexplained') FROM device_sample d WHERE sampled_by = 'driver'");
  ASSERT_GE(sums.size(), 10u);
  for (auto &row : sums) {
    EXPECT_EQ(row[1], row[2]);
    EXPECT_LE(std::stoll("0" + row[3]) * 100, std::stoll(row[1]));
  }
  // PyTorch's lines are its reserved bytes at the steps' ends.
  EXPECT_EQ(
      rows("SELECT count(*) FROM step s JOIN device_sample d ON d.rank = s.rank AND d.at_ns = (SELECT max(at_ns) FROM"
           " device_sample WHERE rank = s.rank AND sampled_by = 'driver' AND at_ns BETWEEN s.start_ns AND s.end_ns)"
           " WHERE s.end_reserved_bytes <> (SELECT sum(bytes) FROM device_owner o WHERE o.rank = d.rank AND"
           " o.at_ns = d.at_ns AND owner IN ('allocated', 'cublas_workspace', 'pending', 'cached'))")[0][0],
      "0");
}

INSTANTIATE_TEST_SUITE_P(Runs, RecordedBalance, testing::Values("fsdp2-2rank", "fsdp2-2rank-recompute"));

TEST_F(DeviceBalance, TheReferenceRunLineByLine) {
  build(fs::path(SL_TEST_DATA) / "fsdp2-2rank");
  const std::string last = "(SELECT max(at_ns) FROM device_sample WHERE rank = 0 AND sampled_by = 'driver')";
  const auto found =
      rows("SELECT owner, bytes FROM device_balance WHERE rank = 0 AND at_ns = " + last + " ORDER BY owner");
  std::map<std::string, int64_t> bytes;
  for (const auto &row : found)
    bytes[row[0]] = std::stoll(row[1]);
  std::vector<std::string> owners;
  for (const auto &[owner, unused] : bytes)
    owners.push_back(owner);
  EXPECT_EQ(owners, (std::vector<std::string>{"allocated", "cached", "cublas", "cublas_workspace", "cuda_context",
                                              "cudnn", "gpu_code", "nccl", "unexplained", "used"}));
  // Each against another table, or what is known without the ledger: two handles of cuBLAS with 64.1 MiB each.
  const auto step = rows("SELECT end_allocated_bytes, end_reserved_bytes FROM step WHERE rank = 0 AND " + last +
                         " BETWEEN start_ns AND end_ns")[0];
  EXPECT_EQ(bytes["allocated"] + bytes["cublas_workspace"], std::stoll(step[0]));
  EXPECT_EQ(bytes["allocated"] + bytes["cublas_workspace"] + bytes["cached"], std::stoll(step[1]));
  EXPECT_EQ(bytes["cublas_workspace"], 2 * 32 * kMiB + kMiB);
  EXPECT_EQ(bytes["nccl"], std::stoll(rows("SELECT sum(device_bytes) FROM communicator WHERE rank = 0")[0][0]));
  EXPECT_EQ(bytes["unexplained"], 0);
  bytes["used"] *= -1;
  EXPECT_EQ(
      std::accumulate(bytes.begin(), bytes.end(), int64_t{}, [](auto sum, auto &one) { return sum + one.second; }), 0);
}

} // namespace
