/* Device totals through a fake libcuda.so.1. */
#include "plugin/cupti_process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

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
