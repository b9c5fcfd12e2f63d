#include "plugin/loaded_process.h"

#include "fakes/nvtx_library.h"
#include "plugin/cupti_process.h"

#include <csignal>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using allocator_event = void(int device, int action, uint64_t address, uint64_t bytes, uint64_t stream,
                             uint64_t pool_owner, uint64_t pool_id);

static double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Counts up for ever, at a rate that leaves the helper thread time to make segments: nothing is to be lost. */
static void load(std::atomic<uint64_t> &done, const std::function<void(uint64_t)> &record_one) {
  for (uint64_t i = 0;; i++) {
    record_one(i);
    done.store(i + 1, std::memory_order_release);
    if (i % 16 == 15)
      usleep(400);
  }
}

LoadedProcess::LoadedProcess(const std::function<void()> &body) {
  EXPECT_NE(mkdtemp(root), nullptr);
  void *map = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared = new (map) Shared{};
  fflush(nullptr);
  pid = fork();
  if (pid != 0)
    return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("SHARDLEDGER_DIR", root, 1);
  setenv("SHARDLEDGER_PYTHON", "off", 1);
  setenv("SHARDLEDGER_LOG", "quiet", 1);
  setenv("NVTX_INJECTION64_PATH", PLUGIN, 1);
  static CuptiProcess process;
  auto *allocator = reinterpret_cast<allocator_event *>(dlsym(dlopen(PLUGIN, RTLD_NOW), "sl_allocator_event"));
  void *library = dlopen(NVTX_ALPHA, RTLD_NOW);
  const nvtx_library *nvtx = reinterpret_cast<const nvtx_library *(*)()>(dlsym(library, "alpha"))();
  Shared *progress = shared;
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
  std::thread([=] {
    load(progress->done[DRIVER], [&](uint64_t i) {
      CUdeviceptr address = 0x7000;
      cuMemAlloc_v2_params parameters = {&address, i};
      process.driver_call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &parameters);
    });
  }).detach();
  std::thread([=] {
    load(progress->done[NAMES], [=](uint64_t i) { nvtx->MarkA(std::to_string(i).c_str()); });
  }).detach();
  for (int thread = 0; thread < THREADS; thread++)
    while (progress->done[thread] == 0)
      usleep(100);
  shared->body_at = now();
  body();
  _exit(99);
}

LoadedProcess::~LoadedProcess() {
  kill();
  munmap(shared, sizeof(*shared));
  std::error_code ignored;
  std::filesystem::remove_all(root, ignored);
}

void LoadedProcess::kill() {
  if (pid > 0) {
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid = 0;
}

int LoadedProcess::wait() {
  int status = -1;
  for (int i = 0; i < 240'000; i++) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      ended_at = now();
      pid = 0;
      return status;
    }
    usleep(500);
  }
  ADD_FAILURE() << "the process hangs";
  kill();
  return -1;
}

double LoadedProcess::seconds() const {
  return ended_at - shared->body_at;
}

uint64_t LoadedProcess::done(int thread) const {
  return shared->done[thread];
}

Recording LoadedProcess::recording() const {
  return read_recording(root);
}

std::vector<std::vector<uint64_t>> LoadedProcess::numbers(const Recording &log) {
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
