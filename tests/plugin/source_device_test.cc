/* Device totals through a fake libcuda.so.1. */
#include "plugin/cupti_process.h"
#include "plugin/shardledger.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

TEST(SourceDevice, ASampleHasTheWholeDevicesTotalsAndDefinesItOnce) {
  Recording log = record({}, [] {
    CuptiProcess process;
    process.cuda->context = 1;
    process.cuda->device = 2;
    process.cuda->total_bytes = 100ull << 30;
    process.cuda->free_bytes = 40ull << 30;
    process.device_sample();
    process.cuda->free_bytes = 30ull << 30;
    process.device_sample();
    process.cuda->device = 3;
    process.device_sample();
  });
  auto samples = ALL(log, device_sample);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].total_bytes, 100ull << 30);
  EXPECT_EQ(samples[0].free_bytes, 40ull << 30);
  EXPECT_EQ(samples[0].device, 2u);
  EXPECT_EQ(samples[1].free_bytes, 30ull << 30);
  EXPECT_EQ(samples[2].device, 3u);
  auto devices = ALL(log, device);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].id, 2u);
  EXPECT_EQ(log.name(devices[0].name), "Fake GPU 2");
  EXPECT_EQ(log.name(devices[0].uuid), "GPU-02122232-4252-6272-8292-a2b2c2d2e2f2");
  EXPECT_EQ(devices[0].total_bytes, 100ull << 30);
  EXPECT_EQ(devices[1].id, 3u);
}

TEST(SourceDevice, AStepsSampleIsTakenWhenSomethingChangedOrASecondWentBy) {
  Recording log = record({}, [] {
    CuptiProcess process;
    process.cuda->context = 1;
    void *plugin = dlopen(PLUGIN, RTLD_NOW);
    auto *at_step_end = reinterpret_cast<decltype(&sl_device_sample_if_due)>(dlsym(plugin, "sl_device_sample_if_due"));
    auto *allocator = reinterpret_cast<decltype(&sl_allocator_event)>(dlsym(plugin, "sl_allocator_event"));
    auto calls = [&](const std::function<void()> &call) {
      int before = process.cuda->calls;
      call();
      return process.cuda->calls - before;
    };
    EXPECT_GT(calls(at_step_end), 0) << "the first";
    /* Where a second goes by within these lines, on a very busy machine, they say nothing and are asked once more. */
    int without_segment, with_segment, at_once;
    std::chrono::steady_clock::time_point start;
    do {
      start = std::chrono::steady_clock::now();
      process.device_sample();
      allocator(0, SL_ALLOC, 0x1000, 512, 0, 0, 0);
      allocator(0, SL_FREE_COMPLETED, 0x1000, 512, 0, 0, 0);
      without_segment = calls(at_step_end);
      allocator(0, SL_SEGMENT_FREE, 0x1000, 2 << 20, 0, 0, 0);
      with_segment = calls(at_step_end);
      at_once = calls(at_step_end);
    } while (std::chrono::steady_clock::now() - start >= std::chrono::seconds(1));
    EXPECT_EQ(without_segment, 0) << "the driver has no part in blocks";
    EXPECT_GT(with_segment, 0) << "PyTorch gave a segment back";
    EXPECT_EQ(at_once, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1010));
    EXPECT_GT(calls(at_step_end), 0) << "others may have changed something";
    EXPECT_GT(calls(process.device_sample), 0) << "who asks for one gets it";
  });
  EXPECT_GE(ALL(log, device_sample).size(), 5u);
}

TEST(SourceDevice, WithoutACurrentContextNothingIsSampledAndNoneIsMade) {
  Recording log = record({}, [] {
    CuptiProcess process;
    process.device_sample();
    EXPECT_EQ(process.cuda->calls, 1); /* which context is current: none */
  });
  EXPECT_TRUE(log.events.empty());
}

TEST(SourceDevice, ADriverThatCantTellIsNoSample) {
  Recording log = record({}, [] {
    CuptiProcess process;
    process.cuda->context = 1;
    process.cuda->result = 700;
    process.device_sample();
  });
  EXPECT_TRUE(ALL(log, device_sample).empty());
}

TEST(SourceDevice, TheDriverIsCalledForASampleOnlyAndNotDuringAPause) {
  record({}, [] {
    CuptiProcess process;
    process.cuda->context = 1;
    process.resource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
    CUdeviceptr address = 0x9000;
    cuMemAlloc_v2_params parameters = {&address, 64};
    process.driver_call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &parameters);
    EXPECT_EQ(process.cuda->calls, 0); /* inside a callback the driver may hold its locks */
    process.pause();
    process.device_sample();
    EXPECT_EQ(process.cuda->calls, 0);
  });
}

TEST(SourceDevice, AProcessWithoutADriverIsLeftWithoutOne) {
  Recording log = record({}, [] {
    void *plugin = dlopen(PLUGIN, RTLD_NOW);
    ASSERT_NE(plugin, nullptr);
    reinterpret_cast<void (*)()>(dlsym(plugin, "sl_device_sample"))();
    EXPECT_EQ(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
  });
  EXPECT_TRUE(log.events.empty());
}

TEST(SourceDevice, TheAllocatorsFirstSegmentTellsWhatABareContextUses) {
  Recording log = record({}, [] {
    CuptiProcess process;
    process.cuda->context = 1;
    process.cuda->device = 2;
    auto *allocator =
        reinterpret_cast<decltype(&sl_allocator_event)>(dlsym(dlopen(PLUGIN, RTLD_NOW), "sl_allocator_event"));
    allocator(2, SL_SEGMENT_ALLOC, 0x1000, 2 << 20, 0, 0, 0);
    allocator(2, SL_ALLOC, 0x1000, 512, 0, 0, 0);
    allocator(2, SL_SEGMENT_ALLOC, 0x9000000, 2 << 20, 0, 0, 0);
  });
  ASSERT_EQ(ALL(log, device_sample).size(), 1u);
  auto order = std::vector<uint8_t>();
  for (const Event &event : log.events)
    if (event.type == SL_EVENT_allocator || event.type == SL_EVENT_device_sample)
      order.push_back(event.type);
  EXPECT_EQ(order,
            (std::vector<uint8_t>{SL_EVENT_allocator, SL_EVENT_device_sample, SL_EVENT_allocator, SL_EVENT_allocator}));
}
