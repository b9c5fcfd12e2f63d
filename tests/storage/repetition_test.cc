// Steps that repeat another one: which rows are kept, and that nobody can tell from the answers.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"
#include "fakes/repeated_run.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;
constexpr uint64_t kMiB = 1 << 20;
constexpr int kFirst = 10; // steps that are kept in any case

class Repetition : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("repetition-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  std::string build(bool keep_all = false) {
    std::string output = directory / (keep_all ? "all.sqlite" : "ledger.sqlite");
    sl_ledger_options options = {};
    options.keep_all = keep_all;
    EXPECT_EQ(sl_ledger_build(directory.c_str(), output.c_str(), &options, &note, &error), 0) << error.text;
    return output;
  }

  // Rows as text: columns by '|'.
  Rows rows(const std::string &ledger, const std::string &sql) {
    return ledger_rows(ledger, sql);
  }
  std::string row(const std::string &ledger, const std::string &sql) {
    Rows found = rows(ledger, sql);
    return found.empty() ? "" : found[0];
  }
  Rows repeated(const std::string &ledger) {
    return rows(ledger, "SELECT step || ' as ' || same_as FROM step WHERE same_as IS NOT NULL ORDER BY step");
  }

  // A step with an activation that dies in it, and whatever is done in its middle.
  void step(LogBuilder &log, int number, const std::function<void(LogBuilder::Thread &)> &middle = nullptr) {
    auto &main = log.thread(1);
    uint64_t at = 1000 + 1000 * (uint64_t)number;
    main.at(at).range_start(1 + (uint64_t)number, "step " + std::to_string(number), SL_KIND_step, (uint64_t)number);
    main.at(at + 10).range_push("forward", SL_KIND_forward, 1);
    main.at(at + 20).allocator(SL_ALLOC, 0x1000000, 4096).at(at + 30).range_pop();
    if (middle)
      middle(main.at(at + 40));
    main.at(at + 50).allocator(SL_FREE_REQUESTED, 0x1000000, 4096).allocator(SL_FREE_COMPLETED, 0x1000000, 4096);
    main.at(at + 60).range_push("Adam", SL_KIND_optimizer_step, 0).range_pop();
    main.at(at + 900).range_end(1 + (uint64_t)number);
  }
  void begin(LogBuilder &log) {
    log.module(1, 0, "", "Model");
    log.thread(1).at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 20 * kMiB);
  }
  static std::function<void(LogBuilder::Thread &)> passing(uint64_t bytes) {
    return [bytes](LogBuilder::Thread &thread) {
      thread.allocator(SL_ALLOC, 0x1001000, bytes);
      thread.allocator(SL_FREE_REQUESTED, 0x1001000, bytes).allocator(SL_FREE_COMPLETED, 0x1001000, bytes);
    };
  }

  fs::path directory;
  sl_error note{}, error{};
};

TEST_F(Repetition, StepsThatDoTheSameAreStoredOnceButTheFirstAndTheLast) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 15; i++)
      step(log, i);
  }
  std::string ledger = build();
  EXPECT_EQ(repeated(ledger), (Rows{"10 as 9", "11 as 9", "12 as 9", "13 as 9"}));
  EXPECT_EQ(row(ledger, "SELECT count(DISTINCT step), count(*), max(step) FROM allocation"), "11|11|14");
  EXPECT_EQ(row(ledger, "SELECT count(DISTINCT step) FROM phase"), "11");
  EXPECT_EQ(row(ledger, "SELECT count(*), min(bytes), max(bytes) FROM category_at_peak"), "15|4096|4096");
  EXPECT_EQ(row(ledger, "SELECT start_ns, end_ns, peak_ns, peak_allocated_bytes, checked FROM step WHERE step = 12"),
            "13000|13900|13020|4096|");
  EXPECT_EQ(row(ledger, "SELECT peak_phase, peak_module, duration_ns FROM step_summary WHERE step = 12"),
            "forward|Model|900");
}

TEST_F(Repetition, KeepAllKeepsTheRowsOfEveryStep) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 15; i++)
      step(log, i);
  }
  std::string ledger = build(true);
  EXPECT_EQ(repeated(ledger), (Rows{}));
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM allocation"), "15");
  EXPECT_EQ(row(ledger, "SELECT value FROM meta WHERE key = 'keep'"), "all");
}

TEST_F(Repetition, AStepThatStandsOutIsThereInFull) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 20; i++)
      step(log, i, i == 14 ? passing(3 * kMiB) : nullptr);
  }
  std::string ledger = build();
  EXPECT_EQ(repeated(ledger),
            (Rows{"10 as 9", "11 as 9", "12 as 9", "13 as 9", "15 as 9", "16 as 9", "17 as 9", "18 as 9"}));
  EXPECT_EQ(rows(ledger, "SELECT bytes, category FROM allocation WHERE step = 14 ORDER BY id"),
            (Rows{"4096|activation", "3145728|temp"}));
  EXPECT_EQ(row(ledger, "SELECT step, peak_allocated_bytes FROM step ORDER BY peak_allocated_bytes DESC LIMIT 1"),
            "14|3149824");
}

TEST_F(Repetition, AlternatingStepsEachRepeatTheLatestOfTheirKind) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 16; i++)
      step(log, i, i % 3 == 2 ? passing(1024) : nullptr);
  }
  EXPECT_EQ(repeated(build()), (Rows{"10 as 9", "11 as 8", "12 as 9", "13 as 9", "14 as 8"}));
}

TEST_F(Repetition, StepsThatDifferInOneThingAreKept) {
  struct {
    const char *what;
    std::function<void(LogBuilder::Thread &)> usual, once;
  } cases[] = {
      {"requested bytes", passing(1000), passing(1001)},
      {"order of frees",
       [](auto &t) {
         t.allocator(SL_ALLOC, 0x1001000, 512).allocator(SL_ALLOC, 0x1001200, 1024);
         for (uint64_t a : {0x1001000, 0x1001200})
           t.allocator(SL_FREE_REQUESTED, a, 0).allocator(SL_FREE_COMPLETED, a, 0);
       },
       [](auto &t) {
         t.allocator(SL_ALLOC, 0x1001000, 512).allocator(SL_ALLOC, 0x1001200, 1024);
         for (uint64_t a : {0x1001200, 0x1001000})
           t.allocator(SL_FREE_REQUESTED, a, 0).allocator(SL_FREE_COMPLETED, a, 0);
       }},
      {"a range", nullptr, [](auto &t) { t.range_push("mine").range_pop(); }},
      {"a range's name", [](auto &t) { t.range_push("mine").range_pop(); },
       [](auto &t) { t.range_push("other").range_pop(); }},
      {"category", passing(1000),
       [](auto &t) {
         t.allocator(SL_ALLOC, 0x1001000, 1000).tag(0x1001000, "input");
         t.allocator(SL_FREE_REQUESTED, 0x1001000, 1000).allocator(SL_FREE_COMPLETED, 0x1001000, 1000);
       }},
      {"stream", passing(1000),
       [](auto &t) {
         t.allocator(SL_ALLOC, 0x1001000, 1000, 0, 7);
         t.allocator(SL_FREE_REQUESTED, 0x1001000, 1000, 0, 7).allocator(SL_FREE_COMPLETED, 0x1001000, 1000, 0, 7);
       }},
      {"a collective", nullptr, [](auto &t) { t.range_push("ncclAllReduce", 0, 0, "NCCL").range_pop("NCCL"); }},
  };
  for (const auto &one : cases) {
    fs::remove_all(directory / "host-1-1");
    {
      LogBuilder log(directory / "host-1-1", 50);
      begin(log);
      for (int i = 0; i < 15; i++)
        step(log, i, i == 12 ? one.once : one.usual);
    }
    EXPECT_EQ(repeated(build()), (Rows{"10 as 9", "11 as 9", "13 as 9"})) << one.what;
  }
}

TEST_F(Repetition, RangesWhoseNamesCountAreTheSame) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 13; i++)
      step(log, i, [i](auto &t) { t.range_push("ProfilerStep#" + std::to_string(i)).range_pop(); });
  }
  EXPECT_EQ(repeated(build()), (Rows{"10 as 9", "11 as 9"}));
}

TEST_F(Repetition, WhatOutlivesTheNextStepIsKeptWithItsPhase) {
  auto leak = [](int i) {
    return [i](LogBuilder::Thread &t) {
      // Each step frees what the fourth step before it made: nothing grows, and nothing dies within two steps.
      uint64_t ring = 0x1001000 + 0x200 * (uint64_t)(i % 4);
      t.range_push("cache");
      if (i >= 4)
        t.allocator(SL_FREE_REQUESTED, ring, 512).allocator(SL_FREE_COMPLETED, ring, 512);
      t.allocator(SL_ALLOC, ring, 512).range_pop();
    };
  };
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 20; i++)
      step(log, i, leak(i));
  }
  std::string ledger = build(), all = build(true);
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM gap"), "0");
  EXPECT_EQ(repeated(ledger).size(), 9u);
  for (const char *sql : {"SELECT * FROM survivors ORDER BY step",
                          "SELECT a.step, a.last_step, p.name, q.name, q.step FROM allocation a"
                          " JOIN phase p ON p.id = a.phase_id LEFT JOIN phase q ON q.id = a.free_phase_id"
                          " WHERE last_step > a.step ORDER BY 1"}) {
    EXPECT_EQ(rows(ledger, sql), rows(all, sql));
    EXPECT_GE(rows(ledger, sql).size(), 18u);
  }
}

TEST_F(Repetition, WhatReachesIntoAKeptStepFromOneThatIsNotIsThere) {
  // Each step leaves a gradient that the next one frees; step 14 makes more than the others.
  auto gradient = [](int i) {
    return [i](LogBuilder::Thread &t) {
      uint64_t mine = 0x1001000 + 0x200 * (uint64_t)(i % 2), before = 0x1001000 + 0x200 * (uint64_t)((i + 1) % 2);
      t.allocator(SL_ALLOC, mine, 512);
      if (i > 0)
        t.allocator(SL_FREE_REQUESTED, before, 512).allocator(SL_FREE_COMPLETED, before, 512);
      if (i == 14)
        t.allocator(SL_ALLOC, before, kMiB)
            .allocator(SL_FREE_REQUESTED, before, kMiB)
            .allocator(SL_FREE_COMPLETED, before, kMiB);
    };
  };
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 20; i++)
      step(log, i, gradient(i));
  }
  std::string ledger = build();
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM gap"), "0");
  EXPECT_EQ(repeated(ledger).front(), "10 as 9");
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM step WHERE step IN (13, 14, 15) AND same_as IS NULL"), "1");
  // Whatever was alive at a kept step's beginning and end is in the ledger.
  for (const char *at : {"start_ns", "peak_ns", "end_ns"}) {
    std::string alive = std::string("SELECT s.step, (SELECT sum(bytes) FROM allocation WHERE alloc_ns <= ") + at +
                        " AND coalesce(free_ns > " + at + ", 1)) FROM step s WHERE step IN (9, 14, 19)";
    EXPECT_EQ(rows(ledger, alive), rows(build(true), alive)) << at;
  }
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM allocation a WHERE NOT EXISTS (SELECT 1 FROM phase WHERE id = phase_id)"
                        " OR (free_phase_id NOT NULL AND NOT EXISTS (SELECT 1 FROM phase WHERE id = free_phase_id))"),
            "0");
}

TEST_F(Repetition, ARangeThatOutlivesItsStepHasTheOnesAroundIt) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    std::function<void()> before = [] {};
    for (int i = 0; i < 20; i++) { // step 14 is kept, for what its middle does
      auto &main = log.thread(1);
      const uint64_t at = 1000 + 1000 * (uint64_t)i;
      main.at(at).range_start(1 + (uint64_t)i, "step " + std::to_string(i), SL_KIND_step, (uint64_t)i);
      before();
      passing(i == 14 ? 8192 : 4096)(main.at(at + 20));
      main.at(at + 60).range_push("Adam", SL_KIND_optimizer_step, 0);
      main.at(at + 900).range_end(1 + (uint64_t)i);
      before = [&main, at] { main.at(at + 1010).range_pop(); }; // in the next step, or after the last
    }
  }
  std::string ledger = build();
  EXPECT_EQ(rows(ledger, "SELECT step FROM step WHERE same_as IS NULL AND step >= 10"), (Rows{"14", "19"}));
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM phase WHERE parent_id NOT IN (SELECT id FROM phase)"), "0");
  EXPECT_EQ(rows(ledger, "SELECT step, kind FROM phase WHERE step > 9 ORDER BY id"),
            (Rows{"13|step", "13|optimizer_step", "14|step", "14|optimizer_step", "18|step", "18|optimizer_step",
                  "19|step", "19|optimizer_step"}))
      << "a kept step has what went on from the one before it";
}

TEST_F(Repetition, TheLastStepOfARunThatWasKilledIsThereInFull) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 14; i++)
      step(log, i);
    auto &main = log.thread(1).at(20000).range_start(100, "step 14", SL_KIND_step, 14);
    main.at(20010).range_push("forward", SL_KIND_forward, 1).allocator(SL_ALLOC, 0x1000000, 4096);
  }
  std::string ledger = build();
  EXPECT_EQ(repeated(ledger).back(), "13 as 9");
  EXPECT_EQ(row(ledger, "SELECT step, bytes, free_ns FROM allocation ORDER BY id DESC LIMIT 1"), "14|4096|");
}

TEST_F(Repetition, WhatComesAfterTheLastStepIsKept) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 14; i++)
      step(log, i);
    log.thread(1).at(20000).range_push("export").allocator(SL_ALLOC, 0x1000000, 8192).range_pop();
  }
  std::string ledger = build();
  EXPECT_EQ(repeated(ledger).back(), "12 as 9");
  EXPECT_EQ(row(ledger, "SELECT bytes FROM allocation WHERE step IS NULL"), "8192");
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM phase WHERE name = 'export'"), "1");
}

TEST_F(Repetition, DeviceTimesThatComeLateAreCountedForTheirStep) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    begin(log);
    for (int i = 0; i < 16; i++)
      step(log, i, [i](auto &t) {
        t.range_push("ncclAllReduce", 0, 0, "NCCL").append(sl_event_launch{(uint32_t)(100 + i), 0}).range_pop("NCCL");
      });
    for (int i = 0; i < 16; i++) {
      uint64_t start = 1040 + 1000 * (uint64_t)i;
      log.thread(2).at(30000).append(sl_event_kernel{start, start + 7 + (uint64_t)i,
                                                     log.string("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"),
                                                     (uint32_t)(100 + i), 7, 0, 0});
    }
  }
  std::string ledger = build();
  EXPECT_EQ(row(ledger, "SELECT count(*) FROM collective"), "11");
  EXPECT_EQ(rows(ledger, "SELECT step, operation, calls, timed, duration_ns, min_duration_ns, max_duration_ns"
                         " FROM collective_total ORDER BY step"),
            (Rows{"10|AllReduce|1|1|17|17|17", "11|AllReduce|1|1|18|18|18", "12|AllReduce|1|1|19|19|19",
                  "13|AllReduce|1|1|20|20|20", "14|AllReduce|1|1|21|21|21"}));
  // A kernel may run in the time of the steps after the one that launched it.
  EXPECT_EQ(rows(ledger, "SELECT max(start_ns) FROM kernel WHERE start_ns < 16000"), (Rows{"14040"}));
}

// ---- recorded runs, made longer ----

struct Recording {
  const char *name;
  int64_t first, last;
};

class RepeatedRuns : public Repetition, public ::testing::WithParamInterface<Recording> {};

TEST_P(RepeatedRuns, EveryViewAnswersForEveryStepAsIfAllWereKept) {
  const Recording &run = GetParam();
  for (const auto &process : fs::directory_iterator(fs::path(SL_TEST_DATA) / run.name))
    if (process.is_directory()) {
      RepeatedRun repeated;
      repeated.from = process.path();
      repeated.to = directory / process.path().filename();
      repeated.first = run.first;
      repeated.last = run.last;
      repeated.times = std::max<uint64_t>(1, (uint64_t)(2 * kFirst / (run.last - run.first + 1)));
      std::string reason;
      ASSERT_GT(repeat_steps(repeated, reason), 0u) << reason;
    }
  std::string some = build(), all = build(true);
  EXPECT_EQ(row(all, "SELECT count(*) FROM gap"), "0");
  EXPECT_GE(std::stoi(row(some, "SELECT min(n) FROM (SELECT count(same_as) AS n FROM step GROUP BY rank)")), 8);
  std::string categories;
  for (const auto &column : rows(all, "SELECT name FROM pragma_table_info('module_peaks') WHERE name GLOB '*_bytes'"))
    categories += ", " + column;
  const std::string queries[] = {
      "SELECT rank, step, module_id, fqn, phase" + categories + " FROM module_peaks ORDER BY 1, 2, 3, 5",
      "SELECT * FROM category_at_peak ORDER BY 1, 2, 3",
      "SELECT * FROM step_summary ORDER BY 1, 2",
      "SELECT * FROM fsdp_snapshot WHERE step > 8 ORDER BY 1, 2, 3, 5, 6, 7",
      "SELECT * FROM module_snapshot WHERE step > 8 ORDER BY 1, 2, 3, 5, 6, 7",
      "SELECT * FROM unattributed ORDER BY 1, 2, 3",
      "SELECT * FROM survivors ORDER BY 1, 2, 3, 4, 5, 6, 7, 8",
      "SELECT * FROM device_balance ORDER BY 1, 2, 3, 4",
      "SELECT s.*, p.name, p.start_ns FROM segment s LEFT JOIN phase p ON p.id = s.phase_id ORDER BY s.id",
      "SELECT rank, step, start_ns, end_ns, peak_ns, peak_requested_bytes, peak_allocated_bytes, peak_active_bytes,"
      " peak_reserved_bytes, peak_device_bytes, before_allocated_bytes, end_allocated_bytes, end_reserved_bytes,"
      " end_largest_free_bytes, checked FROM step ORDER BY 1, 2",
      "SELECT * FROM allocation WHERE last_step > step OR free_ns IS NULL ORDER BY id",
      "SELECT * FROM oom ORDER BY 1, 2",
  };
  for (const auto &sql : queries)
    EXPECT_TRUE(rows(some, sql) == rows(all, sql)) << sql;
  const std::string calls =
      "SELECT rank, step, comm, operation, sum(n), sum(bytes), sum(timed), sum(ns) FROM ("
      " SELECT rank, step, comm, operation, 1 AS n, bytes, start_ns IS NOT NULL AS timed,"
      "  coalesce((end_ns - start_ns) / kernel_calls, 0) AS ns FROM collective WHERE step NOT NULL"
      " UNION ALL SELECT rank, step, comm, operation, calls, bytes, timed, duration_ns"
      "  FROM collective_total WHERE NOT before) GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4";
  EXPECT_TRUE(rows(some, calls) == rows(all, calls));
  // These steps leave nothing of their own but what they add up to, and what a step that is kept in full still has.
  const std::string repeats = " t ON t.rank = s.rank AND t.step = s.step WHERE s.same_as IS NOT NULL AND s.step <"
                              " (SELECT max(step) - 1 FROM step)";
  for (const char *table : {"snapshot", "peak", "peak_owner", "collective"})
    EXPECT_EQ(row(some, std::string("SELECT count(*) FROM step s JOIN ") + table + repeats), "0") << table;
  EXPECT_EQ(
      row(some,
          "SELECT count(*) FROM step s JOIN allocation" + repeats +
              " AND NOT EXISTS (SELECT 1 FROM step kept JOIN step before ON before.rank = kept.rank AND before.step ="
              " kept.step - 1 WHERE kept.rank = s.rank AND kept.step > s.step AND kept.same_as IS NULL AND"
              " coalesce(t.free_ns > before.end_ns, 1))"),
      "0");
  EXPECT_EQ(row(some,
                "SELECT count(*) FROM step s JOIN phase p USING (rank, step) WHERE s.same_as IS NOT NULL AND p.end_ns "
                "<= s.end_ns AND p.id"
                " NOT IN (SELECT coalesce(phase_id, 0) FROM allocation UNION SELECT coalesce(free_phase_id, 0) FROM"
                " allocation UNION SELECT coalesce(phase_id, 0) FROM segment UNION SELECT coalesce(phase_id, 0) FROM"
                " host_segment UNION SELECT coalesce(phase_id, 0) FROM gpu_code UNION SELECT coalesce(parent_id, 0) "
                "FROM phase)"),
            "0");
  // What was alive at a kept step's peak and end is there, to the byte.
  for (const char *what : {"peak", "end"})
    EXPECT_EQ(
        row(some,
            std::string("SELECT count(*) FROM step s WHERE same_as IS NULL AND ") + what +
                "_allocated_bytes <> (SELECT sum(bytes) FROM allocation a WHERE a.rank = s.rank AND alloc_ns <= " +
                what + "_ns AND coalesce(free_ns > " + what + "_ns, 1))"),
        "0");
  EXPECT_EQ(row(some, "SELECT count(*) FROM (SELECT phase_id AS id FROM allocation UNION SELECT free_phase_id FROM"
                      " allocation UNION SELECT parent_id FROM phase UNION SELECT phase_id FROM collective)"
                      " WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM phase)"),
            "0");
}

INSTANTIATE_TEST_SUITE_P(Runs, RepeatedRuns,
                         ::testing::Values(Recording{"fsdp2-2rank", 3, 4}, Recording{"fsdp2-2rank-recompute", 2, 4},
                                           Recording{"matrix/tracked-ddp", 2, 2},
                                           Recording{"fsdp2-2rank-long", 20, 30}));

} // namespace
