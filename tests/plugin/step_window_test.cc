/* SHARDLEDGER_STEPS: which instants belong to the steps that are wanted. */
#include "plugin/recorded.h"

extern "C" {
#include "plugin/step_window.h"
}

#include <gtest/gtest.h>

namespace {

TEST(StepWindow, WithoutTheOptionEverythingIsKept) {
  record({{"SHARDLEDGER_STEPS", ""}}, [] {
    EXPECT_TRUE(sl_step_window_has(1));
    sl_step_window_begin(0, 100);
    EXPECT_TRUE(sl_step_window_has(99));
    EXPECT_TRUE(sl_step_window_has(1000));
  });
}

TEST(StepWindow, StepsAreKeptFromTheBeginningOfTheFirstToThatOfTheOneAfterTheLast) {
  record({{"SHARDLEDGER_STEPS", "2:4"}}, [] {
    EXPECT_FALSE(sl_step_window_has(1));
    for (uint64_t step = 0; step < 6; step++)
      sl_step_window_begin(step, 100 * step + 100);
    EXPECT_FALSE(sl_step_window_has(299));
    EXPECT_TRUE(sl_step_window_has(300));
    EXPECT_TRUE(sl_step_window_has(499));
    EXPECT_FALSE(sl_step_window_has(500));
    EXPECT_FALSE(sl_step_window_has(900)) << "later steps do not move the window";
  });
}

TEST(StepWindow, FromStepZeroWhatIsBeforeItIsKeptToo) {
  record({{"SHARDLEDGER_STEPS", "0:1"}}, [] {
    EXPECT_TRUE(sl_step_window_has(1));
    sl_step_window_begin(0, 100);
    sl_step_window_begin(1, 200);
    EXPECT_TRUE(sl_step_window_has(199));
    EXPECT_FALSE(sl_step_window_has(200));
  });
}

} // namespace
