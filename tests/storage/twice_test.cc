// What a log says twice, or in another order than it should: a ledger is made of it all the same, and says what it did.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;
constexpr uint64_t kMiB = 1 << 20;

class Twice : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("twice-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
    output = directory / "ledger.sqlite";
  }
  void TearDown() override {
    fs::remove_all(directory);
  }
  void build() {
    sl_error note{}, error{};
    EXPECT_EQ(sl_ledger_build(directory.c_str(), output.c_str(), nullptr, &note, &error), 0) << error.text;
  }
  Rows rows(const std::string &sql) {
    return ledger_rows(output, sql);
  }
  // Steps with these numbers, each with an allocation of its own size.
  void steps(LogBuilder &log, const std::vector<uint64_t> &numbers, bool pushed = false) {
    auto &t = log.thread(1);
    uint64_t at = 100, id = 1;
    t.at(at).allocator(SL_SEGMENT_ALLOC, 0x1000000, 64 * kMiB);
    for (uint64_t number : numbers) {
      t.at(at += 10);
      if (pushed)
        t.range_push("step", SL_KIND_step, number);
      else
        t.range_start(id, "step", SL_KIND_step, number);
      t.at(at += 10).allocator(SL_ALLOC, 0x1000000, id * kMiB);
      t.at(at += 5).allocator(SL_FREE_REQUESTED, 0x1000000, id * kMiB);
      t.allocator(SL_FREE_COMPLETED, 0x1000000, id * kMiB).at(at += 10);
      if (pushed)
        t.range_pop();
      else
        t.range_end(id);
      id++;
    }
    t.process_end();
  }

  fs::path directory, output;
};

TEST_F(Twice, AStepWhoseNumberIsNotAboveThoseBeforeItGetsTheNextOne) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    steps(log, {0, 1, 2, 0, 1, 2, 9, 3});
  }
  build();
  EXPECT_EQ(rows("SELECT step, peak_allocated_bytes >> 20 FROM step ORDER BY start_ns"),
            (Rows{"0|1", "1|2", "2|3", "3|4", "4|5", "5|6", "9|7", "10|8"}));
  EXPECT_EQ(rows("SELECT step, recorded FROM renumbered_step"), (Rows{"3|0", "4|1", "5|2", "10|3"}));
  EXPECT_EQ(rows("SELECT step, bytes >> 20 FROM allocation ORDER BY alloc_ns"),
            (Rows{"0|1", "1|2", "2|3", "3|4", "4|5", "5|6", "9|7", "10|8"}))
      << "what is within a step has the step's new number";
  EXPECT_EQ(rows("SELECT step FROM phase WHERE kind = 'step' ORDER BY start_ns"),
            (Rows{"0", "1", "2", "3", "4", "5", "9", "10"}));
  EXPECT_EQ(rows("SELECT steps, first_step, last_step FROM rank_steps"), (Rows{"8|0|10"}));
  EXPECT_EQ(ledger_contradictions(output), Rows{});
}

TEST_F(Twice, ALoopThatAlwaysGivesTheSameNumberHasAllItsSteps) {
  for (bool pushed : {false, true}) {
    fs::remove_all(directory);
    {
      LogBuilder log(directory / "host-1-1", 50);
      steps(log, {0, 0, 0, 0}, pushed);
    }
    build();
    EXPECT_EQ(rows("SELECT step FROM step ORDER BY start_ns"), (Rows{"0", "1", "2", "3"}));
    EXPECT_EQ(rows("SELECT count(*) FROM renumbered_step"), Rows{"3"});
  }
}

TEST_F(Twice, WhatIsNoStepNumberIsRenumberedToo) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    steps(log, {UINT64_MAX, 1ull << 63, 7, (1ull << 53) - 1, (1ull << 53) - 1});
  }
  build();
  EXPECT_EQ(rows("SELECT step FROM step ORDER BY start_ns"),
            (Rows{"0", "1", "7", "9007199254740991", "9007199254740992"}));
  EXPECT_EQ(rows("SELECT recorded FROM renumbered_step ORDER BY step"),
            (Rows{"-1", "-9223372036854775808", "9007199254740991"}));
}

TEST_F(Twice, NumbersThatGoUpStayAsTheyAre) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    steps(log, {1000, 1001, 3000000000});
  }
  build();
  EXPECT_EQ(rows("SELECT step FROM step ORDER BY start_ns"), (Rows{"1000", "1001", "3000000000"}));
  EXPECT_EQ(rows("SELECT count(*) FROM renumbered_step"), Rows{"0"});
}

TEST_F(Twice, StepsWithinStepsAreTwo) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &t = log.thread(1);
    t.at(100).range_start(1, "step", SL_KIND_step, 0).at(110).range_start(2, "step", SL_KIND_step, 0);
    t.at(120).range_end(1).at(130).range_end(2).process_end();
  }
  build();
  EXPECT_EQ(rows("SELECT step FROM step"), (Rows{"0", "1"}));
}

TEST_F(Twice, OfModulesWithOneIdTheLastCountsAndTheOthersAreSaid) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model").module(2, 1, "a", "Linear").module(2, 1, "a", "Linear", 0, 1, 4096);
    log.module(1, 0, "", "Other").module(0, 0, "none", "None").module(0, 0, "none", "None");
    log.module(7, 1, "far", "Linear").module(7, 1, "farther", "Linear").module(0xfffffff0, 1, "farthest", "Linear");
    auto &t = log.thread(1);
    t.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 64 * kMiB).range_start(1, "step", SL_KIND_step, 0);
    for (uint32_t module : {2u, 7u, 0xfffffff0u, 0xffffff00u})
      t.range_push("f", SL_KIND_forward, module)
          .allocator(SL_ALLOC, 0x1000000, kMiB)
          .tag(0x1000000, "mine", module)
          .allocator(SL_FREE_REQUESTED, 0x1000000, kMiB)
          .allocator(SL_FREE_COMPLETED, 0x1000000, kMiB)
          .range_pop();
    t.range_end(1).process_end();
  }
  build();
  EXPECT_EQ(rows("SELECT id, fqn, class, param_bytes FROM module ORDER BY id"),
            (Rows{"1||Other|0", "2|a|Linear|4096", "7|farther|Linear|0", "4294967280|farthest|Linear|0"}));
  EXPECT_EQ(rows("SELECT source, lost FROM gap"), Rows{"modules|2"});
  EXPECT_EQ(rows("SELECT module_id, own_bytes FROM peak WHERE module_id AND phase = 'forward' ORDER BY module_id"),
            (Rows{"2|1048576", "7|1048576", "4294967040|1048576", "4294967280|1048576"}));
}

TEST_F(Twice, RanksThatIdsHaveNoRoomForAreNone) {
  for (const char *rank : {"0", "16777216", "99999999999999999999"}) {
    LogBuilder log(directory / (std::string("host-") + rank), 50);
    log.info("rank", rank);
    steps(log, {0});
  }
  build();
  EXPECT_EQ(rows("SELECT rank FROM rank"), Rows{"0"});
}

// Every definition and event that has an id, or belongs to a table with a key, twice, and with another content.
TEST_F(Twice, NothingThatIsRecordedTwiceIsRefused) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    for (const std::string again : {"", " again"}) {
      log.info("rank", "0").info("host", "host" + again).info("device", again.empty() ? "0" : "1");
      log.define(sl_event_string{1, 3}, "one").define(sl_event_string{0, 3}, "two");
      log.device(0, "GPU" + again, 1000 * kMiB, "uuid").source_state("nvtx", "on", again);
      log.module(1, 0, "m" + again, "M").module(2, 1, "m.n", "N");
      const uint32_t name = log.string("name" + again);
      log.define(sl_event_nvtx_domain{3, name}).define(sl_event_nvtx_category{3, 1, name, 0});
      log.define(sl_event_thread_name{1001, name});
      log.define(sl_event_allocator_place{5, again.empty() ? 0u : 1u, 7, 0, 0});
      log.define(sl_event_nvtx_schema_entry{1 << 24, 1, 0, 3, name, name, 0});
      auto &t = log.thread(1);
      t.at(again.empty() ? 100 : 200);
      const uint32_t library = log.string("libnccl.so"), api = log.string("cuMemAlloc_v2");
      t.allocator(SL_SEGMENT_ALLOC, 0x1000000, 40 * kMiB).allocator(SL_SEGMENT_ALLOC, 0x1000000, 40 * kMiB);
      t.range_start(1, "step", SL_KIND_step, 0).range_start(1, "also a step", SL_KIND_step, 0);
      for (int i = 0; i < 2; i++) {
        t.range_push("m", SL_KIND_forward, 1).allocator(SL_ALLOC, 0x1000000, kMiB).tag(0x1000000, "mine", 1);
        t.allocator(SL_OUT_OF_MEMORY, 30 * kMiB, 64 * kMiB);
        t.append(sl_event_driver_failure{kMiB, library, api, 2, 0});
        t.append(sl_event_driver_allocation{0x9000000, kMiB, 0, library, api, 0, SL_MEMORY_DEVICE});
        t.append(sl_event_context{1, 0, 1}).append(sl_event_gpu_module{1000, 1, 0, 1});
        t.append(sl_event_device_sample{1000 * kMiB, 500 * kMiB, 0, 0});
        t.append(sl_event_process_memory{100 * kMiB, 0, 0, 0});
        t.append(sl_event_nccl_communicator{77, 2, (uint32_t)i, name, 0});
        t.append(sl_event_nccl_call{77, 0, 100, 0x1000000, 0, log.string("AllGather"), log.string("ncclFloat32"), name,
                                    name, 0, 1, 0});
        t.append(sl_event_kernel{150, 160, log.string("ncclDevKernel_AllGather"), 9, 1, 0, 0});
        t.append(sl_event_memory_copy{150, 160, 10, 9, 1, 0, 1, 0, 0, 0, 0});
        t.append(sl_event_memory_set{150, 160, 10, 9, 1, 0, 0, 0});
        t.append(sl_event_launch{9, 0}).append(sl_event_allocator_stats{0, 0, 0, 0, log.sequence(0), 0});
        t.range_push("backward", SL_KIND_backward, 0).range_push("m", SL_KIND_backward, 1).range_pop().range_pop();
        t.range_push("o", SL_KIND_optimizer_step, 1).range_pop();
        t.allocator(SL_FREE_REQUESTED, 0x1000000, kMiB).allocator(SL_FREE_COMPLETED, 0x1000000, kMiB).range_pop();
        t.gap("log", "the same", 1);
      }
      t.range_end(1).range_end(1).process_end();
    }
  }
  build();
  EXPECT_EQ(rows("SELECT count(*) FROM rank"), Rows{"1"});
  EXPECT_EQ(rows("SELECT count(*) = count(DISTINCT step), count(*) > 1 FROM step"), Rows{"1|1"});
  EXPECT_EQ(rows("SELECT count(*) FROM communicator"), Rows{"1"});
  EXPECT_EQ(rows("SELECT fqn FROM module ORDER BY id"), (Rows{"m again", "m.n"}));
  EXPECT_EQ(rows("SELECT device_name FROM rank"), Rows{"GPU again"});
}

} // namespace
