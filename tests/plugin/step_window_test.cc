/* SHARDLEDGER_STEPS: in which steps device times are recorded. */
#include "plugin/recorded.h"

extern "C" {
#include "plugin/sources/step_window.h"
}

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace {

// Steps 0 … 99 in which times are wanted.
std::set<uint64_t> steps() {
  std::set<uint64_t> wanted;
  for (uint64_t step = 0; step < 100; step++) {
    (void)sl_step_window_begin(step);
    if (sl_step_window_open())
      wanted.insert(step);
  }
  return wanted;
}

TEST(StepWindow, ByDefaultTheFirstStepsAndASampleOfTheOthers) {
  record({}, [] {
    EXPECT_TRUE(sl_step_window_open()) << "before the first step too";
    EXPECT_EQ(steps(), (std::set<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 40, 60, 80}));
    EXPECT_STREQ(sl_step_window_words(), "in steps 0 to 9 and in every 20th; SHARDLEDGER_STEPS=all times every step");
  });
}

TEST(StepWindow, AllIsEveryStep) {
  record({{"SHARDLEDGER_STEPS", "all"}}, [] {
    EXPECT_TRUE(sl_step_window_open());
    EXPECT_EQ(steps().size(), 100u);
    EXPECT_STREQ(sl_step_window_words(), "");
  });
}

TEST(StepWindow, AWindowHasItsStepsAlone) {
  record({{"SHARDLEDGER_STEPS", "2:4"}}, [] {
    EXPECT_FALSE(sl_step_window_open());
    EXPECT_EQ(steps(), (std::set<uint64_t>{2, 3}));
    EXPECT_STREQ(sl_step_window_words(), "in the steps of SHARDLEDGER_STEPS=2:4");
  });
}

TEST(StepWindow, FromStepZeroWhatIsBeforeItIsTimedToo) {
  record({{"SHARDLEDGER_STEPS", "0:1"}}, [] {
    EXPECT_TRUE(sl_step_window_open());
    EXPECT_EQ(steps(), (std::set<uint64_t>{0}));
  });
}

} // namespace
