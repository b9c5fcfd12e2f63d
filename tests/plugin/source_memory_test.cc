/*
 * Memory runs out in the plugin: at each single request of it, and from each on for good. The job never notices, and
 * what is missing in the log is told.
 */
#include "fakes/fake_cuda.h"
#include "fakes/fake_cupti.h"
#include "fakes/sanitizers.h"
#include "plugin/recorded.h"

extern "C" {
#include "plugin/shardledger.h"
}

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

constexpr uint64_t EVENTS = 1'200;

void *library(const char *path) {
  void *out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!out)
    _exit(90);
  return out;
}

template <class Function> Function *look_up(void *in, const char *name, Function *) {
  void *out = dlsym(in, name);
  if (!out)
    _exit(91);
  return reinterpret_cast<Function *>(out);
}
#define FROM(in, name) look_up(in, #name, static_cast<decltype(&name)>(nullptr))

void (*set_marked)(int);

/* The plugin's part of a job, with memory that may run out; the rest of it has what it needs. */
template <class Body> void in_plugin(const Body &body) {
  set_marked(1);
  body();
  set_marked(0);
}

struct Nccl {
  const char *name;
  int (*init)(void **context, int *mask, const char *name, uint64_t communicator, int nodes, int ranks, int rank,
              void *log);
  int (*start)(void *context, void **handle, void *descriptor);
};

struct Descriptor { /* of version 4 */
  uint8_t type;
  void *parent;
  int rank;
  uint64_t sequence;
  const char *function;
  const void *send;
  void *receive;
  size_t count;
  int root;
  const char *datatype;
  uint8_t channels, warps;
  const char *algorithm, *protocol;
};

/* What a job does, run by the test below in a process of its own. */
TEST(SourceMemory, DISABLED_Job) {
  void *cupti = library(FAKE_CUPTI), *cuda = library(FAKE_CUDA), *plugin = library(PLUGIN);
  auto *mark = dlsym(RTLD_DEFAULT, "failing_memory_mark");
  ASSERT_NE(mark, nullptr);
  set_marked = reinterpret_cast<void (*)(int)>(mark);
  auto *play = FROM(cupti, fake_cupti_play);
  auto *state = FROM(cupti, fake_cupti);
  auto *request = FROM(cupti, fake_cupti_request);
  auto *complete = FROM(cupti, fake_cupti_complete);
  ASSERT_NE(cuda, nullptr);
  auto *nccl = static_cast<Nccl *>(dlsym(plugin, "ncclProfiler_v4"));
  auto *initialize = reinterpret_cast<int (*)()>(dlsym(plugin, "InitializeInjection"));
  auto *push = FROM(plugin, sl_range_push);
  auto *pop = FROM(plugin, sl_range_pop);
  auto *allocator = FROM(plugin, sl_allocator_event);
  auto *tag = FROM(plugin, sl_tag);
  auto *module = FROM(plugin, sl_module);
  auto *sample = FROM(plugin, sl_device_sample);

  in_plugin([&] {
    initialize();
    module(1, 0, "", "Model", 0, 0, 1, 0);
    push(1, "first", 0);
    pop();
  });
  in_plugin([&] {
    void *context = nullptr, *handle = nullptr;
    int mask = 0;
    nccl->init(&context, &mask, "group", 7, 1, 2, 0, nullptr);
    Descriptor call = {2, nullptr, 0, 1, "AllReduce", nullptr, nullptr, 8, 0, "ncclFloat32", 1, 1, "RING", "SIMPLE"};
    nccl->start(context, &handle, &call);
  });
  CUdeviceptr address = 0x7000;
  cuMemAlloc_v2_params parameters = {&address, 4096};
  CUresult result = CUDA_SUCCESS;
  CUpti_CallbackData data = {};
  data.callbackSite = CUPTI_API_EXIT;
  data.functionParams = &parameters;
  data.functionReturnValue = &result;
  data.context = reinterpret_cast<CUcontext>(1);
  data.contextUid = 1;
  in_plugin([&] { play(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &data); });
  in_plugin([&] {
    uint8_t *buffer = nullptr;
    size_t size = 0;
    if (state()->buffers_registered)
      request(&buffer, &size);
    if (buffer)
      complete(buffer, size, 0);
  });
  const std::string prefix(600, 'n');
  for (uint64_t i = 0; i < EVENTS; i++) {
    const std::string name = prefix + std::to_string(i);
    in_plugin([&] {
      push(2, name.c_str(), i);
      allocator(0, 1, 0x1000 * i, 512, 0, 0, 0);
      tag(0, 0x1000 * i, "parameter", 1, "weight");
      pop();
    });
    if (i % 100 == 0)
      usleep(1'000);
  }
  in_plugin([&] { sample(); });
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void *push) -> void * {
        set_marked(1);
        reinterpret_cast<decltype(&sl_range_push)>(push)(1, "another thread", 0);
        return nullptr;
      },
      reinterpret_cast<void *>(push));
  pthread_join(thread, nullptr);
  fprintf(stderr, "COUNT %ld\n", reinterpret_cast<long (*)()>(dlsym(RTLD_DEFAULT, "failing_memory_count"))());
  atexit([] { set_marked(1); }); /* the plugin's own exit handler comes after this one */
}

struct Job {
  int status = -1;
  long count = 0;
  std::vector<std::string> said;
  Recording recording;
};

Job run(const std::string &variable, long number) {
  char root[] = "/tmp/shardledger-test-XXXXXX";
  EXPECT_NE(mkdtemp(root), nullptr);
  const std::string said = std::string(root) + "-said";
  const pid_t child = fork();
  if (child == 0) {
    alarm(60); /* what hangs fails */
    setenv("SHARDLEDGER_DIR", root, 1);
    setenv("SHARDLEDGER_PYTHON", "off", 1);
    setenv("LD_PRELOAD", FAILING_MEMORY, 1);
    setenv(variable.c_str(), std::to_string(number).c_str(), 1);
    EXPECT_NE(freopen(said.c_str(), "w", stderr), nullptr);
    EXPECT_NE(freopen("/dev/null", "w", stdout), nullptr);
    execl("/proc/self/exe", "job", "--gtest_also_run_disabled_tests", "--gtest_filter=SourceMemory.DISABLED_Job",
          nullptr);
    _exit(92);
  }
  Job job;
  waitpid(child, &job.status, 0);
  std::ifstream lines(said);
  for (std::string line; std::getline(lines, line);)
    if (line.compare(0, 6, "COUNT ") == 0)
      job.count = std::stol(line.substr(6));
    else
      job.said.push_back(line);
  bool has_files = false;
  for (const auto &file : fs::recursive_directory_iterator(root))
    has_files |= file.is_regular_file();
  if (has_files)
    job.recording = read_recording(root);
  fs::remove_all(root);
  fs::remove(said);
  return job;
}

/* Whether every event is in the log, or the log or the plugin say that some are not. */
void expect_told(const Job &job, const std::string &what) {
  EXPECT_EQ(job.status, 0) << what;
  EXPECT_GT(job.count, 0) << what << ": the job came to its end";
  EXPECT_LE(job.said.size(), 1u) << what << ": " << (job.said.empty() ? "" : job.said.back());
  const bool whole = ALL(job.recording, range_push).size() == EVENTS + 2 &&
                     ALL(job.recording, allocator).size() == EVENTS && ALL(job.recording, tag).size() == EVENTS &&
                     ALL(job.recording, process_end).size() == 1;
  EXPECT_TRUE(whole || !job.said.empty() || job.recording.lost() > 0 || !ALL(job.recording, process_end).empty() ||
              !ALL(job.recording, gap).empty())
      << what;
}

TEST(SourceMemory, AnyRequestMayFailAndTheJobGoesOn) {
  if (SANITIZED)
    GTEST_SKIP() << "a sanitizer's allocator can't be taken over";
  const Job whole = run("FAIL_AT", 0);
  EXPECT_EQ(whole.status, 0);
  EXPECT_EQ(ALL(whole.recording, range_push).size() + whole.recording.lost(), EVENTS + 2);
  EXPECT_GT(whole.count, 20);
  printf("%ld requests of memory\n", whole.count);
  for (long number = 1; number <= whole.count + 5 && !HasFailure(); number++) {
    expect_told(run("FAIL_AT", number), "request " + std::to_string(number));
    if (number <= 20 || number % 4 == 0)
      expect_told(run("FAIL_FROM", number), "from request " + std::to_string(number) + " on");
  }
}

} // namespace
