// What the driver's calls are in the ledger: beside PyTorch's allocator, and in its place.
#include "ledger_job.h"

using namespace small_job;

namespace {

TEST_F(Ledger, DriverAllocationsOfPyTorchAreNotCountedTwice) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &main = log.thread(1);
    auto driver = [&](uint64_t address, uint64_t bytes, const char *owner) {
      main.append(sl_event_driver_allocation{address, bytes, 0, log.string(owner), log.string("cuMemAlloc_v2"), 0,
                                             SL_MEMORY_DEVICE});
    };
    main.at(10);
    driver(0x1000000, 2 * kMiB, "libcudart.so.13");
    main.allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    driver(0x2000000, 4 * kMiB, "libnccl.so.2");
    main.at(20).append(sl_event_driver_free{0x2000000, 0, 0, log.string("cuMemFree_v2")});
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT owner, bytes, alloc_ns, coalesce(free_ns, 0) FROM segment ORDER BY address"),
            (std::vector<std::string>{"pytorch|2097152|10|0", "libnccl.so.2|4194304|10|20"}));
}

TEST_F(Ledger, PinnedHostMemoryHasATableOfItsOwnAndIsNoPartOfTheDevices) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &main = log.thread(1);
    auto pin = [&](uint64_t address, uint64_t bytes, const char *owner, const char *api) {
      main.append(
          sl_event_driver_allocation{address, bytes, 0, log.string(owner), log.string(api), 0, SL_MEMORY_PINNED});
    };
    main.at(10);
    pin(0x1000000, 4096, "libtorch_cuda.so", "cuMemHostAlloc");
    pin(0x2000000, 65536, "libnccl.so.2", "cuMemHostAlloc");
    pin(0x3000000, 8192, "libtorch_cuda.so", "cuMemHostRegister_v2");
    main.at(20).append(sl_event_driver_free{0x2000000, 0, log.string("libnccl.so.2"), log.string("cuMemFreeHost")});
    main.at(30).append(sl_event_device_sample{1000 * kMiB, 900 * kMiB, 0, 0});
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT printf('%x', address), owner, api, bytes, alloc_ns, coalesce(free_ns, 0) FROM host_segment"
                 " ORDER BY address"),
            (std::vector<std::string>{"1000000|pytorch|cuMemHostAlloc|4096|10|0",
                                      "2000000|libnccl.so.2|cuMemHostAlloc|65536|10|20",
                                      "3000000|pytorch|cuMemHostRegister_v2|8192|10|0"}));
  EXPECT_EQ(rows("SELECT count(*) FROM segment"), (std::vector<std::string>{"0"}));
  EXPECT_EQ(rows("SELECT count(*) FROM device_owner WHERE owner IN ('pytorch', 'libnccl.so.2', 'nccl') AND bytes > 0"),
            (std::vector<std::string>{"0"}));
}

TEST_F(Ledger, UnderCudaMallocAsyncTheDriversCallsAreTheTensors) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.info("allocator_backend", "cudaMallocAsync");
    auto &main = log.thread(1);
    auto driver = [&](uint64_t address, uint64_t bytes, const char *owner, const char *api, uint64_t stream = 0) {
      main.append(
          sl_event_driver_allocation{address, bytes, stream, log.string(owner), log.string(api), 0, SL_MEMORY_DEVICE});
    };
    auto driver_free = [&](uint64_t address) {
      main.append(sl_event_driver_free{address, 0, 0, log.string("cuMemFreeAsync")});
    };
    main.at(100).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(110);
    driver(0x1000000, 1000, "libc10_cuda.so", "cuMemAllocAsync");
    main.at(120);
    driver(0x2000000, 24, "libc10_cuda.so", "cuMemAllocAsync");
    driver(0x3000000, 4096, "libnccl.so.2", "cuMemAllocAsync");
    driver(0x4000000, 8192, "libc10_cuda.so", "cuMemAlloc_v2");
    main.at(130);
    driver_free(0x3000000);
    driver_free(0x1000000);
    main.at(140);
    driver(0x1000000, 512, "libc10_cuda.so", "cuMemAllocAsync", 77); // the address once more
    main.at(145).append(
        sl_event_driver_failure{1 << 20, log.string("libc10_cuda.so"), log.string("cuMemAllocAsync"), 2, 0});
    main.at(150).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(
      rows("SELECT printf('%x', address), bytes, stream, alloc_ns, coalesce(free_ns, 0) FROM allocation ORDER BY id"),
      (std::vector<std::string>{"1000000|1000|0|110|130", "2000000|24|0|120|0", "1000000|512|77|140|0"}));
  EXPECT_EQ(rows("SELECT source, requested_bytes, allocated_bytes, reserved_bytes IS NULL, largest_free_bytes IS NULL "
                 "FROM oom"),
            (std::vector<std::string>{"libc10_cuda.so|1048576|536|1|1"}));
  EXPECT_EQ(rows("SELECT peak_allocated_bytes, peak_active_bytes, end_allocated_bytes, end_active_bytes FROM step"),
            (std::vector<std::string>{"1024|1024|536|536"}));
  EXPECT_EQ(rows("SELECT count(peak_requested_bytes) + count(peak_reserved_bytes) + count(before_reserved_bytes)"
                 " + count(end_requested_bytes) + count(end_reserved_bytes) + count(end_largest_free_bytes)"
                 " + count(end_inactive_split_bytes) FROM step"),
            (std::vector<std::string>{"0"}));
}

class Uncached : public Ledger, public testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Said, Uncached, testing::Bool(), [](const testing::TestParamInfo<bool> &info) {
  return info.param ? "AsAFact" : "InTheReasonOfAnOlderLog";
});

TEST_P(Uncached, WithoutACacheOfPyTorchsTheDriversCallsAreTheTensorsToo) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.info("allocator_backend", GetParam() ? "uncached" : "native");
    if (!GetParam())
      log.source_state("torch_allocator", "failed", "PYTORCH_NO_CUDA_MEMORY_CACHING turns the caching allocator off");
    auto &main = log.thread(1);
    auto driver = [&](uint64_t address, uint64_t bytes, const char *owner) {
      main.append(sl_event_driver_allocation{address, bytes, 0, log.string(owner), log.string("cuMemAlloc_v2"), 0,
                                             SL_MEMORY_DEVICE});
    };
    main.at(100).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(110);
    driver(0x1000000, 1000, "libc10_cuda.so");
    driver(0x2000000, 4096, "libcublas.so.13");
    main.at(120);
    driver(0x3000000, 24, "libc10_cuda.so");
    main.at(130).append(sl_event_driver_free{0x1000000, 0, 0, log.string("cuMemFree_v2")});
    main.at(150).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT printf('%x', address), bytes, alloc_ns, coalesce(free_ns, 0) FROM allocation ORDER BY id"),
            (std::vector<std::string>{"1000000|1000|110|130", "3000000|24|120|0"}));
  EXPECT_EQ(rows("SELECT peak_allocated_bytes, end_allocated_bytes, peak_reserved_bytes IS NULL FROM step"),
            (std::vector<std::string>{"1024|24|1"}));
  EXPECT_EQ(rows("SELECT allocator_backend FROM rank"), (std::vector<std::string>{"uncached"}));
}

} // namespace
