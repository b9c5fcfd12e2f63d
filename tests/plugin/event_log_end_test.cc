/* The host's life, as its log has it: its end, forks, kills, full disks. */
#include "fakes/rounds.h"
#include "fakes/sanitizers.h"
#include "plugin/marks.h"

extern "C" {
#include "plugin/log/log_helper.h"
#include "plugin/log/thread_state.h"
#include "storage/log/log_reader.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

TEST(EventLog, TellsAnOrderlyEndFromAnAbruptOne) {
  EXPECT_EQ(ALL(record({}, [] { mark(1); }), process_end).size(), 1u);
  Recording abrupt = record({}, [] {
    mark(1);
    _exit(0);
  });
  EXPECT_EQ(ALL(abrupt, range_mark).size(), 1u);
  EXPECT_EQ(ALL(abrupt, process_end).size(), 0u);
}

TEST(EventLog, EndsInTimeWhenACallbackHangs) {
  static std::atomic<bool> never;
  Recording recording = record({}, [] {
    sl_log_on_end([] {
      while (!never)
        usleep(1'000);
    });
    mark(1);
    auto start = std::chrono::steady_clock::now();
    sl_log_end(200);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << "and not for ever";
    EXPECT_FALSE(mark(2));
  });
  EXPECT_EQ(ALL(recording, process_end).size(), 1u);
  EXPECT_EQ(ALL(recording, range_mark).size(), 1u);
}

TEST(EventLog, RecordsWhatTheEndCallbacksBring) {
  Recording recording = record({}, [] {
    sl_log_on_end([] { mark(7); });
    mark(1);
  });
  EXPECT_EQ(ALL(recording, range_mark).back().value, 7u);
}

TEST(EventLog, EndsWhileOtherThreadsStillWrite) {
  Recording recording = record({}, [] {
    for (int t = 0; t < 3; t++)
      std::thread([] {
        for (;;)
          mark(1);
      }).detach();
    while (!*sl_log_directory())
      usleep(1'000);
    usleep(50'000);
  });
  EXPECT_EQ(ALL(recording, process_end).size(), 1u);
}

TEST(EventLog, StaysSilentInAForkedChild) {
  Recording recording = record({}, [] {
    mark(1);
    pid_t child = fork();
    if (child == 0) {
      EXPECT_FALSE(sl_log_active());
      EXPECT_FALSE(mark(2));
      sl_log_name("a name that only the child has");
      if (!TSAN) /* which allows no threads in forked children */
        std::thread([] { EXPECT_FALSE(mark(3)); }).join();
      sl_log_end(500);
      exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(mark(4));
  });
  std::vector<uint64_t> values;
  for (const auto &event : ALL(recording, range_mark))
    values.push_back(event.value);
  EXPECT_EQ(values, (std::vector<uint64_t>{1, 4}));
}

TEST(EventLog, LetsAChildRecordThatWasForkedBeforeTheFirstEvent) {
  Recording recording = record({}, [] {
    sl_log_init();
    sl_log_name("from the parent");
    pid_t child = fork();
    if (child == 0) {
      mark(2, sl_log_name("from the parent"));
      exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
  auto marks = ALL(recording, range_mark);
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(recording.name(marks[0].name), "from the parent");
}

/* A child that writes; it ends with this object, however the test ends. */
class Writer {
public:
  explicit Writer(const std::function<void()> &body) {
    EXPECT_NE(mkdtemp(root), nullptr);
    pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setenv("SHARDLEDGER_DIR", root, 1);
      body();
      _exit(0);
    }
  }
  ~Writer() {
    end();
    fs::remove_all(root);
  }
  void end() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    pid = 0;
  }
  /* Of its log; waits for it, which takes a while on a busy machine. */
  fs::path directory() const {
    for (int i = 0; fs::is_empty(root) && i < 120'000; i++)
      usleep(500);
    return fs::directory_iterator(root)->path();
  }

private:
  char root[64] = "/tmp/shardledger-test-XXXXXX";
  pid_t pid = 0;
};

/* What the writer has committed, where the parent can see it after the kill. */
struct Progress {
  std::atomic<uint64_t> committed[3];
};

TEST(EventLog, LosesNothingThatWasCommittedToAKill) {
  for (int round = 0; round < rounds(8); round++) {
    void *shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto progress = new (shared) Progress{};
    Writer writer([progress] {
      for (uint64_t t = 0; t < 3; t++)
        std::thread([t, progress] {
          for (uint64_t committed = 0; committed < 20'000'000;)
            if (mark((t + 1) << 48 | committed))
              progress->committed[t].store(++committed, std::memory_order_release);
            else
              usleep(200);
        }).detach();
      sleep(60);
    });
    while (!progress->committed[0] || !progress->committed[1] || !progress->committed[2])
      usleep(500);
    usleep(round % 8 * 17'000);
    writer.end();

    sl_log *log = nullptr;
    sl_error error = {};
    ASSERT_EQ(sl_log_open(writer.directory().c_str(), &log, &error), 0) << error.text;
    uint64_t next[3] = {};
    sl_event event;
    while (sl_log_next(log, &event, &error) == 1) {
      if (event.type != SL_EVENT_range_mark)
        continue;
      uint64_t value = static_cast<const sl_event_range_mark *>(event.payload)->value;
      ASSERT_EQ(value & 0xffffffffffff, next[(value >> 48) - 1]++);
    }
    for (int t = 0; t < 3; t++)
      EXPECT_GE(next[t], progress->committed[t]) << "thread " << t << " in round " << round;
    struct sl_log_counts counts;
    sl_log_counts(log, &counts);
    EXPECT_EQ(counts.damaged_segments, 0u);
    sl_log_close(log);
    munmap(shared, sizeof(Progress));
  }
}

TEST(EventLog, CanBeReadWhileItIsWritten) {
  constexpr uint64_t COUNT = 1'000'000;
  void *shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto progress = new (shared) Progress{};
  Writer writer([progress] {
    for (uint64_t i = 0; i < COUNT;) {
      i += mark(i);
      progress->committed[0] = i;
      if (i % 10'000 == 0)
        usleep(3'000);
    }
  });
  while (!progress->committed[0])
    usleep(500);
  uint64_t most = 0;
  for (int round = 0; (round < 30 && most < COUNT) || (most <= 10'000 && round < 10'000); round++) {
    sl_log *log = nullptr;
    sl_error error = {};
    ASSERT_EQ(sl_log_open(writer.directory().c_str(), &log, &error), 0) << error.text;
    sl_event event;
    uint64_t next = 0;
    while (sl_log_next(log, &event, &error) == 1)
      if (event.type == SL_EVENT_range_mark) {
        ASSERT_EQ(static_cast<const sl_event_range_mark *>(event.payload)->value, next++);
      }
    struct sl_log_counts counts;
    sl_log_counts(log, &counts);
    EXPECT_EQ(counts.damaged_segments, 0u);
    EXPECT_GE(next, most);
    most = next;
    sl_log_close(log);
  }
  EXPECT_GT(most, 10'000u);
  munmap(shared, sizeof(Progress));
}

TEST(EventLog, GoesOnWithoutALogWhenItsFilesMayNotGrow) {
  Recording recording = record({}, [] {
    const rlimit limit = {100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_FALSE(mark(1)) << "and SIGXFSZ does not end the host";
    EXPECT_FALSE(sl_log_active());
  });
  EXPECT_TRUE(recording.events.empty());
}

TEST(EventLog, SurvivesAFullDiskAndKeepsWhatItHas) {
  static fs::path copy = "/tmp/shardledger-full-" + std::to_string(getpid());
  fs::remove_all(copy);
  Recording recording = record({}, [] {
    const char *directory = getenv("SHARDLEDGER_DIR");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", directory, "tmpfs", 0, "size=4m,mode=700") != 0)
      return;
    uint64_t value = 88172645463325252;
    for (int i = 0; i < 400'000 && sl_log_active(); i++) {
      value ^= value << 13;
      value ^= value >> 7;
      value ^= value << 17;
      mark(value);
      if (i % 10'000 == 0)
        pause_for_helper();
    }
    EXPECT_FALSE(sl_log_active());
    sl_log_end(500);
    /* Out of the file system that only this process sees. */
    fs::copy(directory, copy, fs::copy_options::recursive);
  });
  if (!fs::exists(copy))
    GTEST_SKIP() << "needs the right to mount a small file system";
  sl_log *log = nullptr;
  sl_error error = {};
  ASSERT_EQ(sl_log_open(fs::directory_iterator(copy)->path().c_str(), &log, &error), 0) << error.text;
  sl_event event;
  uint64_t marks = 0;
  std::string reason;
  while (sl_log_next(log, &event, &error) == 1) {
    marks += event.type == SL_EVENT_range_mark;
    if (event.type == SL_EVENT_gap)
      reason = sl_log_string(log, static_cast<const sl_event_gap *>(event.payload)->reason);
  }
  EXPECT_GT(marks, 50'000u);
  EXPECT_NE(reason.find("No space left on device"), std::string::npos) << reason;
  sl_log_close(log);
  fs::remove_all(copy);
}

} // namespace
