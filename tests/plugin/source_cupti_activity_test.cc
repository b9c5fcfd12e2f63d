/* Activity buffers filled by a fake libcupti and read by the real plugin. */
#include "nvtx_ranges/kinds.h"
#include "plugin/cupti_process.h"
#include "plugin/shardledger.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <fstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace {

/* Sizes of the records by version: CUDA 12.0, 12.9 and 13.0. */
struct Version {
  const char *name;
  uint32_t version, kernel, copy, peer_copy, set;
};
const Version VERSIONS[] = {
    {"12.0", 18, sizeof(CUpti_ActivityKernel9), sizeof(CUpti_ActivityMemcpy5), sizeof(CUpti_ActivityMemcpyPtoP4),
     sizeof(CUpti_ActivityMemset4)},
    {"13.0", 130001, sizeof(CUpti_ActivityKernel10), sizeof(CUpti_ActivityMemcpy6), sizeof(CUpti_ActivityMemcpyPtoP4),
     sizeof(CUpti_ActivityMemset4)},
};

void set_version(CuptiProcess &process, const Version &version) {
  process.cupti->version = version.version;
  process.cupti->record_bytes[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] = version.kernel;
  process.cupti->record_bytes[CUPTI_ACTIVITY_KIND_MEMCPY] = version.copy;
  process.cupti->record_bytes[CUPTI_ACTIVITY_KIND_MEMCPY2] = version.peer_copy;
  process.cupti->record_bytes[CUPTI_ACTIVITY_KIND_MEMSET] = version.set;
}

void newest(CuptiProcess &process) {
  set_version(process, VERSIONS[1]);
}

CUpti_ActivityKernel10 kernel(const char *name, uint64_t start = 1000, uint64_t end = 2000) {
  CUpti_ActivityKernel10 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = name;
  record.start = start;
  record.end = end;
  record.deviceId = 1;
  record.contextId = 2;
  record.streamId = 3;
  record.correlationId = 4;
  return record;
}

CUpti_ActivityMemcpy6 copy() {
  CUpti_ActivityMemcpy6 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  record.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  record.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.bytes = 64;
  record.start = 10;
  record.end = 20;
  record.deviceId = 1;
  record.streamId = 3;
  record.correlationId = 6;
  return record;
}

CUpti_ActivityMemcpyPtoP4 peer_copy() {
  CUpti_ActivityMemcpyPtoP4 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  record.bytes = 65;
  record.start = 30;
  record.end = 40;
  record.deviceId = 1;
  record.correlationId = 7;
  return record;
}

CUpti_ActivityMemset4 set() {
  CUpti_ActivityMemset4 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.value = 255;
  record.bytes = 66;
  record.start = 50;
  record.end = 60;
  record.deviceId = 1;
  record.streamId = 3;
  record.correlationId = 8;
  return record;
}

template <class Record> void add(CuptiProcess &process, const Record &record, size_t bytes = sizeof(Record)) {
  process.add_record(&record, bytes);
}

/* A process in its first context: that opens the log, whose helper thread flushes. */
struct Process : CuptiProcess {
  explicit Process(const std::function<void(CuptiProcess &)> &before_attach = newest) : CuptiProcess(before_attach) {
    cuda->context = 1;
    device_sample();
  }
};

} // namespace

const char SAMPLED[] = "device times in steps 0 to 9 and in every 20th; SHARDLEDGER_STEPS=all times every step";

TEST(SourceCuptiActivity, RecordsOfEveryKindAndVersionAreReadAtTheEnd) {
  for (const Version &version : VERSIONS) {
    SCOPED_TRACE(version.name);
    Recording log = record({{"SHARDLEDGER_KERNELS", "all"}}, [&] {
      Process process([&](CuptiProcess &p) { set_version(p, version); });
      add(process, kernel("_Z4gemmv"), version.kernel);
      add(process, copy(), version.copy);
      add(process, peer_copy(), version.peer_copy);
      add(process, set(), version.set);
      add(process, kernel("last", 3000, 4000), version.kernel);
      EXPECT_EQ(fake_cupti_get(&process.cupti->buffers_dirty), 0);
    });
    auto kernels = ALL(log, kernel);
    ASSERT_EQ(kernels.size(), 2u);
    EXPECT_EQ(log.name(kernels[0].name), "_Z4gemmv");
    EXPECT_EQ(kernels[0].start_ns, 1000u);
    EXPECT_EQ(kernels[0].end_ns, 2000u);
    EXPECT_EQ(kernels[0].device, 1);
    EXPECT_EQ(kernels[0].context, 2);
    EXPECT_EQ(kernels[0].stream, 3u);
    EXPECT_EQ(kernels[0].correlation, 4u);
    EXPECT_EQ(log.name(kernels[1].name), "last");
    auto copies = ALL(log, memory_copy);
    ASSERT_EQ(copies.size(), 2u);
    EXPECT_EQ(copies[0].kind, 1);
    EXPECT_EQ(copies[0].source, SL_MEMORY_PINNED);
    EXPECT_EQ(copies[0].destination, SL_MEMORY_DEVICE);
    EXPECT_EQ(copies[0].bytes, 64u);
    EXPECT_EQ(copies[0].correlation, 6u);
    EXPECT_EQ(copies[1].kind, 10);
    EXPECT_EQ(copies[1].correlation, 7u);
    auto sets = ALL(log, memory_set);
    ASSERT_EQ(sets.size(), 1u);
    EXPECT_EQ(sets[0].value, 255);
    EXPECT_EQ(sets[0].start_ns, 50u);
    EXPECT_EQ(log.state("cupti_activity"), std::string("on: ") + SAMPLED);
    EXPECT_TRUE(ALL(log, gap).empty());
  }
}

TEST(SourceCuptiActivity, OnlyNcclsKernelsAreKeptUnlessAllAreAsked) {
  Recording log = record({}, [] {
    Process process;
    add(process, kernel("_Z20ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE"));
    add(process, kernel("_Z4gemmv"));
    add(process, kernel(nullptr));
    add(process, copy());
  });
  ASSERT_EQ(ALL(log, kernel).size(), 1u);
  EXPECT_EQ(ALL(log, memory_copy).size(), 1u);
}

TEST(SourceCuptiActivity, WithoutKernelsTheirKindIsNotEnabled) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "none"}}, [] {
    Process process;
    EXPECT_EQ(fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]), 0);
    EXPECT_EQ(fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_KERNEL]), 0); /* it would serialise kernels */
    EXPECT_EQ(fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_MEMCPY]), 1);
  });
}

/* Begins steps as the companion does, through NVTX, and calls probe in each. */
void run_steps(uint64_t count, const std::function<void(uint64_t step)> &probe) {
  std::string ranges = PLUGIN;
  ranges.replace(ranges.rfind('/'), std::string::npos, "/libshardledger_nvtx.so");
  void *library = dlopen(ranges.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto *start = reinterpret_cast<uint64_t (*)(uint32_t, const char *, uint64_t)>(dlsym(library, "slr_start"));
  auto *end = reinterpret_cast<void (*)(uint64_t)>(dlsym(library, "slr_end"));
  for (uint64_t step = 0; step < count; step++) {
    uint64_t range = start(SL_KIND_step, "step", step);
    probe(step);
    end(range);
  }
}

TEST(SourceCuptiActivity, DeviceTimesAreTakenInTheStepsThatAreWanted) {
  const int times[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                       CUPTI_ACTIVITY_KIND_MEMSET};
  record({{"NVTX_INJECTION64_PATH", PLUGIN}}, [&] {
    Process process;
    EXPECT_EQ(fake_cupti_get(&process.cupti->active[times[0]]), 1) << "before the first step too";
    run_steps(45, [&](uint64_t step) {
      for (int kind : times) /* a flush that is under way holds the change up until it ends */
        EXPECT_TRUE(eventually([&] {
          return fake_cupti_get(&process.cupti->active[kind]) == (step < 10 || step % 20 == 0);
        })) << step
            << ' ' << kind;
    });
  });
}

TEST(SourceCuptiActivity, AHandOverKeepsToTheStepsThatAreWanted) {
  record({{"NVTX_INJECTION64_PATH", PLUGIN}, {"SHARDLEDGER_STEPS", "0:2"}}, [] {
    Process process;
    auto times = [&] { return fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_MEMCPY]); };
    run_steps(4, [&](uint64_t step) {
      EXPECT_TRUE(eventually([&] { return times() == (step < 2); })) << step;
      EXPECT_EQ(process.cupti_release(), 0);
      EXPECT_EQ(times(), 0);
      EXPECT_EQ(process.cupti_reacquire(), 0);
      EXPECT_EQ(times(), step < 2) << step;
    });
  });
}

TEST(SourceCuptiActivity, WithoutKernelsNoStepEnablesThem) {
  record({{"NVTX_INJECTION64_PATH", PLUGIN}, {"SHARDLEDGER_KERNELS", "none"}}, [] {
    Process process;
    run_steps(25, [&](uint64_t step) {
      EXPECT_EQ(fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]), 0) << step;
    });
  });
}

TEST(SourceCuptiActivity, DeviceMemoryOfTheToolIsBoundedBeforeAnythingIsEnabled) {
  record({}, [] {
    Process process;
    EXPECT_EQ(fake_cupti_get(&process.cupti->attributes_after_enable), 0);
    EXPECT_GT(process.cupti->device_buffer_bytes, 0u);
    EXPECT_LE(process.cupti->device_buffer_bytes * process.cupti->device_buffer_limit, 64u << 20);
  });
}

TEST(SourceCuptiActivity, TheHelperThreadFlushesAboutEverySecond) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "all"}}, [] {
    Process process;
    add(process, kernel("early"));
    EXPECT_TRUE(eventually([&] { return fake_cupti_get(&process.cupti->buffers_out) == 0; }));
    EXPECT_EQ(fake_cupti_get(&process.cupti->forced_flushes), 0);
    _exit(0); /* as a killed process: no orderly end */
  });
  ASSERT_EQ(ALL(log, kernel).size(), 1u);
}

TEST(SourceCuptiActivity, AtTheEndUnfinishedRecordsAreTakenToo) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "all"}}, [] {
    static Process process;
    process.cupti->at_exit = [] {
      bool ended =
          fake_cupti_get(&process.cupti->forced_flushes) > 0 && fake_cupti_get(&process.cupti->buffers_out) == 0;
      for (const int &active : process.cupti->active)
        ended = ended && !fake_cupti_get(&active);
      if (!ended)
        _exit(1);
    };
    add(process, kernel("unfinished", 1000, 0));
  });
  ASSERT_EQ(ALL(log, kernel).size(), 1u);
  EXPECT_EQ(ALL(log, kernel)[0].end_ns, 0u);
}

TEST(SourceCuptiActivity, AForkedChildWithALogOfItsOwnMakesNoCallOfCupti) {
  Recording log = record({}, [] {
    static CuptiProcess process(newest);
    static int flushes;
    pid_t child = fork();
    if (child == 0) {
      flushes = fake_cupti_get(&process.cupti->flushes);
      process.cupti->at_exit = [] {
        if (fake_cupti_get(&process.cupti->flushes) != flushes || !fake_cupti_get(&process.cupti->subscribed))
          _exit(1);
      };
      auto tag = reinterpret_cast<decltype(&sl_tag)>(dlsym(dlopen(PLUGIN, RTLD_NOW), "sl_tag"));
      tag(0, 1, "the first event", 0, "");
      exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
  EXPECT_EQ(ALL(log, tag).size(), 1u);
  for (const auto &clock : ALL(log, clock))
    EXPECT_EQ(clock.cupti_ns, 0u);
}

TEST(SourceCuptiActivity, UnknownKindsAreSkipped) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "all"}}, [] {
    Process process([](CuptiProcess &p) {
      newest(p);
      p.cupti->record_bytes[50] = 96;
    });
    struct {
      uint32_t kind;
      uint8_t rest[92];
    } unknown = {50, {}};
    memset(unknown.rest, 0xff, sizeof(unknown.rest));
    add(process, kernel("before"));
    add(process, unknown);
    add(process, kernel("after"));
  });
  EXPECT_EQ(ALL(log, kernel).size(), 2u);
  EXPECT_TRUE(ALL(log, gap).empty());
}

TEST(SourceCuptiActivity, ABufferThatEndsInsideARecordIsAGap) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "all"}}, [] {
    Process process;
    add(process, kernel("whole"));
    add(process, kernel("cut"), 40);
  });
  EXPECT_EQ(ALL(log, kernel).size(), 1u);
  auto gaps = ALL(log, gap);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(log.name(gaps[0].source), "cupti_activity");
}

TEST(SourceCuptiActivity, AnErrorInsideABufferIsAGap) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "all"}}, [] {
    Process process([](CuptiProcess &p) {
      newest(p);
      p.cupti->next_record = CUPTI_ERROR_INVALID_KIND;
    });
    add(process, kernel("whole"));
  });
  EXPECT_EQ(ALL(log, kernel).size(), 1u);
  EXPECT_EQ(ALL(log, gap).size(), 1u);
}

TEST(SourceCuptiActivity, DroppedRecordsAreCountedInAGap) {
  Recording log = record({}, [] {
    Process process;
    add(process, copy());
    __atomic_store_n(&process.cupti->dropped, 12, __ATOMIC_SEQ_CST);
  });
  auto gaps = ALL(log, gap);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(gaps[0].lost, 12u);
  EXPECT_EQ(log.name(gaps[0].source), "cupti_activity");
}

TEST(SourceCuptiActivity, ManyRecordsFillManyBuffers) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "all"}}, [] {
    Process process;
    for (int i = 0; i < 10000; i++)
      add(process, kernel(i % 2 ? "odd" : "even"));
    EXPECT_GT(fake_cupti_get(&process.cupti->buffers_taken), 2);
    EXPECT_EQ(fake_cupti_get(&process.cupti->buffers_dirty), 0);
  });
  uint64_t lost = 0;
  for (const auto &gap : ALL(log, gap))
    lost += gap.lost;
  EXPECT_EQ(ALL(log, kernel).size() + lost, 10000u);
}

TEST(SourceCuptiActivity, ABufferOfAnotherToolIsLeftAlone) {
  record({}, [] {
    Process process;
    const size_t size = 512 * 1024;
    void *foreign = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    process.complete_buffer(static_cast<uint8_t *>(foreign), size, 0);
    process.complete_buffer(nullptr, 0, 0);
    EXPECT_EQ(madvise(foreign, size, MADV_NORMAL), 0); /* still mapped */
  });
}

TEST(SourceCuptiActivity, WhenBuffersRunOutCuptiGetsReservesThatComeBackZeroed) {
  record({}, [] {
    Process process;
    std::vector<std::pair<uint8_t *, size_t>> buffers;
    auto take = [&] {
      uint8_t *buffer = nullptr;
      size_t size = 0;
      process.request_buffer(&buffer, &size);
      if (buffer)
        buffers.push_back({buffer, size});
      return buffer != nullptr;
    };
    while (take())
      ASSERT_LT(buffers.size(), 2000u);
    auto [reserve, size] = buffers.back();
    EXPECT_LT(size, buffers.front().second);
    memset(reserve, 0xff, size);
    process.complete_buffer(reserve, size, 0);
    buffers.pop_back();
    ASSERT_TRUE(take());
    EXPECT_EQ(buffers.back().first, reserve);
    EXPECT_EQ(std::count(reserve, reserve + size, 0), static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(take());
    for (auto [buffer, bytes] : buffers)
      process.complete_buffer(buffer, bytes, 0);
    EXPECT_TRUE(take());
    EXPECT_EQ(buffers.back().second, buffers.front().second);
  });
}

/* ---- errors ---- */

TEST(SourceCuptiActivity, AMissingKindLeavesTheOthers) {
  Recording log = record({}, [] {
    Process process([](CuptiProcess &p) {
      newest(p);
      p.cupti->activity_enable[CUPTI_ACTIVITY_KIND_MEMSET] = CUPTI_ERROR_INVALID_KIND;
      p.cupti->activity_enable[CUPTI_ACTIVITY_KIND_MEMCPY2] = CUPTI_ERROR_NOT_COMPATIBLE;
    });
    add(process, copy());
  });
  EXPECT_EQ(ALL(log, memory_copy).size(), 1u);
  EXPECT_EQ(log.state("cupti_activity"), std::string("on: ") + SAMPLED);
}

TEST(SourceCuptiActivity, AHardErrorUndoesWhatWasEnabledAndLeavesTheCallbacks) {
  Recording log = record({}, [] {
    Process process([](CuptiProcess &p) {
      newest(p);
      p.cupti->activity_enable[CUPTI_ACTIVITY_KIND_MEMCPY] = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    });
    for (const int &active : process.cupti->active)
      EXPECT_EQ(fake_cupti_get(&active), 0);
    EXPECT_EQ(fake_cupti_get(&process.cupti->subscribed), 1);
  });
  EXPECT_EQ(log.state("cupti_activity"), "failed: CUPTI refused: CUPTI_ERROR_OF_THE_FAKE (35)");
  EXPECT_EQ(log.state("cupti_callback"), "on: ");
}

TEST(SourceCuptiActivity, AFlushThatFailsEndsTheSourceForGood) {
  Recording log = record({}, [] {
    Process process;
    fake_cupti_set(&process.cupti->flush, CUPTI_ERROR_HARDWARE);
    EXPECT_TRUE(eventually([&] { return fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_MEMCPY]) == 0; }));
    int flushes = fake_cupti_get(&process.cupti->flushes);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    EXPECT_EQ(fake_cupti_get(&process.cupti->flushes), flushes);
    EXPECT_EQ(process.cupti_reacquire(), -ENODEV);
    EXPECT_EQ(process.cupti_release(), 0); /* the callbacks' seat */
    EXPECT_EQ(fake_cupti_get(&process.cupti->subscribed), 0);
    EXPECT_EQ(process.cupti_release(), -ENODEV);
  });
  EXPECT_EQ(log.state("cupti_activity").substr(0, 7), "failed:");
  size_t failures = 0;
  for (const auto &state : ALL(log, source_state))
    failures += log.name(state.state) == "failed";
  EXPECT_EQ(failures, 1u);
}

/* ---- handing CUPTI to torch.profiler and taking it back ---- */

TEST(SourceCuptiActivity, AReleaseLeavesNothingOfOursInCupti) {
  Recording log = record({}, [] {
    Process process;
    add(process, copy());
    EXPECT_EQ(process.cupti_release(), 0);
    EXPECT_EQ(fake_cupti_get(&process.cupti->buffers_out), 0);
    EXPECT_EQ(fake_cupti_get(&process.cupti->subscribed), 0);
    for (const int &active : process.cupti->active)
      EXPECT_EQ(fake_cupti_get(&active), 0);
    EXPECT_EQ(process.cupti_release(), 0); /* still released */
    int flushes = fake_cupti_get(&process.cupti->flushes);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    EXPECT_EQ(fake_cupti_get(&process.cupti->flushes), flushes); /* it is the other tool's now */
  });
  EXPECT_EQ(ALL(log, memory_copy).size(), 1u);
  EXPECT_EQ(log.state("cupti_activity"), "off: another tool uses CUPTI");
  EXPECT_EQ(log.state("cupti_callback"), "off: another tool uses CUPTI");
  auto gaps = ALL(log, gap);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(log.name(gaps[0].source), "cupti_activity");
}

TEST(SourceCuptiActivity, ReacquiredWhileTheOtherToolKeepsTheSeatItRecordsActivity) {
  Recording log = record({}, [] {
    Process process;
    EXPECT_EQ(process.cupti_reacquire(), 0); /* nothing was released */
    EXPECT_EQ(process.cupti_release(), 0);
    fake_cupti_set(&process.cupti->subscribe, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    process.cupti->holder = "PyTorch";
    EXPECT_EQ(process.cupti_reacquire(), 0);
    EXPECT_EQ(fake_cupti_get(&process.cupti->buffers_registered), 2);
    EXPECT_EQ(fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]), 1);
    add(process, copy());
  });
  EXPECT_EQ(ALL(log, memory_copy).size(), 1u);
  EXPECT_EQ(log.state("cupti_activity"), std::string("on: without callbacks, which another tool keeps; ") + SAMPLED);
  EXPECT_EQ(log.state("cupti_callback"), "failed: PyTorch uses CUPTI, which serves one tool per process");
}

TEST(SourceCuptiActivity, ReacquiredWithAFreeSeatItHasCallbacksAgain) {
  Recording log = record({}, [] {
    Process process;
    for (int round = 0; round < 3; round++) {
      EXPECT_EQ(process.cupti_release(), 0);
      EXPECT_EQ(process.cupti_reacquire(), 0);
    }
    CUdeviceptr address = 0x9000;
    cuMemAlloc_v2_params parameters = {&address, 64};
    process.driver_call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &parameters);
    add(process, copy());
  });
  EXPECT_EQ(ALL(log, driver_allocation).size(), 1u);
  EXPECT_EQ(ALL(log, memory_copy).size(), 1u);
  EXPECT_EQ(log.state("cupti_activity"), std::string("on: ") + SAMPLED);
  EXPECT_EQ(log.state("cupti_callback"), "on: ");
}

TEST(SourceCuptiActivity, TimesOfAClockThatAnotherToolLeftBehindAreBroughtBack) {
  static uint64_t before, at, after;
  auto now = [] {
    timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return uint64_t(time.tv_sec) * 1'000'000'000 + uint64_t(time.tv_nsec);
  };
  Recording log = record({}, [&] {
    Process process;
    EXPECT_EQ(process.cupti_release(), 0);
    /* a counter of two ticks a nanosecond, since five seconds */
    const uint64_t start = now() - 5'000'000'000;
    __atomic_store_n(&process.cupti->counter_start, start, __ATOMIC_SEQ_CST);
    __atomic_store_n(&process.cupti->clock_stalls, 2,
                     __ATOMIC_SEQ_CST); /* as when the processor is taken away between two clocks */
    EXPECT_EQ(process.cupti_reacquire(), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    at = now();
    uint64_t ticks = (at - start) * 2;
    add(process, kernel("ncclDevKernel", ticks, ticks + 2000));
    __atomic_store_n(&process.cupti->clock_stalls, 2, __ATOMIC_SEQ_CST);
    process.cupti_release();
    before = at, after = at + 1000;
    std::ofstream("/tmp/times-" + std::to_string(getppid())) << before << " " << after;
  });
  std::ifstream("/tmp/times-" + std::to_string(getpid())) >> before >> after;
  std::filesystem::remove("/tmp/times-" + std::to_string(getpid()));
  auto kernels = ALL(log, kernel);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_NEAR(double(int64_t(kernels[0].start_ns - before)), 0, 100'000);
  EXPECT_NEAR(double(int64_t(kernels[0].end_ns - after)), 0, 100'000);
}

TEST(SourceCuptiActivity, AReacquireThatIsRefusedCanBeTriedAgain) {
  Recording log = record({}, [] {
    Process process;
    EXPECT_EQ(process.cupti_release(), 0);
    fake_cupti_set(&process.cupti->activity_enable[CUPTI_ACTIVITY_KIND_MEMCPY], CUPTI_ERROR_HARDWARE_BUSY);
    EXPECT_EQ(process.cupti_reacquire(), -EBUSY);
    EXPECT_EQ(fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]), 0);
    fake_cupti_set(&process.cupti->activity_enable[CUPTI_ACTIVITY_KIND_MEMCPY], CUPTI_SUCCESS);
    EXPECT_EQ(process.cupti_reacquire(), 0);
    add(process, copy());
  });
  EXPECT_EQ(ALL(log, memory_copy).size(), 1u);
}

TEST(SourceCuptiActivity, HandOversAndFlushesDoNotMeet) {
  record({}, [] {
    Process process; /* its helper thread flushes beside all this */
    auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1300);
    while (std::chrono::steady_clock::now() < until) {
      EXPECT_EQ(process.cupti_release(), 0);
      EXPECT_EQ(process.cupti_reacquire(), 0);
    }
    EXPECT_EQ(fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_MEMCPY]), 1);
  });
}
