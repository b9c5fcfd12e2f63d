// What operators used, and what nobody used at a peak: from the log's uses to the view idle_at_peak.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "nvtx_ranges/kinds.h"
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSlot = 8 * kMiB; // a segment for each allocation

class Uses : public ::testing::Test {
protected:
  void SetUp() override {
    directory =
        fs::path(::testing::TempDir()) / "uses" / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory);
    fs::create_directories(directory);
    log = std::make_unique<LogBuilder>(directory / "host-1-1", 50);
    log->module(1, 0, "", "Net");
    log->define(sl_event_frame{1, 0, log->string("train.py"), log->string("main"), 7, 0});
    log->define(sl_event_site{1, 1, log->string("aten::mm"), SL_STACK_OF_CALLER});
    for (uint64_t i = 0; i < 16; i++)
      log->thread(1).at(90).allocator(SL_SEGMENT_ALLOC, i * kSlot, kSlot);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  void watch(uint64_t ns, uint32_t state, uint32_t thread = 1) {
    log->thread(thread).at(ns).append(sl_event_use_watch{state, 0});
  }
  void step_begins(uint64_t ns, uint64_t number) {
    log->thread(1).at(ns).range_start(number + 1, "step", SL_KIND_step, number);
  }
  void step_ends(uint64_t ns, uint64_t number) {
    log->thread(1).at(ns).range_end(number + 1);
  }
  void allocate(uint64_t ns, uint64_t slot, uint64_t mib, uint32_t thread = 1) {
    auto &on = log->thread(thread).at(ns);
    on.append(sl_event_allocator_site{log->sequence(0), 0, 1, 0}).allocator(SL_ALLOC, slot * kSlot, mib * kMiB);
  }
  void free(uint64_t ns, uint64_t slot, uint64_t mib) {
    log->thread(1)
        .at(ns)
        .allocator(SL_FREE_REQUESTED, slot * kSlot, mib * kMiB)
        .allocator(SL_FREE_COMPLETED, slot * kSlot, mib * kMiB);
  }
  void use(uint64_t ns, uint64_t slot, uint32_t lasted = 5, uint32_t thread = 1) {
    log->thread(thread).at(ns).append(sl_event_use{slot * kSlot, 1, lasted});
  }
  void made(uint64_t ns, uint32_t lasted = 5, uint32_t thread = 1) {
    log->thread(thread).at(ns).append(sl_event_use{0, 1, lasted});
  }
  /* slot 1: 1 MiB made at 1010; slot 9: the peak, 4 MiB, made and used at 1500. All freed in the step. */
  void usual_begin(uint32_t state = SL_USES_FOLLOWED) {
    watch(1000, state);
    step_begins(1001, 0);
    allocate(1010, 1, 1);
  }
  void usual_peak() {
    allocate(1500, 9, 4);
    made(1501);
    free(1510, 9, 4);
  }
  void usual_end() {
    usual_peak();
    free(1800, 1, 1);
    step_ends(1900, 0);
  }

  std::vector<std::string> rows(const std::string &sql) {
    log->finish();
    struct sl_error note = {}, error = {};
    struct sl_ledger_options options = {};
    EXPECT_EQ(sl_ledger_build(directory.c_str(), ledger().c_str(), &options, &note, &error), 0) << error.text;
    return ledger_rows(ledger(), sql);
  }
  /* Of step 0's peak, the largest first. */
  std::vector<std::string> idle() {
    return rows(
        "SELECT state, bytes / 1048576, idle_ns, idle_until_ns FROM idle_at_peak WHERE step = 0 ORDER BY bytes DESC, "
        "allocation_id");
  }
  std::string ledger() const {
    return (directory / "ledger.sqlite").string();
  }
  using Rows = std::vector<std::string>;

  fs::path directory;
  std::unique_ptr<LogBuilder> log;
};

TEST_F(Uses, WhatIsUsedBeforeThePeakAndFreedLaterIsLate) {
  usual_begin();
  made(1012);
  use(1100, 1);
  usual_end();
  EXPECT_EQ(idle(), (Rows{"late|1|400|1800"}));
  EXPECT_EQ(
      ledger_rows(
          ledger(),
          "SELECT first_use_ns, last_use_ns, last_use_site_id FROM allocation JOIN allocation_use ON allocation_id = id WHERE bytes = 1048576"),
      (Rows{"1010|1100|1"}));
  EXPECT_EQ(ledger_rows(ledger(), "SELECT start_ns, end_ns, sees_launches FROM use_window"), (Rows{"1000||1"}));
}

TEST_F(Uses, WhatIsUsedAgainAfterThePeakIsNot) {
  usual_begin();
  made(1012);
  usual_peak();
  use(1700, 1);
  free(1800, 1, 1);
  EXPECT_EQ(idle(), Rows{});
}

TEST_F(Uses, WhatTheOperatorUsesThatReachesThePeakIsNot) {
  usual_begin();
  made(1012);
  allocate(1500, 9, 4);
  use(1502, 1, 10);
  made(1502, 10);
  free(1510, 9, 4);
  free(1800, 1, 1);
  step_ends(1900, 0);
  EXPECT_EQ(idle(), Rows{});
}

TEST_F(Uses, WhatAnOperatorMadeForItselfIsInUseUntilItsEnd) {
  usual_begin();
  made(1012);
  use(1400, 1);
  allocate(1490, 8, 2); /* no operator is given it: a workspace */
  allocate(1500, 9, 4);
  free(1502, 8, 2);
  made(1503, 20);
  use(1700, 1);
  free(1710, 9, 4);
  free(1800, 1, 1);
  step_ends(1900, 0);
  EXPECT_EQ(idle(), Rows{});
}

TEST_F(Uses, WhatHasNoValueYetIsEarlyUntilItsFirstUse) {
  usual_begin();
  usual_peak();
  use(1700, 1);
  free(1800, 1, 1);
  EXPECT_EQ(idle(), (Rows{"early|1|490|1695"}));
}

TEST_F(Uses, WhatIsNeverUsedIsEarlyUntilItsFree) {
  usual_begin();
  usual_end();
  EXPECT_EQ(idle(), (Rows{"early|1|490|1800"}));
}

TEST_F(Uses, WhatHasNotBeenUsedUntilNothingIsFollowedAnyMoreIsEarly) {
  usual_begin();
  usual_peak();
  step_ends(1900, 0);
  watch(1950, SL_USES_OFF);
  EXPECT_EQ(idle(), (Rows{"early|1|490|"}));
}

TEST_F(Uses, WhoseAllocationIsThePeakIsNotIdleThere) {
  usual_begin();
  made(1012);
  allocate(1500, 9, 4); /* without a value */
  use(1600, 9);
  use(1700, 1);
  free(1800, 9, 4);
  step_ends(1900, 0);
  EXPECT_EQ(idle(), Rows{});
}

TEST_F(Uses, NumbersOfAFewBytesAreNotFollowed) {
  usual_begin();
  made(1012);
  use(1700, 1);
  log->thread(1).at(1020).allocator(SL_ALLOC, 3 * kSlot, 4);
  usual_end();
  EXPECT_EQ(idle(), Rows{});
}

TEST_F(Uses, WhatOutlivesTheStepsThatAreFollowedIsKept) {
  usual_begin();
  made(1012);
  usual_peak();
  step_ends(1900, 0);
  watch(1950, SL_USES_OFF);
  free(2100, 1, 1);
  EXPECT_EQ(idle(), (Rows{"kept|1|488|"}));
}

TEST_F(Uses, AKernelThatNoOperatorLaunchedMayHaveUsedItMeanwhile) {
  usual_begin();
  made(1012);
  watch(1200, SL_USES_HIDDEN); /* before the peak, that harms nothing */
  allocate(1300, 2, 2);        /* early: since then there is none until the peak */
  usual_peak();
  use(1550, 2);
  free(1560, 2, 2);
  watch(1600, SL_USES_HIDDEN, 2);
  free(1800, 1, 1);
  EXPECT_EQ(idle(), (Rows{"early|2|200|1545", "hidden|1|488|1800"}));
}

TEST_F(Uses, WhereLaunchesAreNotSeenAnyUseMayBeHidden) {
  usual_begin(SL_USES_PARTLY);
  made(1012);
  usual_end();
  EXPECT_EQ(idle(), (Rows{"hidden|1|488|1800"}));
}

TEST_F(Uses, AnotherToolThatTakesLaunchesMeanwhileHidesThem) {
  usual_begin();
  made(1012);
  watch(1300, SL_USES_PARTLY);
  usual_end();
  EXPECT_EQ(idle(), (Rows{"hidden|1|488|1800"}));
}

TEST_F(Uses, TheProcessEndTakesNothingFromWhatWasSeen) {
  usual_begin();
  made(1012);
  usual_end();
  watch(2000, SL_USES_PARTLY); /* CUPTI is let go */
  EXPECT_EQ(idle(), (Rows{"late|1|488|1800"}));
  EXPECT_EQ(ledger_rows(ledger(), "SELECT start_ns, end_ns, sees_launches FROM use_window"),
            (Rows{"1000|2000|1", "2000||0"}));
}

TEST_F(Uses, WhatTheNextStepFreesIsKnownByWhatWasAtItsPlaceInTheStepBefore) {
  watch(900, SL_USES_FOLLOWED);
  for (uint64_t number = 0; number < 3; number++) {
    const uint64_t at = 1000 * (number + 1), slot = 1 + number;
    step_begins(at, number);
    log->thread(1).at(at + 5).range_push("forward", SL_KIND_forward, 1);
    allocate(at + 10, slot, 1);
    log->thread(1).at(at + 11).range_pop();
    if (number < 2)
      made(at + 12);
    if (number > 0)
      free(at + 400, slot - 1, 1); /* the loop's `outputs` of the step before */
    allocate(at + 500, 9, 4);
    if (number < 2)
      made(at + 501);
    free(at + 510, 9, 4);
    step_ends(at + 900, number);
    if (number == 1)
      watch(at + 950, SL_USES_OFF);
  }
  EXPECT_EQ(
      rows("SELECT step, state, idle_ns, idle_until_ns, use_step FROM idle_at_peak WHERE step >= 0 ORDER BY step"),
      (Rows{"0|late|488|2400|", "1|late|488|3400|0"}));
}

TEST_F(Uses, WhatTheNextStepUsesIsKeptThere) {
  watch(900, SL_USES_FOLLOWED);
  for (uint64_t number = 0; number < 3; number++) {
    const uint64_t at = 1000 * (number + 1), slot = 1 + number;
    step_begins(at, number);
    log->thread(1).at(at + 5).range_push("forward", SL_KIND_forward, 1);
    allocate(at + 10, slot, 1);
    log->thread(1).at(at + 11).range_pop();
    if (number < 2)
      made(at + 12);
    if (number == 1)
      use(at + 300, slot - 1);
    if (number > 0)
      free(at + 400, slot - 1, 1);
    allocate(at + 500, 9, 4);
    if (number < 2)
      made(at + 501);
    free(at + 510, 9, 4);
    step_ends(at + 900, number);
    if (number == 1)
      watch(at + 950, SL_USES_OFF);
  }
  EXPECT_EQ(rows("SELECT step, state FROM idle_at_peak WHERE step >= 0 ORDER BY step"), (Rows{"1|kept"}));
}

TEST_F(Uses, OnlyTheOperatorsThreadMadeWhatIsToldWithIt) {
  usual_begin();
  allocate(1020, 2, 2, 2);
  made(1022, 20); /* thread 1's: slot 1 */
  usual_peak();
  free(1700, 2, 2);
  free(1800, 1, 1);
  EXPECT_EQ(idle(), (Rows{"early|2|480|1700", "late|1|478|1800"}));
}

TEST_F(Uses, WhatADamagedLogSaysHarmsNothing) {
  usual_begin();
  log->thread(1).at(1100).append(sl_event_use{0xdead0000, 99, UINT32_MAX}).append(sl_event_use{0, 99, UINT32_MAX});
  log->thread(1).append(sl_event_use_watch{77, 0}).append(sl_event_use_watch{SL_USES_OFF, 0});
  log->thread(1).append(sl_event_use_watch{SL_USES_OFF, 0}).append(sl_event_use_watch{SL_USES_HIDDEN, 0});
  usual_end();
  EXPECT_EQ(idle(), Rows{});
}

} // namespace
