/* The log's file system stalls, or gives no promise of room for a later store: no call of the job waits or faults. */
#include "plugin/marks.h"

extern "C" {
#include "plugin/log/event_log.h"
#include "plugin/log/segment_written.h"
}

#include <array>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <mutex>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

/*
 * A file system for files that does not answer while this is locked, in this process: these calls of the plugin come
 * here first. Who waits sleeps, as in a real one: a thread that wakes up to look again would seem to lack a processor.
 */
static std::mutex stall;

static void wait_for_answer() {
  const std::lock_guard<std::mutex> answered(stall);
}

extern "C" {
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
  va_end(arguments);
  if (strncmp(path, "/proc/", 6) != 0) /* the kernel's own always answers */
    wait_for_answer();
  return __real_open(path, flags, mode);
}
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode) {
  wait_for_answer();
  return __real_mkdir(path, mode);
}
int __real_truncate(const char *path, off_t bytes);
int __wrap_truncate(const char *path, off_t bytes) {
  wait_for_answer();
  return __real_truncate(path, bytes);
}
int __real_unlink(const char *path);
int __wrap_unlink(const char *path) {
  wait_for_answer();
  return __real_unlink(path);
}
}

namespace {

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

template <class Call> double seconds_of(Call call) {
  const double before = now();
  call();
  return now() - before;
}

/* Names and events for a while. Returns how long the longest call took. */
double work(double seconds) {
  double longest = 0;
  uint64_t count = 0;
  for (const double begin = now(); now() - begin < seconds; count++) {
    const double took =
        seconds_of([&] { mark(count, sl_log_name((std::string(900, 'x') + std::to_string(count)).c_str())); });
    longest = std::max(longest, took);
    if (count % 16 == 0)
      usleep(100);
  }
  return longest;
}

/*
 * How long calls take that must not wait for the file system, or half a second and no more: the least of some rounds,
 * each in a process of its own. One that was slow may have lacked a processor or the real disk, all of them would be
 * the plugin's doing. A call that waits for an answer hangs, and the process is killed.
 */
class Waits {
public:
  enum Call { FIRST_EVENT, EVENTS, NEW_THREAD, END, CALLS };

  Waits() {
    least.fill(1e9);
    void *map = mmap(nullptr, sizeof(*round), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    round = static_cast<std::array<double, CALLS> *>(map);
  }
  ~Waits() {
    for (int call = 0; call < CALLS; call++)
      EXPECT_LT(least[call], LIMITS[call]) << "of call " << call;
    munmap(round, sizeof(*round));
  }
  /* Whether some call has been slow in all rounds so far. */
  bool go_on() {
    bool slow = false;
    for (int call = 0; call < CALLS; call++) {
      least[call] = rounds ? std::min(least[call], (*round)[call]) : least[call];
      slow |= least[call] >= LIMITS[call];
    }
    *round = {};
    return slow && rounds++ < 5 && !testing::Test::HasFailure();
  }
  Recording record(const std::function<void(double *seconds)> &body) {
    return ::record({}, [&] {
      alarm(120); /* what hangs fails */
      body(round->data());
    });
  }

private:
  static constexpr double BUSY = 1; /* what a machine adds that has other things to do */
  static constexpr double LIMITS[] = {0.5 + BUSY, BUSY, 0.5 + BUSY, 0.5 + BUSY};
  std::array<double, CALLS> least, *round; /* the latter is the process's */
  int rounds = 0;
};

TEST(FileSystem, OneThatNeverAnswersCostsHalfASecondAtTheFirstEventAndAtTheEnd) {
  for (Waits waits; waits.go_on();) {
    const Recording recording = waits.record([](double *seconds) {
      stall.lock();
      seconds[Waits::FIRST_EVENT] = seconds_of([] { EXPECT_TRUE(mark(1)) << "into memory"; });
      seconds[Waits::EVENTS] = work(1);
      std::thread([=] { seconds[Waits::NEW_THREAD] = work(0.2); }).join();
      seconds[Waits::END] = seconds_of([] { sl_log_end(500); });
    });
    EXPECT_TRUE(recording.events.empty());
  }
}

TEST(FileSystem, OneThatAnswersLateHasEverything) {
  const Recording recording = record({}, [] {
    stall.lock();
    for (uint64_t i = 0; i < 30'000; i++)
      mark(i, sl_log_name(("name " + std::to_string(i)).c_str()));
    stall.unlock();
    while (!*sl_log_directory())
      usleep(1'000);
    pause_for_helper();
    for (uint64_t i = 30'000; i < 40'000; i++)
      mark(i);
  });
  const auto marks = ALL(recording, range_mark);
  EXPECT_EQ(recording.lost(), 0u);
  EXPECT_EQ(marks.size(), 40'000u);
  for (size_t i = 0; i < marks.size(); i++) {
    ASSERT_EQ(marks[i].value, i);
    if (i < 30'000) {
      ASSERT_EQ(recording.name(marks[i].name), "name " + std::to_string(i));
    }
  }
}

TEST(FileSystem, WhatWasInMemoryWhileItStalledSurvivesAKillLater) {
  char root[] = "/tmp/shardledger-test-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setenv("SHARDLEDGER_DIR", root, 1);
    stall.lock();
    for (uint64_t i = 0; i < 100; i++)
      mark(i, sl_log_name(("name " + std::to_string(i)).c_str()));
    stall.unlock();
    while (!*sl_log_directory())
      usleep(1'000);
    /* The helper thread writes it out, and what follows goes into a mapped file. */
    eventually([&] { return ALL(recorded_so_far(), range_mark).size() == 100; });
    mark(100);
    mark(101);
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ALL(read_recording(root), range_mark).size(), 102u);
  fs::remove_all(root);
}

TEST(FileSystem, OneThatStallsLaterHoldsUpNoCallNorTheEnd) {
  for (Waits waits; waits.go_on();)
    waits.record([](double *seconds) {
      EXPECT_TRUE(mark(1));
      usleep(50'000);
      stall.lock();
      seconds[Waits::EVENTS] = work(2); /* definitions too */
      for (int i = 0; i < 3; i++)
        std::thread([=] { seconds[Waits::NEW_THREAD] = std::max(seconds[Waits::NEW_THREAD], work(0.1)); }).join();
      seconds[Waits::END] = seconds_of([] { sl_log_end(500); });
    });
}

/* ---- where a store may need a new block ---- */

TEST(FileSystem, OnlyThoseThatKeepTheirPromiseAreMapped) {
  EXPECT_FALSE(sl_written_is_better("/dev/shm"));
  EXPECT_TRUE(sl_written_is_better("/proc"));
  EXPECT_TRUE(sl_written_is_better("/nowhere"));
}

/* Mounts a new file system in a mount namespace of this process alone. False where that is not possible here. */
bool mount_new(const std::string &make, const std::string &directory) {
  const std::string image = directory + "/image", at = directory + "/mounted";
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return false;
  fs::create_directory(at);
  const std::string command = "exec >/dev/null 2>&1; PATH=$PATH:/sbin:/usr/sbin; truncate -s 320M " + image + " && " +
                              make + " " + image + " && mount -o loop " + image + " " + at + " && chmod 700 " + at;
  return system(command.c_str()) == 0;
}

struct Made {
  const char *command;
  bool written;
};

class CopyOnWrite : public testing::TestWithParam<Made> {};

TEST_P(CopyOnWrite, IsWrittenAndAFullOneEndsTheRecordingOnly) {
  const Made made = GetParam();
  char root[] = "/tmp/shardledger-cow-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const std::string at = std::string(root) + "/mounted";
    if (!mount_new(made.command, root))
      _exit(3);
    EXPECT_EQ(sl_written_is_better(at.c_str()), made.written);
    setenv("SHARDLEDGER_DIR", (at + "/out").c_str(), 1);
    setenv("SHARDLEDGER_LOG", "quiet", 1);
    EXPECT_TRUE(mark(1));
    usleep(1'200'000);
    /* Someone copies the log, which shares its blocks, and then the disk fills up. */
    EXPECT_EQ(system(("cp -r --reflink=auto " + at + "/out " + at + "/copy; sync; dd if=/dev/zero of=" + at +
                      "/fill bs=64k >/dev/null 2>&1; sync")
                         .c_str()),
              0);
    for (uint64_t i = 0; i < 30'000; i++) { /* a store that finds no block would be SIGBUS */
      mark(i);
      if (i % 100 == 0)
        usleep(10'000);
    }
    sl_log_end(500);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  fs::remove_all(root);
  if (status == 3 << 8)
    GTEST_SKIP() << "needs the right to mount, loop devices and " << made.command;
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(FileSystem, CopyOnWrite,
                         testing::Values(Made{"mkfs.btrfs -q", true}, Made{"mkfs.xfs -q -m reflink=1", true},
                                         Made{"mkfs.xfs -q -m reflink=0", false}, Made{"mkfs.ext4 -q", false}));

} // namespace
