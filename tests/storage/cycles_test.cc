// Periods that need not be played: whole cycles after which all is as before, and not a part of one.
extern "C" {
#include "storage/predict/replay/cycles.h"
}

#include <gtest/gtest.h>

#include <vector>

namespace {

class Cycles : public ::testing::Test {
protected:
  // The first two periods are kept; the others repeat them, as told.
  void begin(const std::vector<int64_t> &repeats) {
    periods.assign(2, sl_tape_period{});
    for (int64_t same_as : repeats) {
      sl_tape_period period = {};
      period.same_as = same_as;
      periods.push_back(period);
    }
    for (size_t i = 0; i < periods.size(); i++)
      periods[i].period = (int64_t)i;
    periods[0].same_as = periods[1].same_as = -1;
    tape.periods = periods.data();
    tape.period_count = periods.size();
    cycles = sl_cycles_new(&tape);
  }
  void TearDown() override {
    cycles = sl_cycles_free(cycles);
  }
  size_t skip(size_t period, uint64_t signature) {
    return sl_cycles_skip(cycles, period, signature, &length);
  }

  std::vector<sl_tape_period> periods;
  sl_tape tape = {};
  sl_cycles *cycles = nullptr;
  size_t length = 0;
};

TEST_F(Cycles, AreLeftOutAsAWholeAndTheirRestIsPlayed) {
  begin({0, 1, 0, 1, 0, 1, 0, 1, 0}); // periods 2 to 10
  EXPECT_EQ(skip(2, 7), 0u);
  EXPECT_EQ(skip(3, 8), 0u);
  EXPECT_EQ(skip(4, 7), 6u); // 4 to 9: three times two
  EXPECT_EQ(length, 2u);
  EXPECT_EQ(skip(10, 7), 0u); // half a cycle
}

TEST_F(Cycles, OfOnePeriodGoToTheEnd) {
  begin({0, 0, 0, 0});
  EXPECT_EQ(skip(2, 7), 0u);
  EXPECT_EQ(skip(3, 7), 3u);
  EXPECT_EQ(length, 1u);
}

TEST_F(Cycles, BeginWhereAllIsAsItWas) {
  begin({0, 0, 0, 0});
  EXPECT_EQ(skip(2, 7), 0u);
  EXPECT_EQ(skip(3, 8), 0u);
  EXPECT_EQ(skip(4, 9), 0u);
  EXPECT_EQ(skip(5, 9), 1u);
}

TEST_F(Cycles, EndWhereSomethingElseIsKnown) {
  begin({0, 0, 0, 0, 0});
  periods[5].end = 1; // has an event of its own
  EXPECT_EQ(skip(2, 7), 0u);
  EXPECT_EQ(skip(3, 7), 2u);
  EXPECT_FALSE(sl_cycles_is_pure(&tape, 5));
  EXPECT_EQ(skip(6, 7), 0u); // what came before it is no cycle
}

} // namespace
