// Every recorded run, its requests played again on an allocator that chooses blocks itself: what that takes must be
// what was recorded, to the byte, in every period of every rank.
#include "fakes/ledger_rows.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/predict/replay/floor.h"
#include "storage/predict/replay/replay.h"
}

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::vector<std::string> runs() {
  std::vector<std::string> found;
  for (auto &entry : fs::recursive_directory_iterator(SL_TEST_DATA))
    if (entry.is_directory() && entry.path().filename().string().rfind("vm-", 0) == 0)
      found.push_back(fs::relative(entry.path().parent_path(), SL_TEST_DATA));
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// The driver chooses there.
bool has_no_tape(const std::string &run) {
  return run == "matrix/cuda-malloc-async" || run == "matrix/no-caching";
}

class Replay : public ::testing::TestWithParam<std::string> {
protected:
  void build(bool keep_all) {
    db = sl_db_close(db);
    ledger = fs::temp_directory_path() / ("replay-" + std::to_string(getpid()) + ".sqlite");
    struct sl_error note = {}, error = {};
    struct sl_ledger_options options = {};
    options.keep_all = keep_all;
    ASSERT_EQ(sl_ledger_build((std::string(SL_TEST_DATA) + "/" + GetParam()).c_str(), ledger.c_str(), &options, &note,
                              &error),
              0)
        << error.text;
    ASSERT_EQ(sl_db_open(ledger.c_str(), SL_DB_READ, &db, &error), 0) << error.text;
  }
  void SetUp() override {
    build(false);
  }
  void TearDown() override {
    db = sl_db_close(db);
    fs::remove(ledger);
  }
  std::vector<uint32_t> ranks() {
    std::vector<uint32_t> found;
    for (auto &rank : ledger_rows(ledger, "SELECT rank FROM rank ORDER BY rank"))
      found.push_back((uint32_t)std::stoul(rank));
    return found;
  }
  // False where there is none.
  bool read(uint32_t rank, struct sl_tape *tape) {
    struct sl_error error = {};
    int r = sl_tape_read(db, rank, tape, &error);
    EXPECT_EQ(r == -ENODATA || r == -ENOTSUP, has_no_tape(GetParam())) << error.text;
    return r == 0;
  }

  fs::path ledger;
  struct sl_db *db = nullptr;
};

TEST_P(Replay, UnchangedIsAsRecorded) {
  for (uint32_t rank : ranks()) {
    struct sl_tape tape;
    if (!read(rank, &tape))
      continue;
    struct sl_replay_options options = {};
    struct sl_replay replay;
    ASSERT_EQ(sl_replay_run(&tape, &options, &replay), 0);
    size_t first = 0;
    EXPECT_EQ(sl_replay_differences(&tape, &replay, &first), 0u)
        << "rank " << rank << ", " << tape.periods[first].kind << " " << tape.periods[first].step;
    EXPECT_EQ(replay.unmatched, 0u) << "rank " << rank;
    sl_replay_free(&replay);
    sl_tape_free(&tape);
  }
}

TEST_P(Replay, EndsWhereTooManyPeriodsAreNotAsRecorded) {
  for (uint32_t rank : ranks()) {
    struct sl_tape tape;
    if (!read(rank, &tape))
      continue;
    const size_t right = tape.period_count / 8;
    for (size_t i = right; i < tape.period_count; i++)
      tape.periods[i].last.requested_bytes++; /* as if it had been recorded so */
    struct sl_replay_options options = {};
    struct sl_replay replay;
    ASSERT_EQ(sl_replay_run(&tape, &options, &replay), 0);
    size_t first = 0;
    const size_t off = std::min<size_t>(tape.period_count - right, SL_REPLAY_OFF);
    EXPECT_EQ(sl_replay_differences(&tape, &replay, &first), off) << "rank " << rank;
    EXPECT_EQ(first, right);
    EXPECT_EQ(replay.played, off < SL_REPLAY_OFF ? tape.period_count : right + off);
    sl_replay_free(&replay);
    sl_tape_free(&tape);
  }
}

TEST_P(Replay, NeedsNoLessThanTheFloorAndNoMoreThanThePlan) {
  for (uint32_t rank : ranks()) {
    struct sl_tape tape;
    if (!read(rank, &tape))
      continue;
    struct sl_floor floor = {};
    int r = sl_floor_find(&tape, &floor);
    ASSERT_EQ(r, tape.restored ? -ENOTSUP : 0);
    uint64_t requested = 0, active = 0, reserved = 0;
    for (size_t i = 0; i < tape.period_count; i++) {
      requested = std::max(requested, tape.periods[i].peak.requested_bytes);
      active = std::max(active, tape.periods[i].peak.active_bytes);
      reserved = std::max(reserved, tape.periods[i].peak.reserved_bytes);
    }
    if (r == 0) {
      EXPECT_GE(floor.least_bytes, requested);
      EXPECT_LE(floor.least_bytes, active);
      EXPECT_LE(floor.least_bytes, floor.plan_bytes);
      EXPECT_LE(floor.plan_bytes, reserved);
    }
    sl_tape_free(&tape);
  }
}

// What is called exact rests on it: where no choice was open, addresses of any order come to the same.
TEST_P(Replay, WhatNoAddressHasDecidedIsTheSameAtOthers) {
  static const char *const configs[] = {nullptr, "expandable_segments:True", "max_split_size_mb:24",
                                        "large_segment_size_mb:32,roundup_power2_divisions:4"};
  for (uint32_t rank : ranks()) {
    struct sl_tape tape;
    if (!read(rank, &tape))
      continue;
    std::vector<uint8_t> sweeps(tape.segment_count + 1, SL_SWEEP_empty_cache);
    uint64_t most = 0;
    for (size_t i = 0; i < tape.period_count; i++)
      most = std::max(most, tape.periods[i].peak.reserved_bytes);
    for (const char *config : configs)
      for (uint64_t limit : {uint64_t{0}, most - most / 8}) {
        struct sl_replay first = {};
        for (int play = 0; play < 5; play++) {
          struct sl_replay_options options = {};
          options.config = config;
          options.limit_bytes = limit;
          options.sweeps = sweeps.data();
          options.addresses = (enum sl_replay_addresses)std::min(play, (int)SL_ADDRESSES_shuffled);
          options.seed = (uint64_t)play;
          struct sl_replay replay;
          ASSERT_EQ(sl_replay_run(&tape, &options, &replay), 0);
          if (play == 0) {
            first = replay;
            continue;
          }
          for (int i = 0; i < SL_QUANTITIES; i++) {
            EXPECT_EQ(replay.open_from[i], first.open_from[i]) << play;
            for (size_t p = 0; p < std::min(first.open_from[i], tape.period_count); p++)
              ASSERT_EQ(((uint64_t *)&replay.peaks[p])[i], ((uint64_t *)&first.peaks[p])[i])
                  << "rank " << rank << ", play " << play << ", period " << p << ", quantity " << i;
          }
          sl_replay_free(&replay);
        }
        sl_replay_free(&first);
      }
    sl_tape_free(&tape);
  }
}

TEST_P(Replay, IsTheSameWhereRepeatedPeriodsAreStoredOnce) {
  if (ledger_rows(ledger, "SELECT count(*) FROM period WHERE same_as IS NOT NULL")[0] == "0")
    return;
  // Under other settings, so that it is not what was recorded that they have in common.
  struct sl_replay_options options = {};
  options.config = "roundup_power2_divisions:8,max_split_size_mb:24";
  std::vector<struct sl_block_totals> peaks[2];
  for (int keep_all = 0; keep_all < 2; keep_all++) {
    build(keep_all);
    for (uint32_t rank : ranks()) {
      struct sl_tape tape;
      if (!read(rank, &tape))
        continue;
      std::vector<uint8_t> sweeps(tape.segment_count + 1, SL_SWEEP_empty_cache);
      options.sweeps = sweeps.data();
      struct sl_replay replay;
      ASSERT_EQ(sl_replay_run(&tape, &options, &replay), 0);
      EXPECT_EQ(replay.unmatched, 0u) << "rank " << rank;
      peaks[keep_all].insert(peaks[keep_all].end(), replay.peaks, replay.peaks + tape.period_count);
      sl_replay_free(&replay);
      sl_tape_free(&tape);
    }
  }
  ASSERT_EQ(peaks[0].size(), peaks[1].size());
  for (size_t i = 0; i < peaks[0].size(); i++) {
    EXPECT_EQ(peaks[0][i].requested_bytes, peaks[1][i].requested_bytes) << i;
    EXPECT_EQ(peaks[0][i].allocated_bytes, peaks[1][i].allocated_bytes) << i;
    EXPECT_EQ(peaks[0][i].reserved_bytes, peaks[1][i].reserved_bytes) << i;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  for (char &c : name)
    c = isalnum((unsigned char)c) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(EachRun, Replay, ::testing::ValuesIn(runs()), name_of);

} // namespace
