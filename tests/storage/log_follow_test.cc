// Following a log that is still being written.
#include "fakes/growing_log.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/log/log_reader.h"
}

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

class LogFollow : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("follow-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    log = sl_log_close(log);
    fs::remove_all(directory);
  }

  // All events of threads that can be had now, as text; definitions apart.
  std::vector<std::string> read() {
    std::vector<std::string> found;
    sl_event event;
    int r;
    while ((r = sl_log_next(log, &event, &error)) > 0) {
      std::string text = std::to_string(event.thread) + " " + std::to_string(event.type) + " " +
                         std::to_string(event.time_ns) + " " +
                         std::string(static_cast<const char *>(event.payload), event.bytes);
      (event.thread ? found : definitions).push_back(text);
    }
    EXPECT_EQ(r, 0) << error.text;
    return found;
  }
  void open() {
    ASSERT_EQ(sl_log_open((directory / "p").c_str(), &log, &error), 0) << error.text;
    follow();
  }
  void follow() {
    ASSERT_EQ(sl_log_follow(log, &error), 0) << error.text;
  }
  std::vector<std::string> whole(const fs::path &path) {
    sl_log *mine = log;
    EXPECT_EQ(sl_log_open(path.c_str(), &log, &error), 0);
    std::vector<std::string> all = read();
    sl_log_close(log);
    log = mine;
    return all;
  }

  fs::path directory;
  sl_log *log = nullptr;
  sl_error error = {};
  std::vector<std::string> definitions;
};

const fs::path kData = SL_TEST_DATA;

// Segments fill, are sealed and unlinked between the looks; the last look is at the files as they were recorded.
TEST_F(LogFollow, ALogReadAsItGrowsHasTheEventsOfTheWholeInTheSameOrder) {
  bool in_parts = false;
  for (const char *run : {"fsdp2-2rank", "nccl-2rank"}) {
    for (const auto &process : fs::directory_iterator(kData / run)) {
      if (!process.is_directory())
        continue;
      const std::vector<std::string> all = whole(process.path());
      const std::vector<std::string> all_definitions = std::exchange(definitions, {});
      GrowingLog growing(process.path(), directory / "p");
      const uint64_t piece = (growing.last_ns() - growing.first_ns()) / 37;
      std::vector<std::string> found;
      growing.grow(growing.first_ns() + piece);
      open();
      in_parts = !in_parts; // of every second rank memory has room for parts of sealed segments only
      if (in_parts)
        sl_log_limit(log, 0);
      for (uint64_t now = growing.first_ns() + piece; now < growing.last_ns(); now += piece) {
        growing.grow(now);
        follow();
        sl_log_hold(log, now);
        const std::vector<std::string> news = read();
        found.insert(found.end(), news.begin(), news.end());
      }
      growing.grow_to_end();
      follow();
      sl_log_hold(log, UINT64_MAX);
      const std::vector<std::string> news = read();
      found.insert(found.end(), news.begin(), news.end());
      EXPECT_TRUE(found == all) << process.path() << ": " << found.size() << " events of " << all.size();
      EXPECT_TRUE(definitions == all_definitions) << process.path();
      struct sl_log_counts counts;
      sl_log_counts(log, &counts);
      EXPECT_EQ(counts.lost, 0u);
      EXPECT_EQ(counts.damaged_segments, 0u);
      log = sl_log_close(log);
      definitions.clear();
      fs::remove_all(directory / "p");
    }
  }
}

// A reader that comes late finds segments sealed, those of definitions among them.
TEST_F(LogFollow, ASealedLogIsReadFromItsBeginning) {
  LogBuilder builder(directory / "p");
  builder.info("rank", "3");
  builder.definitions().cut();
  builder.info("host", "a");
  builder.thread(1).at(1'000'000'000'000'000'100).range_push("a").cut().range_pop();
  builder.finish(LogBuilder::Files::sealed);
  open();
  EXPECT_EQ(read().size(), 2u);
  EXPECT_EQ(definitions.size(), 4u + 2u + 2u); // strings of the two facts, the facts, the range's name and domain
  follow();
  EXPECT_EQ(read().size(), 0u);
}

TEST_F(LogFollow, WhatCameAfterTheInstantIsHeldBack) {
  LogBuilder builder(directory / "p");
  builder.thread(1).at(1'000'000'000'000'000'100).range_push("a").at(1'000'000'000'000'000'300).range_pop();
  builder.thread(2).at(1'000'000'000'000'000'200).range_push("b");
  builder.finish();
  open();
  sl_log_hold(log, 0);
  EXPECT_EQ(read().size(), 0u);
  EXPECT_GT(definitions.size(), 0u); // those come at once: they say nothing about the time
  sl_log_hold(log, 1'000'000'000'000'000'200);
  EXPECT_EQ(read().size(), 2u);
  sl_log_hold(log, UINT64_MAX);
  EXPECT_EQ(read().size(), 1u);
}

// An allocator event is missing while its thread has not been seen to write it: that is no loss yet.
TEST_F(LogFollow, AHoleInTheAllocatorsOrderIsWaitedForWhileTheLogGrows) {
  constexpr uint64_t start = 1'000'000'000'000'000'000;
  {
    LogBuilder builder(directory / "early");
    builder.thread(1).at(start + 10).allocator(SL_SEGMENT_ALLOC, 0x1000, 4096);
    builder.sequence(0) = 2;
    builder.thread(1).at(start + 30).allocator(SL_FREE_REQUESTED, 0x1000, 512);
    builder.finish();
  }
  {
    LogBuilder builder(directory / "late");
    builder.thread(1).at(start + 10).allocator(SL_SEGMENT_ALLOC, 0x1000, 4096);
    builder.thread(2).at(start + 20).allocator(SL_ALLOC, 0x1000, 512);
    builder.thread(1).at(start + 30).allocator(SL_FREE_REQUESTED, 0x1000, 512);
    builder.finish();
  }
  fs::copy(directory / "early", directory / "p");
  open();
  sl_log_hold(log, start + 40);
  EXPECT_EQ(read().size(), 1u);
  fs::copy(directory / "late", directory / "p", fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  follow();
  EXPECT_EQ(read().size(), 2u);
  struct sl_log_counts counts;
  sl_log_counts(log, &counts);
  EXPECT_EQ(counts.lost, 0u);
}

TEST_F(LogFollow, ARecordThatIsHalfWrittenIsReadWhenItIsWholeAndDamageOnlyLater) {
  LogBuilder builder(directory / "p");
  builder.thread(1).at(1'000'000'000'000'000'100).range_push("a").range_push("b");
  builder.finish();
  fs::path file; // the thread's; definitions have the lowest number
  for (const auto &entry : fs::directory_iterator(directory / "p"))
    file = std::max(file, entry.path());
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  auto last_byte = [&](char value) { stream.seekp(-1, std::ios::end).put(value).flush(); };
  last_byte(1); // of the value of the second record, whose check is then wrong
  open();
  EXPECT_EQ(read().size(), 1u);
  last_byte(0);
  follow();
  EXPECT_EQ(read().size(), 1u);
  struct sl_log_counts counts;
  sl_log_counts(log, &counts);
  EXPECT_EQ(counts.damaged_segments, 0u);

  log = sl_log_close(log);
  last_byte(1);
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(1));
  open();
  EXPECT_EQ(read().size(), 2u); // the first record and a gap
  sl_log_counts(log, &counts);
  EXPECT_EQ(counts.damaged_segments, 1u);
}

TEST_F(LogFollow, AThreadThatAppearsLaterIsRead) {
  constexpr uint64_t start = 1'000'000'000'000'000'000;
  {
    LogBuilder builder(directory / "p");
    builder.thread(1).at(start + 10).range_push("a");
    builder.finish();
  }
  open();
  EXPECT_EQ(read().size(), 1u);
  LogBuilder builder(directory / "later");
  builder.thread(1).at(start + 10).range_push("a");
  for (uint32_t thread = 2; thread < 40; thread++)
    builder.thread(thread).at(start + thread).range_push("b");
  builder.finish();
  fs::copy(directory / "later", directory / "p", fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  follow();
  EXPECT_EQ(read().size(), 38u);
}

} // namespace
