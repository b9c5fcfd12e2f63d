/*
 * The middle of recorded runs is dropped, as `shardledger trim` does it: what the ledger says of the steps
 * that are kept is then what it said before.
 */
#include "fakes/ledger_rows.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/log/log_reader.h"
#include "storage/trim/dropped_file.h"
#include "storage/trim/log_drop.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;

bool drops_nothing(void *, const char *) {
  return false;
}

/* Which steps are dropped; what else may be unlike before, because its owner was. */
struct Case {
  const char *run;
  int first_dropped, first_kept;
  bool owners_go = false; /* memory made in dropped steps lives on: who made it is not known any more */
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.run;
}

class LogDrop : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("log-drop-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
    fs::copy(std::string(SL_TEST_DATA "/") + GetParam().run, directory / "run", fs::copy_options::recursive);
    build(whole());
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  std::string whole() const {
    return directory / "whole.sqlite";
  }
  std::string kept() const {
    return directory / "kept.sqlite";
  }
  void build(const std::string &output) {
    sl_error note = {}, error = {};
    sl_ledger_options options = {};
    options.keep_all = true;
    ASSERT_EQ(sl_ledger_build((directory / "run").c_str(), output.c_str(), &options, &note, &error), 0) << error.text;
  }
  uint64_t number(const std::string &sql) {
    const Rows rows = ledger_rows(whole(), sql);
    return rows.empty() ? 0 : std::stoull(rows[0]);
  }

  /* Drops the steps from `first` up to the one before `kept`, in every rank. */
  void drop(int first, int kept, int expected = 0) {
    for (const auto &rank : ledger_cells(whole(), "SELECT rank, pid FROM rank")) {
      const std::string of_rank = " AND rank = " + rank[0];
      sl_log_drop_options options = {};
      options.head_ns = number("SELECT start_ns + 1000 FROM step WHERE step = " + std::to_string(first) + of_rank);
      options.target_ns = number("SELECT end_ns FROM step WHERE step = " + std::to_string(kept - 1) + of_rank);
      options.until_ns = UINT64_MAX;
      options.drops = drops_nothing;
      for (const auto &process : fs::directory_iterator(directory / "run")) {
        if (process.path().filename().string().find("-" + rank[1] + "-") == std::string::npos)
          continue;
        sl_error error = {};
        sl_log *log = nullptr;
        ASSERT_EQ(sl_log_open(process.path().c_str(), &log, &error), 0) << error.text;
        EXPECT_EQ(sl_log_drop(log, &options, &error), expected) << error.text;
        sl_log_close(log);
        EXPECT_EQ(fs::exists(process.path() / "dropped.slog"), expected == 0);
        EXPECT_TRUE(expected < 0 || fs::file_size(process.path() / "dropped.slog") > 1000u);
        EXPECT_FALSE(fs::exists(process.path() / SL_DROPPED_NEW_NAME));
      }
    }
  }

  void expect_same(const char *what, const std::string &sql) {
    EXPECT_EQ(ledger_rows(kept(), sql), ledger_rows(whole(), sql)) << what;
  }

  void expect_steps_same(const std::string &steps) {
    expect_same("step", "SELECT rank, step, start_ns, end_ns, peak_ns, peak_allocated_bytes, peak_active_bytes, "
                        "peak_reserved_bytes, peak_device_bytes FROM step WHERE " +
                            steps + " ORDER BY 1, 2");
    expect_same("phase",
                "SELECT rank, tid, kind, name, module_id, step, call_index, start_ns, end_ns FROM phase WHERE " +
                    steps + " ORDER BY 1, 2, 8, 9 DESC, 3");
    expect_same("peak", "SELECT rank, step, module_id, phase, at_ns, allocated_bytes FROM peak WHERE " + steps +
                            " ORDER BY 1, 2, 3, 4");
    expect_same("allocation",
                "SELECT rank, device, address, bytes, requested_bytes, stream, pool, category, detail, module_id, tid, "
                "alloc_ns, decided_by FROM allocation WHERE " +
                    steps + " AND step IS NOT NULL ORDER BY 1, alloc_ns, address");
    expect_same("collective", "SELECT rank, comm, seq, operation, bytes, module_id, step, enqueue_ns, start_ns, end_ns "
                              "FROM collective WHERE " +
                                  steps + " ORDER BY 1, 2, enqueue_ns, seq");
    if (GetParam().owners_go)
      return;
    expect_same("peak_category", "SELECT rank, step, module_id, phase, category, bytes FROM peak_category WHERE " +
                                     steps + " ORDER BY 1, 2, 3, 4, 5");
    expect_same("own",
                "SELECT rank, step, module_id, phase, own_bytes FROM peak WHERE " + steps + " ORDER BY 1, 2, 3, 4");
    expect_same("snapshot",
                "SELECT rank, step, module_id, call_index, state, at_ns, category, bytes, tracker_bytes FROM snapshot "
                "WHERE " +
                    steps + " ORDER BY 1, 2, 3, 4, 5, 7");
  }

  /* Of what was freed within the gap, the instant at which it was last known to be alive is told, and nothing else. */
  void expect_ends_where_the_gap_begins(const std::string &first_kept) {
    uint64_t ended = 0;
    for (const auto &gap : ledger_cells(kept(), "SELECT rank, at_ns FROM gap WHERE reason LIKE '%dropped to make%'")) {
      const std::string before = "rank = " + gap[0] + " AND alloc_ns < " + gap[1], columns = "SELECT address, bytes, "
                                                                                             "alloc_ns, category";
      const Rows freed = ledger_rows(
          whole(), columns + " FROM allocation WHERE " + before + " AND free_ns >= " + gap[1] +
                       " AND free_ns < (SELECT start_ns FROM step s WHERE s.rank = allocation.rank AND step = " +
                       first_kept + ") ORDER BY 1, 3");
      EXPECT_EQ(ledger_rows(kept(), columns + " FROM allocation WHERE " + before + " AND free_ns = " + gap[1] +
                                        " AND complete_ns = free_ns AND free_phase_id IS NULL ORDER BY 1, 3"),
                freed);
      ended += freed.size();
      EXPECT_EQ(ledger_rows(kept(), "SELECT count(*) FROM allocation WHERE rank = " + gap[0] + " AND free_ns > " +
                                        gap[1] + " AND free_ns < (SELECT start_ns FROM step s WHERE s.rank = " +
                                        gap[0] + " AND step = " + first_kept + ")"),
                Rows{"0"})
          << "nothing else is said to be freed within the gap";
      EXPECT_EQ(ledger_rows(kept(), "SELECT count(*) FROM step WHERE rank = " + gap[0] + " AND end_ns >= " + gap[1] +
                                        " AND step < " + first_kept),
                Rows{"0"});
    }
    EXPECT_GT(ended, 0u) << "the case is one";
  }

  fs::path directory;
};

TEST_P(LogDrop, StepsBeforeAndAfterTheGapAreAsInTheWholeLog) {
  const Case &c = GetParam();
  drop(c.first_dropped, c.first_kept);
  build(kept());
  const std::string first = std::to_string(c.first_dropped), last = std::to_string(c.first_kept);
  expect_steps_same("step >= " + last);
  expect_same("steps before", "SELECT rank, step, start_ns, end_ns, peak_ns, peak_allocated_bytes, peak_active_bytes, "
                              "peak_reserved_bytes, peak_device_bytes FROM step WHERE step < " +
                                  first + " ORDER BY 1, 2");
  expect_same("peaks before", "SELECT rank, step, module_id, phase, category, bytes FROM peak_category WHERE step < " +
                                  first + " ORDER BY 1, 2, 3, 4, 5");
  EXPECT_EQ(ledger_rows(kept(), "SELECT step FROM step WHERE step >= " + first + " AND step < " + last), Rows{});
  expect_same("lost", "SELECT rank, events_lost, clean_exit FROM rank ORDER BY 1");
  expect_same(
      "alive from before the gap",
      "SELECT rank, address, bytes, category, detail, module_id, decided_by, alloc_ns, free_ns FROM allocation "
      "WHERE (step IS NULL OR step < " +
          first +
          ") AND decided_by <> 'dropped' AND alloc_ns < "
          "(SELECT start_ns FROM step s WHERE s.rank = allocation.rank AND s.step = " +
          last +
          ") AND "
          "(free_ns IS NULL OR free_ns > (SELECT start_ns FROM step s WHERE s.rank = allocation.rank AND s.step = " +
          last + ")) ORDER BY 1, alloc_ns, address");
  expect_same("made within the gap",
              "SELECT rank, address, bytes, tid, step, alloc_ns, free_ns FROM allocation WHERE step >= " + first +
                  " AND step < " + last +
                  " AND (free_ns IS NULL OR free_ns > (SELECT start_ns FROM step s WHERE "
                  "s.rank = allocation.rank AND s.step = " +
                  last + ")) ORDER BY 1, alloc_ns, address");
  expect_ends_where_the_gap_begins(last);
  EXPECT_EQ(ledger_rows(kept(), "SELECT count(*) FROM allocation WHERE decided_by = 'dropped' AND NOT "
                                "(category = 'unattributed' AND step >= " +
                                    first + " AND step < " + last + ")"),
            Rows{"0"});
  EXPECT_EQ(ledger_contradictions(kept()), Rows{});
  const Rows gaps = ledger_rows(kept(), "SELECT reason FROM gap WHERE reason LIKE '%dropped to make room%'");
  EXPECT_EQ(gaps.size(), ledger_rows(kept(), "SELECT 1 FROM rank").size());
}

class LogDropDamaged : public LogDrop {};

/* What goes on from a part of which something is missing is not known: then nothing is dropped. */
TEST_P(LogDropDamaged, NothingIsDroppedOfALogThatCannotBeReadWhole) {
  for (const auto &file : fs::recursive_directory_iterator(directory / "run"))
    if (file.path().filename() == "sealed.slogz") {
      std::fstream sealed(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      sealed.seekp(1000);
      sealed.put('\x5a');
    }
  drop(GetParam().first_dropped, GetParam().first_kept, -EBADMSG);
}

class LogDropAgain : public LogDrop {};

TEST_P(LogDropAgain, MoreCanBeDroppedLater) {
  const Case &c = GetParam();
  drop(c.first_dropped, c.first_dropped + 1);
  drop(c.first_dropped, c.first_kept - 1);
  drop(c.first_dropped, c.first_kept);
  build(kept());
  EXPECT_EQ(ledger_contradictions(kept()), Rows{});
  expect_steps_same("step >= " + std::to_string(c.first_kept));
  expect_same("lost", "SELECT rank, events_lost FROM rank ORDER BY 1");
  EXPECT_EQ(ledger_rows(kept(), "SELECT count(*) FROM gap WHERE reason LIKE '%dropped to make room%'"),
            ledger_rows(kept(), "SELECT count(*) FROM rank"));
}

const Case shorter[] = {
    {"fsdp2-2rank-kernels", 1, 2},
    {"matrix/late-attach", 1, 2},
    {"matrix/tracked-ddp", 2, 3},
};
const Case longer[] = {
    {"fsdp2-2rank", 1, 3},  {"fsdp2-2rank-long", 2, 22},    {"fsdp2-2rank-mixed-precision", 1, 3},
    {"killed-2rank", 2, 4}, {"oom-leak-2rank", 2, 4, true}, {"matrix/expandable-segments", 2, 6},
    {"matrix/fsdp1", 2, 4}, {"matrix/tracked-hsdp", 1, 3},  {"matrix/unsharded", 2, 14, true},
};
INSTANTIATE_TEST_SUITE_P(Short, LogDrop, testing::ValuesIn(shorter));
INSTANTIATE_TEST_SUITE_P(Short, LogDropDamaged, testing::Values(Case{"fsdp2-2rank-long", 2, 22}));
INSTANTIATE_TEST_SUITE_P(Long, LogDrop, testing::ValuesIn(longer));
INSTANTIATE_TEST_SUITE_P(Long, LogDropAgain, testing::ValuesIn(longer));

TEST(LogDropRefuses, AnAllocatorThatItCannotFollow) {
  for (const auto &process : fs::directory_iterator(SL_TEST_DATA "/matrix/cuda-malloc-async"))
    if (process.is_directory()) {
      sl_error error = {};
      sl_log_drop_options options = {};
      options.drops = drops_nothing;
      sl_log *log = nullptr;
      ASSERT_EQ(sl_log_open(process.path().c_str(), &log, &error), 0) << error.text;
      EXPECT_EQ(sl_log_drop(log, &options, &error), -ENOTSUP);
      sl_log_close(log);
      EXPECT_NE(std::string(error.text).find("cudaMallocAsync"), std::string::npos) << error.text;
    }
}

} // namespace
