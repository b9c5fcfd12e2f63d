/* The sampling thread, with a fake NVML: it samples all the time, and nobody ever waits for it. */
#include "fakes/fake_nvml.h"
#include "plugin/cupti_process.h"
#include "plugin/shardledger.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

/* A program that makes a context on fake GPU 2 and does nothing else that the plugin is asked to look at. */
struct SampledProcess {
  struct fake_nvml *nvml = nullptr;
  CuptiProcess process;

  explicit SampledProcess(const std::function<void(struct fake_nvml *)> &before_context = {})
      : process([this](CuptiProcess &) {
          nvml = reinterpret_cast<struct fake_nvml *(*)()>(dlsym(dlopen(FAKE_NVML, RTLD_NOW), "fake_nvml"))();
        }) {
    *nvml = {};
    nvml->lists_us = 1;
    nvml->own_bytes = 700;
    nvml->others[0] = 20;
    nvml->others[1] = 30;
    nvml->free_bytes = 250;
    if (before_context)
      before_context(nvml);
    process.cuda->total_bytes = 950;
    process.cupti->device = 2;
    process.resource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  }

  int looks() const {
    return __atomic_load_n(&nvml->looks, __ATOMIC_ACQUIRE);
  }
  /* Until NVML was asked so often: what came of each but the last is recorded. */
  bool wait_for_looks(int number) const {
    return eventually([&] { return looks() >= number; });
  }
  /* Until so many samples are recorded. */
  bool wait_for_samples(size_t number) const {
    return eventually([&] { return ALL(recorded_so_far(), device_sample).size() >= number; });
  }
};

} // namespace

TEST(SourceSampler, AProgramWithAContextAndNothingElseIsSampledByNvmlAlone) {
  Recording log = record({}, [] {
    SampledProcess sampled;
    EXPECT_TRUE(sampled.wait_for_samples(1));
    sampled.nvml->free_bytes = 150;
    EXPECT_TRUE(sampled.wait_for_samples(2));
  });
  auto samples = ALL(log, device_sample);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].total_bytes, 950u) << "as CUDA counts it, so that all samples mean the same";
  EXPECT_EQ(samples[0].free_bytes, 250u);
  EXPECT_EQ(samples[0].device, 2u);
  EXPECT_EQ(samples[0].by, SL_SAMPLED_BY_NVML);
  EXPECT_EQ(samples[1].free_bytes, 150u);
  auto memory = ALL(log, process_memory);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].own_bytes, 700u);
  EXPECT_EQ(memory[0].other_bytes, 50u);
  EXPECT_EQ(memory[0].others, 2u);
  EXPECT_EQ(memory[0].device, 2u);
  ASSERT_EQ(ALL(log, device).size(), 1u);
  EXPECT_EQ(log.name(ALL(log, device)[0].uuid), "GPU-02122232-4252-6272-8292-a2b2c2d2e2f2");
  EXPECT_EQ(log.state("nvml"), "on: ");
}

TEST(SourceSampler, NothingIsRecordedWhileNothingChanges) {
  Recording log = record({}, [] {
    SampledProcess sampled;
    EXPECT_TRUE(sampled.wait_for_looks(3));
  });
  EXPECT_EQ(ALL(log, device_sample).size(), 1u);
  EXPECT_EQ(ALL(log, process_memory).size(), 1u);
}

TEST(SourceSampler, TheProgramsOwnThreadsNeverAskNvml) {
  record({}, [] {
    SampledProcess sampled;
    EXPECT_TRUE(sampled.wait_for_looks(1));
    sampled.process.cuda->context = 1;
    sampled.process.cuda->device = 2;
    const auto before = Clock::now();
    const int looks = sampled.looks(), lists = sampled.nvml->calls;
    for (int i = 0; i < 10; i++)
      sampled.process.device_sample();
    if (Clock::now() - before < std::chrono::milliseconds(500)) {
      EXPECT_LE(sampled.looks(), looks + 1) << "one may be of the second that went by";
      EXPECT_LE(sampled.nvml->calls, lists + 1);
    }
  });
}

TEST(SourceSampler, WhoIsNotListedCantTellTheOthersAndTheDeviceIsSampledAllTheSame) {
  Recording log = record({}, [] {
    SampledProcess sampled([](struct fake_nvml *nvml) { nvml->lists_us = 0; });
    EXPECT_TRUE(sampled.wait_for_samples(1));
    sampled.nvml->free_bytes = 50;
    EXPECT_TRUE(sampled.wait_for_samples(2));
    EXPECT_EQ(sampled.nvml->calls, 1);
  });
  EXPECT_TRUE(ALL(log, process_memory).empty());
  EXPECT_EQ(ALL(log, device_sample).size(), 2u);
  EXPECT_EQ(log.state("nvml").find("off: NVML does not list this process"), 0u) << log.state("nvml");
}

TEST(SourceSampler, ASlowListOfProcessesIsAskedForSeldom) {
  Recording log = record({}, [] {
    SampledProcess sampled([](struct fake_nvml *nvml) { nvml->slow_us = 5000; });
    EXPECT_TRUE(sampled.wait_for_looks(3));
    EXPECT_EQ(sampled.nvml->calls, 1);
  });
  EXPECT_EQ(ALL(log, process_memory).size(), 1u);
}

TEST(SourceSampler, NvmlThatRefusesCostsNothingElse) {
  Recording log = record({}, [] {
    SampledProcess sampled([](struct fake_nvml *nvml) { nvml->result = 999; });
    EXPECT_TRUE(sampled.wait_for_samples(1));
  });
  EXPECT_EQ(ALL(log, device_sample).size(), 1u);
  EXPECT_EQ(log.state("nvml"), "off: NVML refused");
}

TEST(SourceSampler, WithoutNvmlItSaysSoAndTheDriverIsLeftAlone) {
  Recording log = record({}, [] {
    CuptiProcess process;
    process.resource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
    EXPECT_TRUE(eventually([] { return recorded_so_far().state("nvml") != ""; }));
    EXPECT_EQ(process.cuda->calls, 0);
  });
  EXPECT_TRUE(ALL(log, device_sample).empty());
  EXPECT_EQ(log.state("nvml"), "off: no libnvidia-ml.so.1 found");
}

/* The end waits a tenth of a second. A slow one may have lacked a processor; all of them would be the plugin's. */
TEST(SourceSampler, NvmlThatHangsHoldsUpNeitherTheLogNorForkNorTheEnd) {
  constexpr auto LIMIT = std::chrono::seconds(4);
  auto fastest = Clock::duration::max();
  for (int round = 0; round < 5 && fastest >= LIMIT && !testing::Test::HasFailure(); round++) {
    const auto begin = Clock::now();
    Recording log = record({}, [] {
      alarm(120); /* what hangs fails */
      SampledProcess sampled([](struct fake_nvml *nvml) { nvml->hangs = 1; });
      sampled.process.cuda->context = 1;
      EXPECT_TRUE(eventually([&] { return __atomic_load_n(&sampled.nvml->asked, __ATOMIC_ACQUIRE) != 0; }));
      for (int i = 0; i < 1000; i++)
        sampled.process.device_sample();
      pid_t child = fork();
      if (child == 0)
        exit(0);
      int status = -1;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      EXPECT_EQ(sampled.looks(), 0);
    });
    fastest = std::min(fastest, Clock::now() - begin);
    EXPECT_EQ(ALL(log, device_sample).size(), 1000u);
    EXPECT_EQ(ALL(log, process_end).size(), 1u) << "and the log is whole";
  }
  EXPECT_LT(fastest, LIMIT);
}
