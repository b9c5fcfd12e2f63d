/* How a loaded process ends: killed at random moments, or in every other way there is. Nothing recorded is lost to it.
 */
#include "fakes/nvtx_library.h"
#include "fakes/rounds.h"
#include "fakes/sanitizers.h"
#include "plugin/loaded_process.h"

#include <algorithm>
#include <csignal>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

/* Every thread's numbers are there, from 0 and without a hole, and all that it had counted. */
void expect_complete(const LoadedProcess &process, const Recording &log) {
  const auto numbers = LoadedProcess::numbers(log);
  const uint64_t missing = log.lost();
  for (int thread = 0; thread < LoadedProcess::THREADS; thread++) {
    EXPECT_GE(numbers[thread].size() + missing, process.done(thread)) << "thread " << thread;
    for (size_t i = 0; i < numbers[thread].size() && missing == 0; i++)
      ASSERT_EQ(numbers[thread][i], i) << "thread " << thread;
  }
}

TEST(End, AKillUnderLoadOfSeveralThreadsLosesNothingThatWasRecorded) {
  std::minstd_rand random(7);
  uint64_t records = 0;
  int with_losses = 0;
  const int count = rounds(40);
  for (int round = 0; round < count && !testing::Test::HasFailure(); round++) {
    LoadedProcess process([] {
      for (;;)
        pause();
    });
    while (process.done(LoadedProcess::NAMES) == 0)
      usleep(200);
    usleep(random() % 60'000);
    process.kill();
    const Recording log = process.recording();
    expect_complete(process, log);
    with_losses += log.lost() > 0;
    records += log.events.size();
  }
  printf("%d kills, %llu records read back, losses counted in %d rounds\n", count, (unsigned long long)records,
         with_losses);
  EXPECT_LE(with_losses, count / 2) << "the load was to be one that loses nothing, but on a very busy machine";
}

/* ---- every other end ---- */

struct Ending {
  const char *name;
  std::function<void()> end;
  int status;                 /* as waitpid gives it */
  bool orderly;               /* the plugin's exit handler runs */
  bool not_sanitized = false; /* a signal that sanitizers take, or memory of threads that a fork left behind */
};

void PrintTo(const Ending &ending, std::ostream *out) {
  *out << ending.name;
}

constexpr int EXITED_3 = 3 << 8;

void die_by(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

/* A child of a process whose other threads are in the middle of something ends in order, then the parent does. */
void fork_and_exit(bool child_is_orderly) {
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (child == 0) {
      if (child_is_orderly)
        exit(5);
      _exit(5);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 5 << 8)
      _exit(98);
  }
  exit(3);
}

const Ending endings[] = {
    {"exit", [] { exit(3); }, EXITED_3, true},
    {"ExitOnAnotherThread",
     [] {
       std::thread([] { exit(3); }).detach();
       for (;;)
         pause();
     },
     EXITED_3, true},
    {"underscoreExit", [] { _exit(3); }, EXITED_3, false},
    {"quickExit", [] { quick_exit(3); }, EXITED_3, false},
    {"Sigterm", [] { die_by(SIGTERM); }, SIGTERM, false},
    {"Sigint", [] { die_by(SIGINT); }, SIGINT, false},
    {"Sigkill", [] { die_by(SIGKILL); }, SIGKILL, false},
    {"Abort", [] { die_by(SIGABRT); }, SIGABRT, false, true},
    {"SegmentationFault", [] { die_by(SIGSEGV); }, SIGSEGV, false, true},
    {"Exec", [] { execl("/bin/sh", "sh", "-c", "exit 3", nullptr); }, EXITED_3, false},
    {"ForkWhoseChildExits", [] { fork_and_exit(true); }, EXITED_3, true, true},
    {"ForkWhoseChildLeaves", [] { fork_and_exit(false); }, EXITED_3, true},
};

class EveryEnd : public testing::TestWithParam<Ending> {};

TEST_P(EveryEnd, KeepsItsStatusTakesNoSecondAndLosesNothing) {
  const Ending &ending = GetParam();
  if (SANITIZED && ending.not_sanitized)
    GTEST_SKIP() << "a sanitizer would object";
  const double limit = SANITIZED ? 10 : 1; /* ends of sanitizers take their time */
  double fastest = 1e9; /* one that was slow may have lacked a processor, all of them would be the plugin's doing */
  for (int round = 0; (round < rounds(2) || (fastest >= limit && round < 20)) && !HasFailure(); round++) {
    LoadedProcess process([&] {
      usleep(2'000);
      ending.end();
    });
    int status = process.wait();
    if (WIFSIGNALED(status))
      status &= 0x7f; /* without the bit for a core dump */
    EXPECT_EQ(status, ending.status);
    fastest = std::min(fastest, process.seconds());
    const Recording log = process.recording();
    EXPECT_EQ(ALL(log, process_end).size(), ending.orderly ? 1u : 0u);
    if (!ending.orderly)
      expect_complete(process, log); /* an orderly end stops recording while the threads still count */
  }
  EXPECT_LT(fastest, limit);
}

INSTANTIATE_TEST_SUITE_P(End, EveryEnd, testing::ValuesIn(endings),
                         [](const auto &info) { return std::string(info.param.name); });

/* ---- what comes and goes before the end ---- */

TEST(End, LibrariesThatUseNvtxMayBeUnloadedAndComeBack) {
  const Recording log = record({{"NVTX_INJECTION64_PATH", PLUGIN}}, [] {
    for (int round = 0; round < rounds(100); round++) {
      void *library = dlopen(NVTX_ALPHA, RTLD_NOW | RTLD_LOCAL);
      const nvtx_library *nvtx = reinterpret_cast<const nvtx_library *(*)()>(dlsym(library, "alpha"))();
      const nvtxDomainHandle_t domain = nvtx->DomainCreateA("comes and goes");
      nvtx->RangePushA("inside");
      nvtx->RangePop();
      nvtx->DomainDestroy(domain);
      dlclose(library);
      EXPECT_EQ(dlopen(NVTX_ALPHA, RTLD_NOW | RTLD_NOLOAD), nullptr) << "it was to be gone";
    }
  });
  EXPECT_EQ(ALL(log, range_push).size() + log.lost(), (size_t)rounds(100));
  EXPECT_EQ(ALL(log, nvtx_domain).size(), 1u) << "one that comes back has the id that it had";
}

} // namespace
