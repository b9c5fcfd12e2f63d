/*
 * kill -9 under load: allocator events, NVTX ranges, driver calls and new names from four threads at once, in a process
 * with the whole plugin, killed at random moments. What a thread had recorded before the kill is read back: every
 * number without a hole, and at least as many as the thread had counted.
 */
#include "fakes/nvtx_library.h"
#include "fakes/rounds.h"
#include "plugin/cupti_process.h"

#include <atomic>
#include <csignal>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

enum { ALLOCATOR, RANGES, DRIVER, NAMES, THREADS };

/* What each thread has recorded, where the parent sees it after the kill. */
struct Progress {
  std::atomic<uint64_t> done[THREADS];
};

using allocator_event = void(int device, int action, uint64_t address, uint64_t bytes, uint64_t stream,
                             uint64_t pool_owner, uint64_t pool_id);

/* Counts up until the kill, at a rate that leaves the helper thread time to make segments: nothing is to be lost. */
void load(std::atomic<uint64_t> &done, const std::function<void(uint64_t)> &record_one) {
  for (uint64_t i = 0;; i++) {
    record_one(i);
    done.store(i + 1, std::memory_order_release);
    if (i % 16 == 15)
      usleep(400);
  }
}

[[noreturn]] void write_until_killed(Progress *progress) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CuptiProcess process;
  void *plugin = dlopen(PLUGIN, RTLD_NOW);
  auto *allocator = reinterpret_cast<allocator_event *>(dlsym(plugin, "sl_allocator_event"));
  void *library = dlopen(NVTX_ALPHA, RTLD_NOW);
  const nvtx_library *nvtx = reinterpret_cast<const nvtx_library *(*)()>(dlsym(library, "alpha"))();

  std::thread([=] {
    load(progress->done[ALLOCATOR], [=](uint64_t i) { allocator(0, 0, 0x1000 * (i + 1), i, 0, 0, 0); });
  }).detach();
  std::thread([=] {
    load(progress->done[RANGES], [=](uint64_t i) {
      nvtxEventAttributes_t attributes = {};
      attributes.version = NVTX_VERSION;
      attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
      attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      attributes.payload.ullValue = i;
      nvtx->RangePushEx(&attributes);
      nvtx->RangePop();
    });
  }).detach();
  std::thread([=, &process] {
    load(progress->done[DRIVER], [&](uint64_t i) {
      CUdeviceptr address = 0x7000;
      cuMemAlloc_v2_params parameters = {&address, i};
      process.driver_call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &parameters);
    });
  }).detach();
  std::thread([=] {
    load(progress->done[NAMES], [=](uint64_t i) { nvtx->MarkA(std::to_string(i).c_str()); });
  }).detach();
  for (;;)
    pause();
}

/* Each thread's numbers, in the order of its records. */
std::vector<std::vector<uint64_t>> numbers(const Recording &log) {
  std::vector<std::vector<uint64_t>> out(THREADS);
  for (const auto &event : ALL(log, allocator)) {
    EXPECT_EQ(event.sequence, event.bytes);
    out[ALLOCATOR].push_back(event.bytes);
  }
  for (const auto &event : ALL(log, range_push))
    out[RANGES].push_back(event.value);
  for (const auto &event : ALL(log, driver_allocation))
    out[DRIVER].push_back(event.bytes);
  for (const auto &event : ALL(log, range_mark))
    out[NAMES].push_back(std::stoull("0" + log.name(event.name)));
  return out;
}

TEST(Kill, UnderLoadOfSeveralThreadsLosesNothingThatWasRecorded) {
  void *shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::minstd_rand random(7);
  uint64_t events = 0;
  int with_losses = 0;
  const int count = rounds(40);
  for (int round = 0; round < count; round++) {
    Progress *progress = new (shared) Progress{};
    char root[] = "/tmp/shardledger-test-XXXXXX";
    ASSERT_NE(mkdtemp(root), nullptr);
    pid_t child = fork();
    if (child == 0) {
      setenv("SHARDLEDGER_DIR", root, 1);
      setenv("SHARDLEDGER_PYTHON", "off", 1);
      setenv("SHARDLEDGER_LOG", "quiet", 1);
      setenv("NVTX_INJECTION64_PATH", PLUGIN, 1);
      write_until_killed(progress);
    }
    while (progress->done[DRIVER] == 0 && waitpid(child, nullptr, WNOHANG) == 0)
      usleep(200);
    usleep(random() % 60'000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);

    const Recording log = read_recording(root);
    uint64_t lost = 0;
    for (const auto &gap : ALL(log, gap))
      lost += gap.lost;
    with_losses += lost > 0;
    const auto seen = numbers(log);
    for (int thread = 0; thread < THREADS; thread++) {
      events += seen[thread].size();
      for (size_t i = 0; i < seen[thread].size() && !lost; i++)
        ASSERT_EQ(seen[thread][i], i) << "thread " << thread << " in round " << round;
      EXPECT_GE(seen[thread].size() + lost, progress->done[thread]) << "thread " << thread << " in round " << round;
    }
    std::filesystem::remove_all(root);
  }
  printf("%d kills, %llu records read back, losses counted in %d rounds\n", count, (unsigned long long)events,
         with_losses);
  EXPECT_LE(with_losses, 1 + count / 20) << "the load was to be one that loses nothing";
  munmap(shared, sizeof(Progress));
}

} // namespace
