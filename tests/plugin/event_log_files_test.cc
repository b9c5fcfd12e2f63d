/* The files of the log: whose they are, where they may lie, and what they don't do to the host. */
#include "plugin/marks.h"

extern "C" {
#include "plugin/log/thread_state.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

/* What is written to stderr meanwhile. */
std::string stderr_of(const std::function<void()> &body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

TEST(EventLog, KeepsItsFilesToItsOwner) {
  Recording recording = record({}, [] {
    umask(0);
    const fs::path root = getenv("SHARDLEDGER_DIR");
    setenv("SHARDLEDGER_DIR", (root / "made/for/it").c_str(), 1);
    mark(1);
    struct stat state;
    EXPECT_EQ(stat(getenv("SHARDLEDGER_DIR"), &state), 0);
    EXPECT_EQ(state.st_mode & 07777, 0700u);
    EXPECT_EQ(stat(sl_log_directory(), &state), 0);
    EXPECT_EQ(state.st_mode & 07777, 0700u);
    int files = 0;
    for (const auto &file : fs::directory_iterator(sl_log_directory())) {
      if (stat(file.path().c_str(), &state) != 0) { /* sealed meanwhile */
        EXPECT_EQ(errno, ENOENT);
        continue;
      }
      EXPECT_EQ(state.st_mode & 07777, 0600u);
      files++;
    }
    EXPECT_GT(files, 1);
    fs::rename(sl_log_directory(), root / "moved");
    fs::remove_all(root / "made");
  });
  EXPECT_EQ(ALL(recording, range_mark).size(), 1u) << "and survives that its directory is moved away";
}

TEST(EventLog, CanUseItsDirectoryWhateverTheUmaskIs) {
  Recording recording = record({}, [] {
    const mode_t before = umask(0177);
    EXPECT_TRUE(mark(1));
    umask(before);
    EXPECT_EQ(fs::status(sl_log_directory()).permissions(), fs::perms::owner_all);
  });
  EXPECT_EQ(ALL(recording, range_mark).size(), 1u);
}

TEST(EventLog, RefusesADirectoryThatEverybodyMayWriteTo) {
  Recording recording = record({}, [] {
    chmod(getenv("SHARDLEDGER_DIR"), 0777);
    EXPECT_FALSE(mark(1));
    EXPECT_FALSE(sl_log_active());
  });
  EXPECT_TRUE(recording.events.empty());
}

/* Its owner could put another directory in the place of ours. What we make in it is ours, and fine. */
TEST(EventLog, RefusesADirectoryOfAnotherUser) {
  if (geteuid() != 0)
    GTEST_SKIP() << "needs to give a directory away";
  Recording recording = record({}, [] {
    const fs::path root = getenv("SHARDLEDGER_DIR");
    ASSERT_EQ(chown(root.c_str(), 65534, 65534), 0);
    EXPECT_FALSE(mark(1));
    EXPECT_FALSE(sl_log_active());
    EXPECT_TRUE(fs::is_empty(root));
  });
  EXPECT_TRUE(recording.events.empty());
}

TEST(EventLog, FollowsNoLinkThatSomebodyPutInItsWay) {
  Recording recording = record({}, [] {
    const fs::path root = getenv("SHARDLEDGER_DIR"), victim = root / "victim";
    std::ofstream(victim) << "precious";
    mark(1);
    const fs::path log = sl_log_directory();
    fs::create_symlink(victim, log / "sealed.slogz");
    for (int number = 20; number < 100; number++) { /* the helper thread has made some already */
      char name[32];
      snprintf(name, sizeof(name), "%08x.slog", number);
      fs::create_symlink(victim, log / name);
    }
    for (int i = 0; i < 400'000 && sl_log_active(); i++)
      if (!mark(2))
        usleep(100);
    EXPECT_FALSE(sl_log_active()) << "recording ends at a file that is not its own";
    std::string text;
    std::ifstream(victim) >> text;
    EXPECT_EQ(text, "precious");
    fs::remove(victim);
    for (const auto &file : fs::directory_iterator(log))
      if (file.is_symlink())
        fs::remove(file.path());
  });
  EXPECT_GE(ALL(recording, range_mark).size(), 1u) << "what was recorded before stays";
}

TEST(EventLog, GoesOnWithoutALogWhereNoneCanBeMade) {
  Recording recording = record({}, [] {
    setenv("SHARDLEDGER_DIR", "/proc/shardledger", 1);
    EXPECT_FALSE(mark(1));
    EXPECT_FALSE(sl_log_active());
  });
  EXPECT_TRUE(recording.events.empty());
}

TEST(EventLog, SaysWhichLimitIsTooSmallAndLeavesNothing) {
  for (const char *limit : {"1", "300KiB"}) {
    Recording recording = record({{"SHARDLEDGER_MAX_BYTES", limit}, {"SHARDLEDGER_LOG", "info"}}, [] {
      const std::string said = stderr_of([] { EXPECT_FALSE(mark(1)); });
      EXPECT_NE(said.find("SHARDLEDGER_MAX_BYTES is too small"), std::string::npos) << said;
      EXPECT_TRUE(fs::is_empty(getenv("SHARDLEDGER_DIR")));
    });
    EXPECT_TRUE(recording.events.empty());
  }
}

TEST(EventLog, SaysWhatItHasToSayAlsoWhereNobodyReadsIt) {
  for (int limited : {false, true})
    record({{"SHARDLEDGER_MAX_BYTES", "1"}, {"SHARDLEDGER_LOG", "info"}}, [=] {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      close(ends[0]);
      const rlimit none = {0, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
      if (limited) { /* stderr is a file that may not grow */
        const std::string file = std::string(getenv("SHARDLEDGER_DIR")) + "/stderr";
        ends[1] = open(file.c_str(), O_CREAT | O_WRONLY, 0600);
        unlink(file.c_str());
        setrlimit(RLIMIT_FSIZE, &none);
      }
      const int before = dup(STDERR_FILENO);
      dup2(ends[1], STDERR_FILENO);
      EXPECT_FALSE(mark(1)) << "and SIGPIPE or SIGXFSZ does not end the host";
      setrlimit(RLIMIT_FSIZE, &all); /* a build with coverage writes at the end */
      dup2(before, STDERR_FILENO);
    });
}

TEST(EventLog, LeavesTheHostsErrnoAlone) {
  record({}, [] {
    errno = ENOTTY;
    mark(1, sl_log_name("a new name"));
    EXPECT_EQ(errno, ENOTTY);
    std::thread([] {
      errno = ENOTTY;
      for (int i = 0; i < 20'000; i++)
        mark(1);
      EXPECT_EQ(errno, ENOTTY);
    }).join();
  });
}

TEST(EventLog, GoesOnAfterAShortageOfDescriptors) {
  Recording recording = record({}, [] {
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    mark(0);
    const rlimit none = {0, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    while (mark(1))
      ;
    usleep(100'000); /* the helper thread meets it */
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 20'000 && !mark(2); i++)
      usleep(1'000);
  });
  EXPECT_EQ(ALL(recording, range_mark).back().value, 2u);
  EXPECT_GT(recording.lost(), 0u);
  for (const std::string &reason : gap_reasons(recording))
    EXPECT_EQ(reason, "no segment was ready");
}

TEST(EventLog, GoesOnWhenTheFileSystemHasNoMoreInodes) {
  record({}, [] {
    const char *directory = getenv("SHARDLEDGER_DIR");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", directory, "tmpfs", 0, "nr_inodes=12,mode=700") != 0)
      return;
    for (int i = 0; i < 1'000'000 && sl_log_active(); i++)
      if (!mark(1))
        usleep(100);
    EXPECT_FALSE(sl_log_active()) << "there were to be too few inodes";
  });
}

TEST(EventLog, TakesARelativeDirectoryFromWhereTheProgramStarted) {
  Recording recording = record({}, [] {
    EXPECT_EQ(chdir(getenv("SHARDLEDGER_DIR")), 0);
    std::string here = getenv("SHARDLEDGER_DIR");
    setenv("SHARDLEDGER_DIR", ".", 1);
    sl_log_init();
    EXPECT_EQ(chdir("/"), 0);
    mark(1);
    EXPECT_EQ(fs::path(sl_log_directory()).lexically_normal().parent_path(), here);
  });
  EXPECT_EQ(ALL(recording, range_mark).size(), 1u);
}

TEST(EventLog, FillsInTheRankAndTheJobOfADirectorysName) {
  Recording recording = record({{"RANK", "7"}, {"SLURM_JOB_ID", "4711"}}, [] {
    const fs::path root = getenv("SHARDLEDGER_DIR");
    setenv("SHARDLEDGER_DIR", (root / "%j" / "rank-%r").c_str(), 1);
    EXPECT_TRUE(mark(1));
    EXPECT_EQ(fs::path(sl_log_directory()).parent_path(), root / "4711" / "rank-7");
    fs::rename(sl_log_directory(), root / "moved"); /* where it is looked for */
    fs::remove_all(root / "4711");
  });
  EXPECT_EQ(ALL(recording, range_mark).size(), 1u);
}

TEST(EventLog, CutsFilesToTheirUsedPartAtTheEnd) {
  char root[] = "/tmp/shardledger-test-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  pid_t child = fork();
  if (child == 0) {
    setenv("SHARDLEDGER_DIR", root, 1);
    std::thread([] { mark(1); }).join();
    mark(2);
    exit(0);
  }
  waitpid(child, nullptr, 0);
  uint64_t bytes = 0;
  int files = 0;
  for (const auto &file : fs::recursive_directory_iterator(root))
    if (file.is_regular_file()) {
      bytes += file.file_size();
      files++;
    }
  EXPECT_LE(files, 5) << "definitions, two threads, the helper; nothing that was only ready";
  EXPECT_LT(bytes, 4096u);
  fs::remove_all(root);
}

} // namespace
