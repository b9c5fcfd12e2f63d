/* The reader, against logs with chosen times and threads, whole and damaged. */
#include "fakes/log_builder.h"

#include "plugin/format/log_format.h"

extern "C" {
#include "storage/log/event_table.h"
#include "storage/log/log_reader.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

/* One event, as much of it as most tests look at. */
struct Read {
  int type;
  uint32_t thread;
  uint64_t time;
  uint64_t number; /* allocator: sequence; mark: value; gap: lost */
  std::string text;

  bool operator==(const Read &other) const {
    return type == other.type && thread == other.thread && time == other.time && number == other.number;
  }
};

struct Log {
  int opened = 0;
  int ended = 0;
  std::string error;
  std::vector<Read> events, definitions;
  struct sl_log_counts counts = {};
  uint64_t bytes_read = 0;

  std::vector<Read> of_thread(uint32_t thread, int type = 0) const {
    std::vector<Read> out;
    for (const Read &event : events)
      if (event.thread == thread && (type == 0 || event.type == type))
        out.push_back(event);
    return out;
  }
  std::vector<uint64_t> numbers(int type) const {
    std::vector<uint64_t> out;
    for (const Read &event : events)
      if (event.type == type)
        out.push_back(event.number);
    return out;
  }
};

Log read(const fs::path &directory, const std::function<void()> &after_open = nullptr, uint64_t limit = 128 << 20) {
  Log out;
  sl_log *log = nullptr;
  sl_error error = {};
  out.opened = sl_log_open(directory.c_str(), &log, &error);
  out.error = error.text;
  if (out.opened < 0)
    return out;
  sl_log_limit(log, limit);
  if (after_open)
    after_open();
  sl_event event;
  while ((out.ended = sl_log_next(log, &event, &error)) == 1) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(event.payload) % 8, 0u);
    EXPECT_NE(sl_event_layout(event.type)->name, nullptr);
    Read read = {event.type, event.thread, event.time_ns, 0, ""};
    if (event.type == SL_EVENT_allocator)
      read.number = static_cast<const sl_event_allocator *>(event.payload)->sequence;
    if (event.type == SL_EVENT_range_mark) {
      auto mark = static_cast<const sl_event_range_mark *>(event.payload);
      read.number = mark->value;
      read.text = sl_log_string(log, mark->name);
    }
    if (event.type == SL_EVENT_gap) {
      auto gap = static_cast<const sl_event_gap *>(event.payload);
      read.number = gap->lost;
      read.text = std::string(sl_log_string(log, gap->source)) + ": " + sl_log_string(log, gap->reason);
    }
    if (event.type == SL_EVENT_string)
      read.text = sl_log_string(log, static_cast<const sl_event_string *>(event.payload)->id);
    (event.thread == 0 ? out.definitions : out.events).push_back(read);
  }
  sl_log_counts(log, &out.counts);
  out.bytes_read = sl_log_bytes_read(log);
  EXPECT_EQ(sl_log_close(log), nullptr);
  return out;
}

std::string slurp(const fs::path &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void spill(const fs::path &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class LogReader : public testing::Test {
protected:
  void SetUp() override {
    /* Thousands of small files: in memory where that is to be had. */
    std::string name = fs::exists("/dev/shm") ? "/dev/shm" : "/tmp";
    name += "/shardledger-reader-XXXXXX";
    ASSERT_NE(mkdtemp(&name[0]), nullptr);
    root = name;
    directory = root / "host-1-1";
  }
  void TearDown() override {
    fs::remove_all(root);
  }

  /* Three threads that take turns, four events each, one segment each. */
  void build_small(LogBuilder::Files files) {
    LogBuilder log(directory);
    log.info("rank", "3");
    for (uint64_t i = 0; i < 4; i++)
      for (uint32_t thread = 1; thread <= 3; thread++)
        log.thread(thread).at(START + i * 10 + thread).range_mark("mark", 0, i);
    log.finish(files);
  }
  std::vector<Read> marks(uint32_t thread) const {
    std::vector<Read> out;
    for (uint64_t i = 0; i < 4; i++)
      out.push_back({SL_EVENT_range_mark, thread, START + i * 10 + thread, i, "mark"});
    return out;
  }

  static constexpr uint64_t START = 1'000'000'000'000'000'000;
  fs::path root, directory;
};

/* ---- whole logs ---- */

TEST_F(LogReader, GivesDefinitionsFirstThenAllThreadsByTime) {
  build_small(LogBuilder::Files::raw);
  Log log = read(directory);
  ASSERT_EQ(log.opened, 0) << log.error;
  EXPECT_EQ(log.ended, 0);
  ASSERT_EQ(log.events.size(), 12u);
  for (size_t i = 0; i < 12; i++)
    EXPECT_EQ(log.events[i].time, START + i / 3 * 10 + i % 3 + 1);
  EXPECT_EQ(log.events[0].text, "mark");
  EXPECT_EQ(log.definitions.size(), 6u) << "rank, 3, info; mark, shardledger, domain";
  EXPECT_EQ(log.counts.events, 18u);
  EXPECT_EQ(log.counts.lost, 0u);
  EXPECT_EQ(log.counts.damaged_segments, 0u);
  EXPECT_EQ(log.counts.segments, 4u);
  EXPECT_EQ(log.bytes_read, log.counts.bytes);
}

TEST_F(LogReader, ReadsSealedSegmentsAsItReadsRawOnes) {
  build_small(LogBuilder::Files::raw);
  Log raw = read(directory);
  fs::remove_all(directory);
  build_small(LogBuilder::Files::sealed);
  Log sealed = read(directory);
  EXPECT_EQ(raw.events, sealed.events);
  EXPECT_EQ(raw.definitions, sealed.definitions);
}

TEST_F(LogReader, TakesASegmentOnceThatIsThereRawAndSealed) {
  build_small(LogBuilder::Files::both);
  Log log = read(directory);
  EXPECT_EQ(log.events.size(), 12u);
  EXPECT_EQ(log.counts.segments, 4u);
  EXPECT_EQ(log.bytes_read, log.counts.bytes);
}

TEST_F(LogReader, FindsInfosByKeyAndTheLastOneCounts) {
  LogBuilder(directory).info("rank", "1").info("world_size", "8").info("rank", "2").finish();
  sl_log *log;
  sl_error error;
  ASSERT_EQ(sl_log_open(directory.c_str(), &log, &error), 0);
  EXPECT_STREQ(sl_log_info(log, "rank"), "2");
  EXPECT_STREQ(sl_log_info(log, "world_size"), "8");
  EXPECT_EQ(sl_log_info(log, "no_such_key"), nullptr);
  EXPECT_STREQ(sl_log_string(log, 0), "");
  EXPECT_STREQ(sl_log_string(log, 99), "");
  EXPECT_STREQ(sl_log_string(log, UINT32_MAX), "");
  sl_log_close(log);
}

TEST_F(LogReader, KeepsTheOrderOfAThreadWhenItsClockGoesBack) {
  LogBuilder builder(directory);
  builder.thread(1).at(START + 100).range_mark("a", 0, 0).at(START + 50).range_mark("b", 0, 1);
  builder.thread(1).at(START - 1'000'000).range_mark("c", 0, 2).at(START + 200).range_mark("d", 0, 3);
  builder.thread(2).at(START + 150).range_mark("e", 0, 4);
  builder.finish();
  Log log = read(directory);
  EXPECT_EQ(log.numbers(SL_EVENT_range_mark), (std::vector<uint64_t>{0, 1, 2, 4, 3}));
  EXPECT_EQ(log.of_thread(1)[2].time, START + 100);
}

TEST_F(LogReader, FollowsTimesThatAreFarApart) {
  LogBuilder builder(directory);
  builder.thread(1).at(START).range_mark("a", 0, 0);
  builder.thread(1).at(START + 3'600'000'000'000).range_mark("b", 0, 1);
  builder.finish();
  EXPECT_EQ(read(directory).events[1].time, START + 3'600'000'000'000);
}

TEST_F(LogReader, MergesThreadsOfManySegments) {
  {
    LogBuilder builder(directory);
    for (uint64_t i = 0; i < 100'000; i++)
      builder.thread(1 + i * 7 % 5).at(START + i).range_mark("mark", 0, i);
  }
  Log log = read(directory);
  ASSERT_EQ(log.events.size(), 100'000u);
  for (uint64_t i = 0; i < 100'000; i++)
    ASSERT_EQ(log.events[i].number, i);
  EXPECT_GT(log.counts.segments, 10u);
}

/* ---- allocator events ---- */

TEST_F(LogReader, ReadsTheSameWhenMemoryHasRoomForPartsOfSegmentsOnly) {
  for (LogBuilder::Files files : {LogBuilder::Files::raw, LogBuilder::Files::sealed}) {
    for (int damage = 0; damage < 2; damage++) {
      fs::remove_all(directory);
      {
        LogBuilder log(directory);
        log.info("rank", "3");
        for (uint64_t i = 0; i < 40000; i++) {
          auto &thread = log.thread(1 + (uint32_t)(i * 7919 % 5)).at(START + i * 100);
          if (i % 10 == 0)
            thread.allocator(SL_ALLOC, 0x1000 * i, 512);
          else if (i % 1000 == 1)
            thread.append(sl_event_range_payload{1, 1000, 0}, std::string(1000, 'p'));
          else
            thread.range_mark("mark", 0, i);
        }
        log.finish(files);
      }
      for (const auto &file : fs::directory_iterator(directory))
        if (damage && fs::file_size(file) > 100000)
          fs::resize_file(file, fs::file_size(file) - 50001);
      const Log whole = read(directory), parts = read(directory, nullptr, 0);
      ASSERT_EQ(whole.opened, 0);
      EXPECT_GT(whole.events.size(), 15000u);
      EXPECT_TRUE(whole.events == parts.events) << whole.events.size() << " and " << parts.events.size();
      EXPECT_EQ(whole.counts.damaged_segments, parts.counts.damaged_segments);
      EXPECT_EQ(whole.counts.skipped_bytes, parts.counts.skipped_bytes);
      EXPECT_EQ(whole.counts.segments, parts.counts.segments);
      EXPECT_EQ(whole.bytes_read, parts.bytes_read);
      EXPECT_EQ(whole.counts.damaged_segments > 0, damage > 0);
    }
  }
}

TEST_F(LogReader, OrdersAllocatorEventsOfADeviceBySequenceAgainstTheirTimes) {
  LogBuilder builder(directory);
  builder.thread(1).at(START + 200).allocator(SL_ALLOC, 1, 1);
  builder.thread(2).at(START + 100).allocator(SL_ALLOC, 2, 1).range_mark("behind", 0, 7);
  builder.thread(1).at(START + 300).allocator(SL_ALLOC, 3, 1);
  builder.finish();
  Log log = read(directory);
  EXPECT_EQ(log.numbers(SL_EVENT_allocator), (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(log.of_thread(2)[1].number, 7u) << "a thread's own order stays";
  EXPECT_EQ(log.counts.lost, 0u);
}

TEST_F(LogReader, OrdersEachDeviceByItself) {
  LogBuilder builder(directory);
  builder.thread(1).at(START + 1).allocator(SL_ALLOC, 1, 1, 0);
  builder.thread(2).at(START + 2).allocator(SL_ALLOC, 1, 1, 1);
  builder.thread(1).at(START + 3).allocator(SL_ALLOC, 1, 1, 1);
  builder.thread(2).at(START + 4).allocator(SL_ALLOC, 1, 1, 0);
  builder.finish();
  Log log = read(directory);
  EXPECT_EQ(log.numbers(SL_EVENT_allocator), (std::vector<uint64_t>{0, 0, 1, 1}));
  EXPECT_EQ(log.counts.lost, 0u);
}

TEST_F(LogReader, ReportsAHoleInTheSequenceAsAGapAndGoesOn) {
  LogBuilder builder(directory);
  builder.thread(1).at(START).allocator(SL_ALLOC, 1, 1);
  builder.sequence(0) += 5;
  builder.thread(1).at(START + 1).allocator(SL_ALLOC, 2, 1).range_mark("after", 0, 9);
  builder.thread(2).at(START + 2).allocator(SL_ALLOC, 3, 1);
  builder.finish();
  Log log = read(directory);
  EXPECT_EQ(log.numbers(SL_EVENT_allocator), (std::vector<uint64_t>{0, 6, 7}));
  EXPECT_EQ(log.numbers(SL_EVENT_gap), (std::vector<uint64_t>{5}));
  EXPECT_EQ(log.events[1].text, "allocator: allocator events are missing from their sequence");
  EXPECT_EQ(log.counts.lost, 5u);
}

TEST_F(LogReader, DoesNotHoldTheOtherThreadsBackBehindAHole) {
  LogBuilder builder(directory);
  builder.sequence(0) = 1;
  builder.thread(1).at(START).allocator(SL_ALLOC, 1, 1);
  for (uint64_t second = 0; second < 10; second++)
    builder.thread(2).at(START + second * 1'000'000'000).range_mark("mark", 0, second);
  builder.finish();
  Log log = read(directory);
  ASSERT_EQ(log.events.size(), 12u);
  EXPECT_EQ(log.events[1].type, SL_EVENT_gap);
  EXPECT_EQ(log.events[2].type, SL_EVENT_allocator);
}

TEST_F(LogReader, GivesAnAllocatorEventThatComesAfterItsHoleWasGivenUp) {
  LogBuilder builder(directory);
  builder.sequence(0) = 1;
  builder.thread(1).at(START).allocator(SL_ALLOC, 1, 1);
  builder.sequence(0) = 0;
  builder.thread(2).at(START + 60'000'000'000).allocator(SL_ALLOC, 2, 1);
  builder.finish();
  EXPECT_EQ(read(directory).numbers(SL_EVENT_allocator), (std::vector<uint64_t>{1, 0}));
}

TEST_F(LogReader, GivesAllocatorEventsWithoutAPlaceByTime) {
  LogBuilder builder(directory);
  builder.thread(1).at(START + 2).append(sl_event_allocator{1, 1, 5, 0, SL_ALLOC, 0});
  builder.thread(2).at(START + 1).append(sl_event_allocator{1, 1, 9, 0, SL_ALLOC, 0});
  builder.finish();
  EXPECT_EQ(read(directory).numbers(SL_EVENT_allocator), (std::vector<uint64_t>{9, 5}));
}

/* ---- losses and damage ---- */

TEST_F(LogReader, AddsUpWhatGapsSay) {
  LogBuilder builder(directory);
  builder.thread(1).at(START).gap("log", "no segment was ready", 40).gap("nvtx", "too deep", 2);
  builder.finish();
  EXPECT_EQ(read(directory).counts.lost, 42u);
}

TEST_F(LogReader, ReportsAMissingSegmentAsAGap) {
  LogBuilder builder(directory);
  builder.thread(1).at(START).range_mark("a", 0, 0).cut().range_mark("b", 0, 1).cut().range_mark("c", 0, 2);
  builder.finish();
  ASSERT_TRUE(fs::remove(directory / "00000002.slog")) << "definitions are 0, a is 1";
  Log log = read(directory);
  EXPECT_EQ(log.numbers(SL_EVENT_range_mark), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(log.events[1].text, "log: a segment of the log is missing");
  EXPECT_EQ(log.counts.damaged_segments, 1u);
}

TEST_F(LogReader, FallsBackToTheRawFileOfADamagedFrame) {
  build_small(LogBuilder::Files::both);
  std::string sealed = slurp(directory / SL_SEALED_NAME);
  sealed[sealed.size() - 5] ^= 1;
  spill(directory / SL_SEALED_NAME, sealed);
  Log log = read(directory);
  EXPECT_EQ(log.events.size(), 12u);
  EXPECT_EQ(log.counts.damaged_segments, 0u);
}

TEST_F(LogReader, TakesNothingForGoneThatItIsShortOfDescriptorsFor) {
  for (auto files : {LogBuilder::Files::raw, LogBuilder::Files::sealed}) {
    fs::remove_all(directory);
    build_small(files);
    rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    const int next = dup(0);
    close(next);
    const rlimit two = {static_cast<rlim_t>(next) + 2, before.rlim_max}; /* for the directory and its listing */
    setrlimit(RLIMIT_NOFILE, &two);
    Log log = read(directory);
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(log.opened, -SL_LOG_UNREADABLE);
    EXPECT_NE(log.error.find("Too many open files"), std::string::npos) << log.error;
  }
}

/* Cuts or changes one thread's file everywhere: the others stay whole, of that one a prefix of the truth is read. */
void expect_prefix(const std::vector<Read> &all, const std::vector<Read> &some, size_t at) {
  ASSERT_LE(some.size(), all.size()) << "byte " << at;
  for (size_t i = 0; i < some.size(); i++)
    ASSERT_EQ(some[i], all[i]) << "byte " << at;
}

TEST_F(LogReader, ReadsWhatIsLeftOfARawSegmentCutAtAnyByte) {
  build_small(LogBuilder::Files::raw);
  const fs::path path = directory / "00000002.slog";
  const std::string whole = slurp(path);
  size_t most = 0;
  for (size_t cut = 0; cut <= whole.size(); cut++) {
    spill(path, whole.substr(0, cut));
    Log log = read(directory);
    ASSERT_EQ(log.of_thread(1), marks(1)) << "byte " << cut;
    ASSERT_EQ(log.of_thread(3), marks(3)) << "byte " << cut;
    auto left = log.of_thread(2, SL_EVENT_range_mark);
    expect_prefix(marks(2), left, cut);
    ASSERT_GE(left.size(), most);
    most = left.size();
    const bool at_record = cut == 0 || (cut >= 64 && (cut - 64) % 24 == 0);
    ASSERT_EQ(log.counts.damaged_segments, at_record ? 0u : 1u) << "byte " << cut;
  }
  EXPECT_EQ(most, 4u);
}

TEST_F(LogReader, ReadsTheOtherFramesOfASealedFileCutAtAnyByte) {
  build_small(LogBuilder::Files::sealed);
  const fs::path path = directory / SL_SEALED_NAME;
  const std::string whole = slurp(path);
  size_t most = 0;
  for (size_t cut = 0; cut <= whole.size(); cut++) {
    spill(path, whole.substr(0, cut));
    Log log = read(directory);
    if (log.opened < 0)
      continue;
    for (uint32_t thread = 1; thread <= 3; thread++)
      if (!log.of_thread(thread, SL_EVENT_range_mark).empty()) {
        ASSERT_EQ(log.of_thread(thread), marks(thread)) << "byte " << cut;
      }
    ASSERT_GE(log.events.size(), most);
    most = log.events.size();
  }
  EXPECT_EQ(most, 12u);
}

TEST_F(LogReader, ReadsTheOtherSegmentsWhenAnyBitIsWrong) {
  for (auto files : {LogBuilder::Files::raw, LogBuilder::Files::sealed}) {
    fs::remove_all(directory);
    build_small(files);
    for (const auto &file : fs::directory_iterator(directory)) {
      const std::string whole = slurp(file.path());
      for (size_t bit = 0; bit < whole.size() * 8; bit++) {
        std::string changed = whole;
        changed[bit / 8] ^= (char)(1 << bit % 8);
        spill(file.path(), changed);
        Log log = read(directory);
        ASSERT_EQ(log.opened, 0) << log.error;
        int whole_threads = 0;
        for (uint32_t thread = 1; thread <= 3; thread++) {
          auto left = log.of_thread(thread, SL_EVENT_range_mark);
          expect_prefix(marks(thread), left, bit / 8);
          whole_threads += left.size() == 4;
        }
        ASSERT_GE(whole_threads, 2) << file.path() << " byte " << bit / 8;
        ASSERT_EQ(log.counts.damaged_segments, 1u) << file.path() << " byte " << bit / 8;
      }
      spill(file.path(), whole);
    }
  }
}

TEST_F(LogReader, ReadsFramesBehindGarbage) {
  build_small(LogBuilder::Files::sealed);
  std::string sealed = slurp(directory / SL_SEALED_NAME);
  spill(directory / SL_SEALED_NAME, std::string(100'000, 'x') + "SLOZ" + sealed);
  Log log = read(directory);
  EXPECT_EQ(log.events.size(), 12u);
  EXPECT_GT(log.counts.damaged_segments, 0u);
}

TEST_F(LogReader, FollowsNoLinks) {
  build_small(LogBuilder::Files::raw);
  const size_t events = read(directory).events.size();
  const fs::path elsewhere = directory.string() + ".elsewhere";
  fs::rename(directory / "00000001.slog", elsewhere);
  fs::create_symlink(elsewhere, directory / "00000001.slog");
  Log log = read(directory);
  EXPECT_LT(log.events.size(), events);
  EXPECT_GT(log.counts.damaged_segments, 0u);
  fs::remove(elsewhere);
}

TEST_F(LogReader, CleansNamesThatAWriterWouldNotHaveWritten) {
  LogBuilder builder(directory);
  builder.thread(1).at(START).range_mark(std::string("a\0b\xff\x1b[31m", 8), 0, 0);
  builder.finish();
  EXPECT_EQ(read(directory).events[0].text, "a?b\xef\xbf\xbd?[31");
}

TEST_F(LogReader, IgnoresAStringIdThatNoWriterGives) {
  LogBuilder builder(directory);
  builder.define(sl_event_string{UINT32_MAX, 1}, "x").define(sl_event_string{0, 1}, "y");
  builder.thread(1).at(START).range_mark("mark", 0, 0);
  builder.finish();
  EXPECT_EQ(read(directory).events[0].text, "mark");
}

TEST_F(LogReader, LeavesOutSegmentsOfAnotherProcess) {
  build_small(LogBuilder::Files::raw);
  {
    LogBuilder other(root / "other", START - 1);
    other.process_key = 2;
    other.thread(4).range_mark("theirs", 0, 0);
  }
  fs::copy_file(root / "other" / "00000001.slog", directory / "0000000a.slog");
  Log log = read(directory);
  EXPECT_EQ(log.events.size(), 12u);
  EXPECT_EQ(log.counts.damaged_segments, 1u);
}

/* ---- logs that can't be opened, and those still being written ---- */

TEST_F(LogReader, SaysWhatIsWrongWithADirectory) {
  EXPECT_EQ(read(root / "none").opened, -ENOENT);
  fs::create_directories(directory);
  EXPECT_EQ(read(directory).opened, -ENODATA);
  spill(directory / "00000000.slog", "this is not a log, but long enough to look like the header of a segment, is it?");
  Log log = read(directory);
  EXPECT_EQ(log.opened, -EBADMSG);
  EXPECT_NE(log.error.find(directory.string()), std::string::npos);
}

TEST_F(LogReader, RefusesALogOfANewerVersionInWords) {
  for (int newer : {1, 2, 3}) {
    fs::remove_all(directory);
    LogBuilder builder(directory);
    builder.thread(1).range_mark("mark", 0, 0);
    (newer == 3 ? builder.frame_version : builder.segment_version) = 2;
    builder.finish(newer == 1 ? LogBuilder::Files::raw : LogBuilder::Files::sealed);
    Log log = read(directory);
    EXPECT_EQ(log.opened, -EPROTO);
    EXPECT_NE(log.error.find("newer version (log version 2; this one reads 1)"), std::string::npos) << log.error;
  }
}

TEST_F(LogReader, IgnoresSegmentsThatNoThreadHasTaken) {
  build_small(LogBuilder::Files::raw);
  sl_segment_header ready = {};
  ready.magic = SL_SEGMENT_MAGIC;
  ready.version = SL_LOG_VERSION;
  spill(directory / "000000ff.slog", std::string((const char *)&ready, sizeof(ready)) + std::string(4096, '\0'));
  spill(directory / "00000100.slog", "");
  Log log = read(directory);
  EXPECT_EQ(log.events.size(), 12u);
  EXPECT_EQ(log.counts.damaged_segments, 0u);
}

TEST_F(LogReader, FindsASegmentThatIsSealedWhileItReads) {
  build_small(LogBuilder::Files::sealed);
  const std::string sealed = slurp(directory / SL_SEALED_NAME);
  fs::remove_all(directory);
  build_small(LogBuilder::Files::raw);
  Log log = read(directory, [&] {
    spill(directory / SL_SEALED_NAME, sealed);
    for (const char *name : {"00000001.slog", "00000002.slog", "00000003.slog"})
      fs::remove(directory / name);
  });
  EXPECT_EQ(log.events.size(), 12u);
  EXPECT_EQ(log.counts.damaged_segments, 0u);
}

TEST_F(LogReader, SaysThatALogChangesFasterThanItCanBeRead) {
  build_small(LogBuilder::Files::raw);
  const fs::path dropped = directory / SL_DROPPED_NAME;
  spill(dropped, "");
  std::atomic<bool> done = false;
  std::thread writer([&] { /* as if it were replaced again and again */
                           for (timespec times[2] = {{0, UTIME_OMIT}, {1, 0}}; !done;
                                times[1].tv_nsec = (times[1].tv_nsec + 1) % 1'000'000'000)
                             utimensat(AT_FDCWD, dropped.c_str(), times, 0);
  });
  bool seen = false;
  for (int i = 0; i < 10'000 && !seen; i++) {
    sl_log *log = nullptr;
    sl_error error = {};
    const int r = sl_log_open(directory.c_str(), &log, &error);
    seen = r == -EAGAIN;
    EXPECT_EQ(r, seen ? -EAGAIN : 0) << error.text;
    if (seen) {
      EXPECT_NE(strstr(error.text, "ask again"), nullptr) << error.text;
    }
    sl_log_close(log);
  }
  done = true;
  writer.join();
}

TEST_F(LogReader, StopsAtWhatIsNotCommittedYet) {
  build_small(LogBuilder::Files::raw);
  const fs::path path = directory / "00000001.slog";
  std::string live = slurp(path);
  memset(&live[64 + 2 * 24], 0, 8); /* the third record's commit word is not there yet, its payload is */
  spill(path, live + std::string(4096, '\0'));
  Log log = read(directory);
  EXPECT_EQ(log.of_thread(1).size(), 2u);
  EXPECT_EQ(log.counts.damaged_segments, 0u);
}

} // namespace
