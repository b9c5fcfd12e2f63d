// Allocations that were read from PyTorch's memory history at the end of their step, against the same ones told by the
// bridge as they happened.
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
constexpr uint64_t kMiB = 1 << 20, kMicrosecond = 1000;
using Rows = std::vector<std::string>;

enum Told { BY_BRIDGE, BY_HISTORY, BY_HISTORY_WITHOUT_TIMES };

/* A job whose allocations are told at once, or together at its steps' ends. Times are microseconds. */
class Job {
public:
  Job(const fs::path &directory, Told told) : log(directory, 50), told(told) {
    log.info("fidelity", told == BY_BRIDGE ? "bridge" : "history");
    log.device(0, "GPU", 1000 * kMiB).module(1, 0, "", "Model", SL_MODULE_ROOT, 0, 1024, 0);
    log.module(2, 1, "layer", "Linear", 0, 1, 1024, 0);
  }
  LogBuilder::Thread &main(uint64_t us) {
    return log.thread(1).at(us * kMicrosecond);
  }
  LogBuilder::Thread &autograd(uint64_t us) {
    return log.thread(2).at(us * kMicrosecond);
  }
  void allocator(LogBuilder::Thread &thread, uint64_t us, uint8_t action, uint64_t address, uint64_t bytes) {
    if (told == BY_BRIDGE)
      thread.at(us * kMicrosecond + 300).allocator(action, address, bytes); // the history has whole microseconds
    else
      entries.push_back({us * kMicrosecond + 500, action, address, bytes});
  }
  void free(LogBuilder::Thread &thread, uint64_t us, uint64_t address, uint64_t bytes) {
    allocator(thread, us, SL_FREE_REQUESTED, address, bytes);
    allocator(thread, us, SL_FREE_COMPLETED, address, bytes);
  }
  /* with_sites: each allocation has site 1, and the program's word for it. */
  void read_history(uint64_t us, bool with_sites = false) {
    auto &thread = log.thread(1).at(us * kMicrosecond);
    for (const Entry &entry : entries) {
      if (with_sites && entry.action == SL_ALLOC)
        thread.append(sl_event_allocator_site{sequence, 0, 1, 0})
            .append(sl_event_allocator_note{sequence, 0, log.string("pool"), 0});
      if (told == BY_HISTORY)
        thread.append(sl_event_allocator_time{entry.at_ns, sequence, 0});
      thread.allocator(entry.action, entry.address, entry.bytes);
      sequence++;
    }
    if (!entries.empty() && told == BY_HISTORY)
      thread.append(sl_event_allocator_told{us * kMicrosecond});
    entries.clear();
  }

  LogBuilder log;

private:
  struct Entry {
    uint64_t at_ns;
    uint8_t action;
    uint64_t address, bytes;
  };
  Told told;
  uint32_t sequence = 0;
  std::vector<Entry> entries;
};

class Past : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("past-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }
  Rows rows(const std::string &run, const std::string &sql) {
    sl_error note{}, error{};
    std::string output = directory / (run + ".sqlite");
    EXPECT_EQ(sl_ledger_build((directory / run).c_str(), output.c_str(), nullptr, &note, &error), 0) << error.text;
    return ledger_rows(output, sql);
  }
  fs::path directory;
};

void train_step(Job &job, uint64_t step) {
  const uint64_t t = 1000 * (step + 1), a = 0x10000000;
  auto &main = job.main(t), &autograd = job.autograd(t);
  const std::vector<std::pair<uint64_t, uint64_t>> segments = {{0, 32},   {32, 16},  {64, 4},  {96, 8},
                                                               {128, 24}, {192, 48}, {320, 12}};
  for (auto &[at, mib] : segments)
    if (step == 0)
      job.allocator(main, t, SL_SEGMENT_ALLOC, a + at * kMiB, mib * kMiB);
  job.main(t + 10).range_start(step + 1, "step", SL_KIND_step, step);
  job.main(t + 20).range_push("Model", SL_KIND_forward, 1);
  job.main(t + 30).range_push("layer", SL_KIND_forward, 2);
  job.allocator(main, t + 40, SL_ALLOC, a, 32 * kMiB);             // an activation
  job.allocator(main, t + 50, SL_ALLOC, a + 32 * kMiB, 16 * kMiB); // scratch of the layer
  job.free(main, t + 55, a + 32 * kMiB, 16 * kMiB);
  job.main(t + 60).range_pop();
  job.allocator(main, t + 65, SL_ALLOC, a + 64 * kMiB, 4 * kMiB); // the loss
  job.main(t + 70).range_pop();
  job.main(t + 100).range_push("backward", SL_KIND_backward, 0);
  job.autograd(t + 110).range_push("hook of the layer", SL_KIND_record_function, 0);
  job.allocator(autograd, t + 120, SL_ALLOC, a + 96 * kMiB, 8 * kMiB); // scratch
  job.free(autograd, t + 125, a + 96 * kMiB, 8 * kMiB);
  job.autograd(t + 130).range_pop();
  job.allocator(autograd, t + 140, SL_ALLOC, a + 128 * kMiB, 24 * kMiB); // a gradient
  job.free(autograd, t + 150, a, 32 * kMiB);
  job.main(t + 200).range_pop();
  job.main(t + 210).range_push("AdamW", SL_KIND_optimizer_step, 0);
  if (step == 0)
    job.allocator(main, t + 220, SL_ALLOC, a + 192 * kMiB, 48 * kMiB); // its state
  job.allocator(main, t + 230, SL_ALLOC, a + 320 * kMiB, 12 * kMiB);   // scratch
  job.free(main, t + 240, a + 320 * kMiB, 12 * kMiB);
  job.main(t + 250).range_pop();
  job.free(main, t + 260, a + 64 * kMiB, 4 * kMiB);
  job.free(main, t + 270, a + 128 * kMiB, 24 * kMiB);
  job.read_history(t + 300);
  job.main(t + 310).range_end(step + 1);
}

TEST_F(Past, TheHistoryGivesWhatTheBridgeGives) {
  for (Told told : {BY_BRIDGE, BY_HISTORY}) {
    Job job(directory / (told == BY_BRIDGE ? "bridge" : "history") / "host-1-1", told);
    for (uint64_t step = 0; step < 3; step++)
      train_step(job, step);
    job.main(9000).process_end();
  }
  const std::string allocations = "SELECT a.step, a.address, a.bytes >> 20, category, coalesce(detail, ''), decided_by,"
                                  " coalesce(m.fqn, ''), p.kind, coalesce(q.kind, '') FROM allocation a LEFT JOIN"
                                  " module m ON m.id = a.module_id LEFT JOIN phase p ON p.id = a.phase_id LEFT JOIN"
                                  " phase q ON q.id = a.free_phase_id ORDER BY a.step, a.address";
  const std::string peaks = "SELECT c.step, coalesce(module_id, 0), phase, category, bytes FROM peak_category c"
                            " ORDER BY 1, 2, 3, 4";
  Rows bridge = rows("bridge", allocations);
  EXPECT_EQ(rows("history", allocations), bridge);
  EXPECT_EQ(rows("history", peaks), rows("bridge", peaks));
  EXPECT_EQ(bridge[0], "0|268435456|32|activation||forward_activation|layer|forward|backward")
      << "it is worth comparing";
  EXPECT_EQ(rows("bridge", "SELECT count(*), sum(category = 'unattributed') FROM allocation"), Rows{"19|0"});
  EXPECT_EQ(rows("history", "SELECT events_lost FROM rank"), Rows{"0"});
}

TEST_F(Past, WhereTwoThreadsAreAtWorkNothingIsGuessed) {
  {
    Job job(directory / "history" / "host-1-1", BY_HISTORY);
    auto &main = job.main(10);
    for (uint64_t at : {0x10000000, 0x10800000, 0x11000000})
      job.allocator(main, 11, SL_SEGMENT_ALLOC, at, 8 * kMiB);
    job.main(20).range_start(1, "step", SL_KIND_step, 0);
    job.main(21).range_push("AdamW", SL_KIND_optimizer_step, 0);
    job.allocator(main, 22, SL_ALLOC, 0x10000000, 8 * kMiB);
    job.autograd(30).range_push("prefetch", SL_KIND_user, 0);
    job.allocator(main, 31, SL_ALLOC, 0x10800000, 8 * kMiB);
    job.autograd(40).range_pop();
    job.allocator(main, 41, SL_ALLOC, 0x11000000, 8 * kMiB);
    job.main(50).range_pop();
    job.read_history(60);
    job.main(61).range_end(1).process_end();
  }
  EXPECT_EQ(rows("history", "SELECT category FROM allocation ORDER BY address"),
            (Rows{"optstate", "unattributed", "optstate"}));
}

TEST_F(Past, WithoutTimesNothingIsTheOptimizersButWhatItsTagsSay) {
  {
    Job job(directory / "history" / "host-1-1", BY_HISTORY_WITHOUT_TIMES);
    auto &main = job.main(10);
    job.main(20).range_start(1, "step", SL_KIND_step, 0);
    job.main(30).range_push("AdamW", SL_KIND_optimizer_step, 0);
    for (uint64_t at : {0x10000000, 0x10800000, 0x11000000})
      job.allocator(main, 11, SL_SEGMENT_ALLOC, at, 8 * kMiB);
    job.allocator(main, 41, SL_ALLOC, 0x10000000, 8 * kMiB);
    job.allocator(main, 42, SL_ALLOC, 0x10800000, 8 * kMiB);
    job.read_history(50);
    job.main(51).append(sl_event_tag{0x10800000, job.log.string("optstate"), 1, job.log.string("exp_avg"), 0});
    job.main(52).range_pop();
    job.main(61).range_end(1).process_end();
  }
  EXPECT_EQ(rows("history", "SELECT category FROM allocation ORDER BY address"), (Rows{"unattributed", "optstate"}));
}

TEST_F(Past, SitesAndNotesGoWithTheirAllocations) {
  {
    Job job(directory / "history" / "host-1-1", BY_HISTORY);
    job.log.define(sl_event_frame{1, 0, job.log.string("train.py"), job.log.string("main"), 7, 0});
    job.log.define(sl_event_site{1, 1, 0, SL_STACK_OF_CALLER});
    auto &main = job.main(10);
    for (uint64_t at : {0x10000000, 0x10800000})
      job.allocator(main, 11, SL_SEGMENT_ALLOC, at, 8 * kMiB);
    job.allocator(main, 20, SL_ALLOC, 0x10000000, 8 * kMiB);
    job.free(main, 25, 0x10000000, 8 * kMiB);
    job.allocator(main, 30, SL_ALLOC, 0x10800000, 8 * kMiB);
    job.main(40).range_push("evaluation", SL_KIND_user, 0).range_pop();
    job.read_history(50, true);
    job.main(60).process_end();
  }
  EXPECT_EQ(rows("history", "SELECT alloc_ns, site_id, note FROM allocation ORDER BY alloc_ns"),
            (Rows{"20500|1|pool", "30500|1|pool"}));
}

TEST_F(Past, WhatWasNotReadAnyMoreDoesNotHoldUpTheRest) {
  {
    Job job(directory / "history" / "host-1-1", BY_HISTORY);
    train_step(job, 0);
    job.main(5000).range_push("evaluation", SL_KIND_user, 0).range_pop();
  }
  EXPECT_EQ(rows("history", "SELECT count(*) FROM phase WHERE name = 'evaluation'"), Rows{"1"});
  EXPECT_EQ(rows("history", "SELECT reason, lost FROM gap"), Rows{});
  EXPECT_EQ(rows("history", "SELECT events_lost, clean_exit FROM rank"), Rows{"0|0"});
}

} // namespace
