// Logs of other versions: a newer one's are read as far as they are understood, today's for ever.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"
#include "plugin/format/log_format.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/log/log_reader.h"
}

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
constexpr uint8_t UNKNOWN = 200, UNKNOWN_TOO = 201;
constexpr uint64_t START = 1'000'000'000'000'000'000;

class LogVersions : public ::testing::TestWithParam<LogBuilder::Files> {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("versions-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  struct Event {
    int type;
    uint32_t thread, bytes;
    std::string payload;
  };
  // All events, definitions included.
  std::vector<Event> read() {
    std::vector<Event> out;
    sl_log *log = nullptr;
    sl_error error{};
    EXPECT_EQ(sl_log_open((directory / "host-1-1").c_str(), &log, &error), 0) << error.text;
    sl_event event;
    while (log && sl_log_next(log, &event, &error) > 0)
      out.push_back({event.type, event.thread, event.bytes, std::string((const char *)event.payload, event.bytes)});
    if (log)
      sl_log_counts(log, &counts);
    sl_log_close(log);
    return out;
  }
  // Values of marks, which stand between what is not understood.
  static std::vector<uint64_t> marks(const std::vector<Event> &events) {
    std::vector<uint64_t> out;
    for (const Event &event : events)
      if (event.type == SL_EVENT_range_mark)
        out.push_back(reinterpret_cast<const sl_event_range_mark *>(event.payload.data())->value);
    return out;
  }

  fs::path directory;
  struct sl_log_counts counts = {};
};

using Numbers = std::vector<uint64_t>;

TEST_P(LogVersions, EventsOfUnknownTypesAreSkippedAndCounted) {
  {
    LogBuilder log(directory / "host-1-1");
    const std::string fields(2000, 'x');
    log.definitions().append_bytes(UNKNOWN_TOO, fields.data(), 16, "");
    auto &t = log.thread(1);
    t.range_mark("m", 0, 1).append_bytes(UNKNOWN, fields.data(), 8, "").range_mark("m", 0, 2);
    t.append_bytes(UNKNOWN, fields.data(), 2000, "").append_bytes(UNKNOWN, nullptr, 0, "").range_mark("m", 0, 3);
    log.finish(GetParam());
  }
  EXPECT_EQ(marks(read()), (Numbers{1, 2, 3}));
  EXPECT_EQ(counts.newer_records, 4u);
  EXPECT_EQ(counts.newer_kinds, 2u);
  EXPECT_EQ(counts.damaged_segments, 0u);
  EXPECT_EQ(counts.lost, 0u);
}

TEST_P(LogVersions, FieldsThatAreNotKnownAreNotLookedAt) {
  struct {
    sl_event_range_mark mark;
    uint64_t more[5];
  } longer{{0, 0, 0, 42}, {1, 2, 3, 4, 5}};
  {
    LogBuilder log(directory / "host-1-1");
    log.thread(1).append_bytes(SL_EVENT_range_mark, &longer, sizeof longer, "").range_mark("m", 0, 43);
    log.finish(GetParam());
  }
  EXPECT_EQ(marks(read()), (Numbers{42, 43}));
  EXPECT_EQ(counts.newer_records, 0u);
  EXPECT_EQ(counts.damaged_segments, 0u);
}

TEST_P(LogVersions, FieldsThatAnOlderVersionDidNotHaveAreZero) {
  const sl_event_nccl_call call{77, 5, 100, 0x1000, 0x2000, 1, 2, 3, 4, 0, 1, 0};
  {
    LogBuilder log(directory / "host-1-1");
    log.thread(1).append_bytes(SL_EVENT_nccl_call, &call, 24, "").append(call).range_mark("m", 0, 1);
    log.thread(1).append_bytes(SL_EVENT_process_end, nullptr, 0, "");
    log.finish(GetParam());
  }
  std::vector<Event> events;
  for (const Event &event : read())
    if (event.thread == 1)
      events.push_back(event);
  ASSERT_EQ(events.size(), 4u);
  sl_event_nccl_call shorter{};
  shorter.communicator = 77;
  shorter.sequence = 5;
  shorter.count = 100;
  ASSERT_EQ(events[0].bytes, sizeof shorter);
  EXPECT_EQ(memcmp(events[0].payload.data(), &shorter, sizeof shorter), 0);
  EXPECT_EQ(memcmp(events[1].payload.data(), &call, sizeof call), 0);
  EXPECT_EQ(events[3].type, SL_EVENT_process_end);
  EXPECT_EQ(events[3].payload, std::string(8, '\0'));
  EXPECT_EQ(counts.damaged_segments, 0u);
}

TEST_P(LogVersions, AnEventWithATailHasOneLengthForEver) {
  {
    LogBuilder log(directory / "host-1-1");
    const sl_event_range_payload payload{1, 4, 0};
    log.thread(1)
        .range_mark("m", 0, 1)
        .append(payload, "tail")
        .append_bytes(SL_EVENT_range_payload, &payload, 16, std::string(16, 'x'));
    log.thread(1).range_mark("m", 0, 2);
    log.thread(2).range_mark("m", 0, 3);
    log.finish(GetParam());
  }
  EXPECT_EQ(marks(read()), (Numbers{1, 3})) << "where it is longer nobody can tell where the tail begins: it is damage";
  EXPECT_EQ(counts.damaged_segments, 1u);
}

INSTANTIATE_TEST_SUITE_P(Files, LogVersions, ::testing::Values(LogBuilder::Files::raw, LogBuilder::Files::sealed),
                         [](const auto &info) { return info.param == LogBuilder::Files::raw ? "Raw" : "Sealed"; });

TEST_F(LogVersions, AnUnknownTypeWithAWrongCheckIsDamage) {
  {
    LogBuilder log(directory / "host-1-1");
    const uint64_t field = 1;
    log.thread(1).range_mark("m", 0, 1).append_bytes(UNKNOWN, &field, 8, "").range_mark("m", 0, 2);
  }
  for (const auto &file : fs::directory_iterator(directory / "host-1-1")) {
    std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    const std::string record{(char)UNKNOWN, 2};
    const size_t at = bytes.find(record, sizeof(sl_segment_header));
    if (at == std::string::npos)
      continue;
    stream.clear();
    stream.seekp((std::streamoff)at + 8);
    stream.put(2);
  }
  EXPECT_EQ(marks(read()), Numbers{1});
  EXPECT_EQ(counts.damaged_segments, 1u);
  EXPECT_EQ(counts.newer_records, 0u);
}

TEST_F(LogVersions, ALedgerSaysWhatItDidNotUnderstand) {
  {
    LogBuilder log(directory / "host-1-1");
    const uint64_t field = 1;
    auto &t = log.thread(1);
    t.at(START + 1).append_bytes(UNKNOWN, &field, 8, "").append_bytes(UNKNOWN, &field, 8, "");
    t.append_bytes(UNKNOWN_TOO, &field, 8, "").process_end();
  }
  sl_error note{}, error{};
  const std::string output = directory / "ledger.sqlite";
  ASSERT_EQ(sl_ledger_build(directory.c_str(), output.c_str(), nullptr, &note, &error), 0) << error.text;
  EXPECT_EQ(ledger_rows(output, "SELECT source, state, reason FROM source"),
            std::vector<std::string>{"log|newer|3 records of 2 kinds are of a newer version and were skipped"});
  EXPECT_EQ(ledger_rows(output, "SELECT events_lost, clean_exit FROM rank"), std::vector<std::string>{"0|1"});
}

// Recorded in November 2026 by version 1 of the log and its companion. It stays as it is.
TEST_F(LogVersions, ALogOfVersionOneIsReadWhole) {
  fs::copy(fs::path(SL_TEST_DATA) / "versions/1", directory, fs::copy_options::recursive);
  uint64_t events = 0;
  for (const auto &process : fs::directory_iterator(directory)) {
    if (!process.is_directory())
      continue;
    sl_log *log = nullptr;
    sl_error error{};
    ASSERT_EQ(sl_log_open(process.path().c_str(), &log, &error), 0) << error.text;
    sl_event event;
    while (sl_log_next(log, &event, &error) > 0)
      events++;
    sl_log_counts(log, &counts);
    EXPECT_EQ(counts.newer_records + counts.damaged_segments + counts.lost, 0u);
    sl_log_close(log);
  }
  EXPECT_EQ(events, 12741u + 12740u);
}

} // namespace
