// A job as it is watched: at every instant the figures are those of the ledger of what had been written by then.
#include "fakes/growing_log.h"
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/live/live_run.h"
#include "storage/live/rank_live.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kAll = UINT64_MAX;
using Bytes = std::map<std::string, uint64_t>;
using Row = std::vector<std::string>;

class Live : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("live-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
    state = std::make_unique<sl_live_state>();
  }
  void TearDown() override {
    rank = sl_live_rank_close(rank);
    fs::remove_all(directory);
  }

  void read(uint64_t until = kAll) {
    if (!rank) {
      ASSERT_EQ(sl_live_rank_open((directory / "p").c_str(), nullptr, false, &rank, &error), 0) << error.text;
    }
    ASSERT_EQ(sl_live_rank_look(rank, &error), 0) << error.text;
    ASSERT_EQ(sl_live_rank_read(rank, until, kAll, &error), 0) << error.text;
    sl_live_rank_state(rank, state.get());
    sl_live_rank_categories(rank, state.get());
  }

  // Of the ledger of a process directory.
  std::vector<Row> rows(const fs::path &ledger, const std::string &sql) {
    return ledger_cells(ledger, sql);
  }
  Bytes sums(const fs::path &ledger, const std::string &sql) {
    Bytes bytes;
    for (const Row &row : rows(ledger, sql))
      bytes[row[0]] += std::stoull(row[1]);
    return bytes;
  }
  void build(const fs::path &process, const fs::path &ledger) {
    sl_error note;
    fs::remove(ledger);
    ASSERT_EQ(sl_ledger_build(process.c_str(), ledger.c_str(), nullptr, &note, &error), 0) << error.text;
  }
  static Row totals(const sl_block_totals &totals) {
    return {std::to_string(totals.requested_bytes), std::to_string(totals.allocated_bytes),
            std::to_string(totals.active_bytes), std::to_string(totals.reserved_bytes)};
  }

  static std::string open_words(const Bytes &open) {
    std::string words;
    for (const auto &[names, bytes] : open)
      words += "; " + names + ": " + std::to_string(bytes);
    return words;
  }

  // What is known for sure is in the ledger, and what the ledger has is at least possible. in_hindsight: the ledger is
  // that of the whole run, in which some of what is alive now has outlived its step.
  void expect_bounds(const Bytes &ledger, const std::string &what, bool in_hindsight = false) {
    uint64_t sum = 0;
    Bytes sure, open;
    for (size_t i = 0; i < state->category_count; i++) {
      const sl_live_category &category = state->categories[i];
      (category.decided ? sure : open)[category.name] += category.bytes;
      sum += category.bytes;
    }
    EXPECT_EQ(sum, state->now.allocated_bytes) << what;
    for (const auto &[name, bytes] : sure)
      EXPECT_LE(bytes, ledger.count(name) ? ledger.at(name) : 0) << what << ": " << name;
    for (const auto &[name, bytes] : ledger) {
      uint64_t most = sure.count(name) ? sure.at(name) : 0;
      for (const auto &[names, more] : open)
        if ((" or " + names + " or ").find(" or " + name + " or ") != std::string::npos || names == "not known yet" ||
            names == "unattributed" || names == "program" || (in_hindsight && name == "other"))
          most += more;
      EXPECT_GE(most, bytes) << what << ": " << name << open_words(open);
    }
  }

  void expect_like_ledger(const fs::path &ledger, const std::string &what) {
    const std::string columns = "peak_requested_bytes, peak_allocated_bytes, peak_active_bytes, peak_reserved_bytes";
    const std::vector<Row> steps =
        rows(ledger, "SELECT step, " + columns + ", coalesce(checked, -1), peak_ns FROM step ORDER BY step");
    std::map<std::string, Row> peaks;
    for (const Row &row : steps)
      peaks[row[0]] = {row.begin() + 1, row.begin() + 5};
    if (!state->drivers_pool && state->last.step >= 0) {
      EXPECT_EQ(totals(state->last.peak), peaks[std::to_string(state->last.step)]) << what;
    }
    uint64_t highest = 0;
    for (const Row &row : steps)
      highest = std::max<uint64_t>(highest, std::stoull(row[2]));
    if (state->peak.step >= 0) {
      EXPECT_EQ(state->peak.bytes, highest) << what;
    }
    EXPECT_GE(state->peak.bytes, highest) << what;
    EXPECT_EQ(state->steps + (state->step >= 0 ? 1 : 0), steps.size()) << what;
    if (state->step >= 0) {
      EXPECT_EQ(state->step_peak.bytes, std::stoull(peaks[std::to_string(state->step)][1])) << what;
    }
    Bytes shares;
    for (size_t i = 0; i < state->share_count; i++)
      shares[state->shares[i].category] = state->shares[i].bytes;
    EXPECT_EQ(shares, sums(ledger, "SELECT category, bytes FROM category_at_peak WHERE step = " +
                                       std::to_string(state->last.step)))
        << what;
    const Bytes alive = sums(ledger, "SELECT category, sum(bytes) FROM allocation WHERE free_ns IS NULL AND"
                                     " device = (SELECT device FROM rank) GROUP BY category");
    uint64_t sum = 0;
    for (const auto &[name, bytes] : alive)
      sum += bytes;
    EXPECT_EQ(state->now.allocated_bytes, sum) << what;
    expect_bounds(alive, what);
  }

  void watch(const fs::path &run, int pieces) {
    for (const auto &process : fs::directory_iterator(run)) {
      if (!process.is_directory())
        continue;
      fs::remove_all(directory / "p");
      rank = sl_live_rank_close(rank);
      GrowingLog growing(process.path(), directory / "p");
      const fs::path whole = directory / "whole.sqlite", prefix = directory / "prefix.sqlite";
      ASSERT_NO_FATAL_FAILURE(build(process.path(), whole));
      if (rows(whole, "SELECT id FROM allocation LIMIT 1").empty())
        continue;
      const uint64_t start = std::stoull(rows(whole, "SELECT min(alloc_ns) FROM allocation")[0][0]);
      const uint64_t piece = (growing.last_ns() - start) / static_cast<uint64_t>(pieces);
      for (uint64_t now = start + piece / 2; now < growing.last_ns(); now += piece) {
        const std::string what = process.path().string() + " at " + std::to_string(now);
        growing.grow(now);
        ASSERT_NO_FATAL_FAILURE(read(now));
        ASSERT_NO_FATAL_FAILURE(build(directory / "p", prefix));
        expect_like_ledger(prefix, what);
        EXPECT_FALSE(state->ended) << what;
        // And hindsight may not prove it wrong.
        const std::string at = std::to_string(now);
        expect_bounds(sums(whole, "SELECT category, sum(bytes) FROM allocation WHERE alloc_ns <= " + at +
                                      " AND (free_ns IS NULL OR free_ns > " + at +
                                      ") AND device = (SELECT device FROM rank) GROUP BY category"),
                      what + ", in hindsight", true);
      }
      growing.grow_to_end();
      ASSERT_NO_FATAL_FAILURE(read());
      expect_like_ledger(whole, process.path().string());
    }
  }

  fs::path directory;
  sl_live_rank *rank = nullptr;
  std::unique_ptr<sl_live_state> state;
  sl_error error = {};
};

const fs::path kData = SL_TEST_DATA;

// Definitions come before everything else in a log that is read whole; a job that attaches late writes them late.
TEST_F(Live, ASnapshotOfTheAllocatorThatComesLateCountsFromTheStart) {
  constexpr uint64_t start = 1'000'000'000'000'000'000;
  for (bool attached : {false, true}) {
    LogBuilder log(directory / (attached ? "after" : "p"), start);
    auto &main = log.thread(1);
    main.at(start + 100).allocator(SL_SEGMENT_ALLOC, 0x10000, 2 << 20).allocator(SL_ALLOC, 0x10000, 2 << 20);
    if (attached) {
      sl_event_allocator_restore restore = {};
      restore.segments = restore.blocks = 1;
      restore.sequence = 2;
      log.define(restore);
      sl_event_allocator_existing block = {};
      block.address = 0x10000;
      block.bytes = 2 << 20;
      block.requested_bytes = 1 << 20;
      block.place = log.place(0);
      block.state = SL_BLOCK_ALLOCATED;
      block.starts_segment = 1;
      log.define(block);
    }
    if (attached)
      main.at(start + 200).allocator(SL_SEGMENT_ALLOC, 0x800000, 2 << 20).allocator(SL_ALLOC, 0x800000, 1 << 20);
  }
  ASSERT_NO_FATAL_FAILURE(read());
  EXPECT_EQ(state->now.allocated_bytes, 2u << 20);
  fs::copy(directory / "after", directory / "p", fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  ASSERT_NO_FATAL_FAILURE(read());
  EXPECT_EQ(state->now.allocated_bytes, (2u << 20) + (1u << 20));
  EXPECT_EQ(state->now.requested_bytes, 2u << 20);
  EXPECT_EQ(state->lost, 0u);
}

TEST_F(Live, ARequestThatDidNotFitIsToldWithItsPlace) {
  LogBuilder log(directory / "p");
  log.module(1, 0, "blocks.0", "Block", SL_MODULE_ROOT);
  log.thread(1).at(1'000'000'000'000'000'100).range_start(1, "step", SL_KIND_step, 7);
  log.thread(1).range_push("blocks.0", SL_KIND_forward, 1).allocator(SL_OUT_OF_MEMORY, 4096, 1 << 30);
  log.finish();
  ASSERT_NO_FATAL_FAILURE(read());
  EXPECT_EQ(state->refusals, 1u);
  EXPECT_EQ(state->refused_bytes, 1u << 30);
  EXPECT_EQ(state->refused_at.step, 7);
  EXPECT_STREQ(state->refused_at.phase, "forward");
  EXPECT_STREQ(state->refused_at.module, "blocks.0");
  ASSERT_GE(state->frame_count, 1u);
  EXPECT_STREQ(state->frames[0].phase, "forward");
  EXPECT_STREQ(state->frames[0].module, "blocks.0");
}

// Files of a log are anybody's, and change while they are read: nothing that is in them may do harm.
TEST_F(Live, AStepWhoseNumberWasUsedBeforeHasTheNumberThatTheLedgerGivesIt) {
  {
    LogBuilder log(directory / "p");
    log.info("rank", "0");
    for (uint64_t i = 1; i <= 3; i++) {
      log.thread(1).at(1000 * i).range_start(i, "step", SL_KIND_step, 5);
      if (i < 3)
        log.thread(1).at(1000 * i + 500).range_end(i);
    }
  }
  read();
  EXPECT_EQ(state->last.step, 6);
  EXPECT_EQ(state->step, 7);
}

TEST_F(Live, DamageThatComesWhileTheLogGrowsIsSurvived) {
  const char *rounds = std::getenv("SHARDLEDGER_DAMAGE_ROUNDS");
  const fs::path recorded = kData / "oom-forward-2rank";
  const fs::path process =
      std::find_if(fs::directory_iterator(recorded), fs::directory_iterator(), [](const auto &entry) {
        return entry.is_directory();
      })->path();
  std::mt19937 random(1);
  for (int round = 0; round < (rounds ? std::atoi(rounds) : 8); round++) {
    fs::remove_all(directory / "p");
    rank = sl_live_rank_close(rank);
    GrowingLog growing(process, directory / "p");
    for (int piece = 1; piece <= 3; piece++) {
      growing.grow(growing.first_ns() + (growing.last_ns() - growing.first_ns()) / 3 * static_cast<uint64_t>(piece));
      for (const auto &file : fs::directory_iterator(directory / "p")) {
        if (random() % 3)
          continue;
        if (random() % 4 == 0)
          fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
        std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
        for (int byte = 0; byte < 4; byte++)
          stream.seekp(static_cast<std::streamoff>(random() % fs::file_size(file))).put(static_cast<char>(random()));
      }
      if (!rank && sl_live_rank_open((directory / "p").c_str(), nullptr, false, &rank, &error) < 0)
        break;
      if (sl_live_rank_look(rank, &error) < 0 || sl_live_rank_read(rank, kAll, kAll, &error) < 0)
        break;
      sl_live_rank_state(rank, state.get());
      sl_live_rank_categories(rank, state.get());
    }
  }
}

class LiveRuns : public Live, public ::testing::WithParamInterface<const char *> {};

TEST_P(LiveRuns, AtEveryInstantTheFiguresAreThoseOfTheLedgerOfThePrefix) {
  watch(kData / GetParam(), 4);
}

// Two readers of one log, one of them for the figures alone; what `watch` shows of many ranks.
std::string figures_of(const sl_live_state &s) {
  std::string text;
  const auto add = [&](const auto &...values) { ((text += std::to_string(values) + ' '), ...); };
  const auto peak = [&](const sl_live_peak &p) {
    add(p.bytes, p.at_ns, p.step, p.after);
    text += std::string(p.period) + '/' + p.phase + '/' + p.module + ' ';
  };
  const auto totals = [&](const sl_block_totals &t) {
    add(t.requested_bytes, t.allocated_bytes, t.active_bytes, t.reserved_bytes);
  };
  add(s.world_size, s.pid, s.device, s.device_bytes, s.last_ns, s.ended, s.events, s.lost, s.gaps, s.recorded,
      s.drivers_pool, s.device_used, s.step, s.steps, s.start_ns, s.peak_reserved, s.peak_device, s.steps_agreed,
      s.steps_differed, s.refusals, s.refused_bytes, s.last.step, s.last.start_ns, s.last.end_ns, s.last.checked,
      s.last.peak_ns, s.last.peak_device_bytes);
  totals(s.now);
  totals(s.last.peak);
  totals(s.last.end);
  peak(s.step_peak);
  peak(s.peak);
  peak(s.refused_at);
  for (size_t i = 0; i < s.frame_count; i++)
    text += std::string(s.frames[i].phase) + '/' + (s.frames[i].name ? s.frames[i].name : "") + '/' +
            (s.frames[i].module ? s.frames[i].module : "") + ' ';
  return text;
}

class LiveFigures : public Live, public ::testing::WithParamInterface<const char *> {
protected:
  static constexpr uint64_t kLooks = 40;

  /* Of the first and the last event of a log's threads. */
  std::pair<uint64_t, uint64_t> times_of(const fs::path &process) {
    std::pair<uint64_t, uint64_t> times;
    sl_live_rank *reader = nullptr;
    EXPECT_EQ(sl_live_rank_open(process.c_str(), nullptr, false, &reader, &error), 0) << error.text;
    EXPECT_EQ(sl_live_rank_read(reader, kAll, 1, &error), 1) << error.text;
    times.first = sl_live_rank_last_ns(reader);
    EXPECT_EQ(sl_live_rank_read(reader, kAll, kAll, &error), 0) << error.text;
    times.second = sl_live_rank_last_ns(reader);
    sl_live_rank_close(reader);
    return times;
  }
};

TEST_P(LiveFigures, AreTheSameWhereCategoriesAreNotAskedFor) {
  int compared = 0;
  for (const auto &process : fs::directory_iterator(kData / GetParam())) {
    if (!process.is_directory())
      continue;
    const auto [first_ns, last_ns] = times_of(process.path());
    sl_live_rank *readers[2];
    for (int i = 0; i < 2; i++)
      ASSERT_EQ(sl_live_rank_open(process.path().c_str(), nullptr, i == 1, &readers[i], &error), 0) << error.text;
    for (uint64_t look = 1; look <= kLooks + 1; look++, compared++) {
      const uint64_t until_ns = look > kLooks ? kAll : first_ns + (last_ns - first_ns) * look / kLooks - 1;
      std::vector<std::string> figures, calls;
      for (sl_live_rank *reader : readers) {
        ASSERT_EQ(sl_live_rank_read(reader, until_ns, kAll, &error), 0) << error.text;
        sl_live_rank_state(reader, state.get());
        figures.push_back(figures_of(*state));
        std::vector<sl_live_collective> found(SL_LIVE_COLLECTIVES);
        found.resize(sl_live_rank_collectives(reader, found.data(), found.size()));
        calls.emplace_back();
        for (const sl_live_collective &call : found)
          calls.back() += std::string(call.operation) + (call.module ? call.module : "-") + std::to_string(call.bytes) +
                          ' ' + std::to_string(call.start_ns) + ' ' + std::to_string(call.end_ns) + ' ' +
                          std::to_string(call.seq) + ' ' + std::to_string(call.step) + '\n';
      }
      ASSERT_EQ(figures[0], figures[1]) << process.path() << ", look " << compared;
      ASSERT_EQ(calls[0], calls[1]) << process.path() << ", look " << compared;
    }
    EXPECT_TRUE(state->figures_only);
    EXPECT_EQ(state->share_count, 0u);
    for (sl_live_rank *reader : readers)
      sl_live_rank_close(reader);
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Recorded, LiveFigures,
                         ::testing::Values("fsdp2-2rank", "fsdp2-2rank-kernels", "oom-optimizer-2rank",
                                           "oom-forward-2rank", "killed-2rank", "nccl-2rank", "life/evaluation",
                                           "life/server-leak", "matrix/late-attach", "matrix/cuda-malloc-async",
                                           "matrix/no-caching", "matrix/tracked-ddp", "matrix/fsdp1"));

INSTANTIATE_TEST_SUITE_P(Recorded, LiveRuns,
                         ::testing::Values("fsdp2-2rank", "fsdp2-2rank-recompute", "oom-optimizer-2rank",
                                           "matrix/late-attach", "matrix/cuda-malloc-async", "matrix/fsdp1",
                                           "matrix/tracked-ddp"));

// A run of several processes.
class LiveRun : public Live {
protected:
  void TearDown() override {
    run = sl_live_run_free(run);
    Live::TearDown();
  }
  int look() {
    if (!run)
      run = sl_live_run_new((directory / "run").c_str(), nullptr);
    now += 10'000'000'000; // beyond the time after which what could not be opened is tried again
    int r = sl_live_run_look(run, now, &error);
    return r < 0 ? r : sl_live_run_read(run, now, kAll, &error);
  }
  void process(const std::string &name, const std::string &rank, uint64_t start, uint64_t bytes) {
    LogBuilder log(directory / "run" / name, start);
    log.info("rank", rank).info("start_ns", std::to_string(start));
    log.thread(1).at(start + 100).allocator(SL_SEGMENT_ALLOC, 0x10000, bytes).allocator(SL_ALLOC, 0x10000, bytes);
    log.finish();
  }
  // Rank and allocated bytes of each process.
  std::vector<std::pair<uint32_t, uint64_t>> ranks() {
    std::vector<std::pair<uint32_t, uint64_t>> found;
    for (size_t i = 0; i < run->count; i++) {
      sl_live_rank_state(run->processes[i].live, state.get());
      found.emplace_back(run->processes[i].rank, state->now.allocated_bytes);
    }
    return found;
  }

  sl_live_run *run = nullptr;
  uint64_t now = 2'000'000'000'000'000'000;
};

using Ranks = std::vector<std::pair<uint32_t, uint64_t>>;

TEST_F(LiveRun, RanksAppearOneAfterTheOther) {
  EXPECT_EQ(look(), -ENOENT);
  fs::create_directories(directory / "run");
  EXPECT_EQ(look(), -ENODATA);
  process("a-2-1", "1", 1'000'000'000'000'000'000, 2 << 20);
  EXPECT_EQ(look(), 0) << error.text;
  EXPECT_EQ(ranks(), (Ranks{{1, 2 << 20}}));
  fs::create_directories(directory / "run" / "a-1-1"); // made, and nothing in it yet
  EXPECT_EQ(look(), 0) << error.text;
  process("a-1-1", "0", 1'000'000'000'000'000'000, 1 << 20);
  EXPECT_EQ(look(), 0) << error.text;
  EXPECT_EQ(ranks(), (Ranks{{0, 1 << 20}, {1, 2 << 20}}));
}

TEST_F(LiveRun, AJobThatIsStartedAgainInTheSameDirectoryTakesTheOldOnesPlace) {
  process("a-1-1", "0", 1'000'000'000'000'000'000, 1 << 20);
  process("a-2-1", "1", 1'000'000'000'000'000'000, 1 << 20);
  EXPECT_EQ(look(), 0) << error.text;
  process("a-3-2", "0", 1'500'000'000'000'000'000, 4 << 20);
  EXPECT_EQ(look(), 0) << error.text;
  EXPECT_EQ(ranks().front(), (Ranks::value_type{0, 4 << 20}));
  EXPECT_NE(std::string(run->note.text), "");
}

// Its events seem to be of the future, and are no less there.
TEST_F(LiveRun, AHostWhoseClockIsAheadIsNotWaitedFor) {
  process("a-1-1", "0", now + 3'600'000'000'000, 1 << 20);
  EXPECT_EQ(look(), 0) << error.text;
  EXPECT_EQ(ranks(), (Ranks{{0, 1 << 20}}));
  EXPECT_GT(run->processes[0].ahead_ns, 3'500'000'000'000u);
}

TEST_F(LiveRun, NothingInTheDirectoryChanges) {
  process("a-1-1", "0", 1'000'000'000'000'000'000, 1 << 20);
  auto files = [&] {
    std::map<fs::path, fs::file_time_type> found;
    for (const auto &entry : fs::recursive_directory_iterator(directory / "run"))
      found[entry.path()] = entry.last_write_time();
    return found;
  };
  const auto before = files();
  for (int i = 0; i < 3; i++)
    EXPECT_EQ(look(), 0) << error.text;
  EXPECT_EQ(files(), before);
}

// The view of the ledger has the same figures, for the same three steps.
TEST_F(LiveRun, SlowestCollectivesAndWhoIsLateAreAsTheLedgerSays) {
  fs::copy(kData / "oom-forward-2rank", directory / "run", fs::copy_options::recursive);
  ASSERT_EQ(look(), 0) << error.text;
  const fs::path ledger = directory / "ledger.sqlite";
  ASSERT_NO_FATAL_FAILURE(build(directory / "run", ledger));
  const std::string last_three = " step > (SELECT max(step) FROM collective_cost WHERE start_ns IS NOT NULL) - 3 ";
  const std::vector<Row> slowest = rows(ledger, "SELECT operation, bytes, step, CAST(transfer_ns AS INTEGER), spread_ns"
                                                " FROM collective_cost WHERE rank = 0 AND start_ns IS NOT NULL AND" +
                                                    last_three + "ORDER BY transfer_ns DESC LIMIT 6");
  sl_live_slow slow[6];
  sl_live_late late[2];
  ASSERT_EQ(sl_live_run_collectives(run, slow, 6, late), slowest.size());
  std::vector<Row> found;
  for (size_t i = 0; i < slowest.size(); i++)
    found.push_back({slow[i].operation, std::to_string(slow[i].bytes), std::to_string(slow[i].step),
                     std::to_string(slow[i].transfer_ns), std::to_string(slow[i].spread_ns)});
  EXPECT_EQ(found, slowest);
  const std::vector<Row> last = rows(ledger, "SELECT count(*), sum(is_last), sum(iif(is_last, spread_ns, 0)) FROM"
                                             " collective_cost WHERE spread_ns IS NOT NULL AND" +
                                                 last_three + "GROUP BY rank ORDER BY rank");
  for (size_t i = 0; i < 2; i++)
    EXPECT_EQ((Row{std::to_string(late[i].collectives), std::to_string(late[i].last), std::to_string(late[i].late_ns)}),
              last[i]);
}

} // namespace
