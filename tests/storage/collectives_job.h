// What the tests of NCCL's calls share: a directory with its ledger, and a process of a job as NCCL and CUPTI record
// it.
#pragma once

#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace collectives {

namespace fs = std::filesystem;
constexpr uint64_t kStatic = 1 << 24;
constexpr uint64_t kCommunicator = 0xabcdef0123456789;

// NVTX's numbers of types.
enum : uint64_t { kInt = 5, kUint64 = 18, kSize = 22 };

class Collectives : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("collectives-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
    output = directory / "ledger.sqlite";
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  void build(const fs::path &from) {
    ASSERT_EQ(sl_ledger_build(from.c_str(), output.c_str(), nullptr, &note, &error), 0) << error.text;
  }
  void build() {
    build(directory);
  }
  void build_recorded(const char *name) {
    build(fs::path(SL_TEST_DATA) / name);
  }

  // Rows as text: columns by '|', NULL is empty.
  std::vector<std::string> rows(const std::string &sql) {
    return ledger_rows(output, sql);
  }
  using Rows = std::vector<std::string>;

  fs::path directory, output;
  sl_error note{}, error{};
};

// One process of a job as NCCL and CUPTI would record it.
class Job {
public:
  explicit Job(const fs::path &path, int rank = 0, const char *host = "host") : log(path, 50) {
    log.info("rank", std::to_string(rank)).info("world_size", "2").info("host", host);
    domain = log.domain("NCCL");
  }

  // The layouts that NCCL 2.28 registers.
  Job &schemas() {
    for (uint64_t value = 0; value < 5; value++)
      entry(20, 0, value, std::vector<const char *>{"Sum", "Product", "Max", "Min", "Avg"}[value]);
    for (int operation : {4, 5, 7, 9, 10}) {
      entry(operation, kUint64, 0, "NCCL communicator ID");
      entry(operation, kSize, 8, "Message size [bytes]");
    }
    for (int operation : {5, 7})
      entry(operation, kStatic + 20, 16, "Reduction operation");
    for (int operation : {9, 10})
      entry(operation, kInt, 16, "Peer rank");
    entry(11, kUint64, 0, "NCCL communicator ID");
    entry(11, kInt, 8, "No. of ranks");
    entry(11, kInt, 12, "Rank");
    return *this;
  }
  void entry(uint64_t schema, uint64_t type, uint64_t offset, const char *name) {
    log.define(sl_event_nvtx_schema_entry{kStatic + schema, type, offset, domain, 0, log.string(name), 0});
  }

  LogBuilder::Thread &thread(uint32_t ordinal = 1) {
    return log.thread(ordinal);
  }
  Job &at(uint64_t time) {
    thread(current).at(time);
    return *this;
  }
  Job &on(uint32_t ordinal) {
    current = ordinal;
    return *this;
  }
  Job &push(const char *name) {
    thread(current).range_push(name, 0, 0, "NCCL");
    return *this;
  }
  Job &pop() {
    thread(current).range_pop("NCCL");
    return *this;
  }
  Job &payload(uint64_t schema, std::vector<uint64_t> words) {
    std::string bytes(reinterpret_cast<const char *>(words.data()), words.size() * 8);
    thread(current).append(sl_event_range_payload{kStatic + schema, uint32_t(bytes.size()), domain}, bytes);
    return *this;
  }
  Job &launch(uint32_t correlation) {
    thread(current).append(sl_event_launch{correlation, 0});
    return *this;
  }
  Job &kernel(uint32_t correlation, uint64_t start, uint64_t end, const char *name, uint32_t stream = 19) {
    thread(9).at(end + 1000);
    thread(9).append(sl_event_kernel{start, end, log.string(name), correlation, stream, 0, 1});
    return *this;
  }
  Job &all_gather(uint64_t time, uint64_t bytes, uint32_t correlation = 0, uint64_t communicator = kCommunicator) {
    at(time).push("ncclAllGather").payload(4, {communicator, bytes});
    if (correlation)
      launch(correlation);
    return pop();
  }
  Job &memory(uint64_t address, uint64_t bytes, const char *owner = "libnccl.so.2",
              sl_memory_kind kind = SL_MEMORY_DEVICE) {
    thread(current).append(
        sl_event_driver_allocation{address, bytes, 0, log.string(owner), log.string("cuMemMap"), 0, uint32_t(kind)});
    return *this;
  }

  LogBuilder log;
  uint32_t domain, current = 1;
};

constexpr const char *kAllGather = "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE";
constexpr const char *kReduceScatter =
    "_Z44ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE";
constexpr const char *kSendRecv = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";

} // namespace collectives
