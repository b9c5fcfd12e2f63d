/* The log on file systems where it is written instead of mapped. */
#include "plugin/marks.h"

extern "C" {
#include "plugin/log/event_log.h"
#include "plugin/log/segment_pool.h"
#include "plugin/log/segment_written.h"
}

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

/* A file system that can't map files, in this process and its children. */
static std::atomic<int> mmap_refuses; /* the errno; 0: it does not */

extern "C" void *__real_mmap(void *, size_t, int, int, int, off_t);
extern "C" void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (mmap_refuses && file >= 0) {
    errno = mmap_refuses;
    return MAP_FAILED;
  }
  return __real_mmap(address, bytes, protection, flags, file, offset);
}

namespace {

const Environment written = {{"SHARDLEDGER_FILES", "written"}};

TEST(LogWritten, HoldsTheSameAsAMappedOne) {
  constexpr uint64_t COUNT = 40'000;
  const Recording recording = record(written, [] {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 3; t++)
      threads.emplace_back([t] {
        for (uint64_t i = 0; i < COUNT; i++) {
          mark(t << 32 | i);
          if (i % 5'000 == 4'999)
            usleep(20'000);
        }
      });
    for (auto &thread : threads)
      thread.join();
  });
  std::map<uint32_t, std::vector<uint64_t>> marks;
  uint64_t total = 0;
  for (const Event &event : recording.of(SL_EVENT_range_mark))
    marks[event.thread].push_back(event.as<sl_event_range_mark>().value);
  for (const auto &thread : marks) {
    total += thread.second.size();
    EXPECT_TRUE(std::is_sorted(thread.second.begin(), thread.second.end()));
  }
  EXPECT_EQ(total + recording.lost(), 3 * COUNT);
  EXPECT_GT(total, 2 * COUNT);
  EXPECT_EQ(ALL(recording, process_end).size(), 1u);
}

TEST(LogWritten, AKillLosesTheLastSecondAndNoMore) {
  char root[] = "/tmp/shardledger-test-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  pid_t child = fork();
  if (child == 0) {
    setenv("SHARDLEDGER_DIR", root, 1);
    setenv("SHARDLEDGER_FILES", "written", 1);
    for (uint64_t i = 0; i < 1'000; i++)
      mark(i);
    eventually([&] { return ALL(recorded_so_far(), range_mark).size() == 1'000; });
    mark(1'000); /* just after a write, most often a second before the next one */
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  const Recording recording = read_recording(root);
  const auto marks = ALL(recording, range_mark);
  EXPECT_GE(marks.size(), 1'000u);
  EXPECT_LE(marks.size(), 1'001u);
  EXPECT_FALSE(recording.names.empty());
  fs::remove_all(root);
}

TEST(LogWritten, IsWhatAFileSystemWithoutMappingsGets) {
  for (int refusal : {ENODEV, EINVAL, EOPNOTSUPP}) {
    const Recording recording = record({}, [=] {
      mmap_refuses = refusal;
      EXPECT_TRUE(mark(1));
      mmap_refuses = 0;
    });
    EXPECT_EQ(ALL(recording, range_mark).size(), 1u) << strerror(refusal);
  }
}

TEST(LogWritten, OtherRefusalsEndTheRecording) {
  const Recording recording = record({}, [] {
    mmap_refuses = ENOMEM;
    EXPECT_FALSE(mark(1));
    EXPECT_FALSE(sl_log_active());
    mmap_refuses = 0;
  });
  EXPECT_TRUE(recording.events.empty());
}

TEST(LogWritten, WhatTheHelperThreadIsTooLateToSealIsWrittenAsItIs) {
  record(written, [] {
    const std::string directory = std::string(getenv("SHARDLEDGER_DIR")) + "/log";
    fs::create_directory(directory);
    constexpr uint32_t USED = sizeof(sl_segment_header) + 16;
    constexpr unsigned SEGMENTS = 300; /* of which 256 may wait */
    sl_pool_begin(
        0, [] {}, [] { return false; });
    ASSERT_EQ(sl_pool_start(directory.c_str()), 0);
    for (unsigned i = 0; i < SEGMENTS; i++) {
      sl_segment *segment = sl_pool_stopgap(true);
      ASSERT_NE(segment, nullptr);
      segment->map->check = 1;
      *reinterpret_cast<uint64_t *>(segment->map + 1) = SL_EVENT_range_end | 2 << 8;
      sl_pool_retire(segment, USED);
    }
    while (sl_pool_work() > 0)
      ;
    unsigned raw = 0;
    for (const auto &file : fs::directory_iterator(directory))
      raw += file.path().extension() == ".slog" && file.file_size() == USED;
    EXPECT_EQ(raw, SEGMENTS - 256);
    fs::remove_all(directory);
  });
}

TEST(LogWritten, AFullDiskEndsTheRecordingAndNotTheProgram) {
  record(written, [] {
    const char *directory = getenv("SHARDLEDGER_DIR");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", directory, "tmpfs", 0, "size=64k,mode=700") != 0)
      return;
    for (int i = 0; i < 60'000 && sl_log_active(); i++) {
      for (int j = 0; j < 100; j++)
        mark(1);
      usleep(1'000);
    }
    EXPECT_FALSE(sl_log_active());
  });
}

} // namespace
