// Words of users against words that are known.
extern "C" {
#include "storage/words.h"
}

#include <gtest/gtest.h>

namespace {

TEST(Words, DistanceCountsEdits) {
  EXPECT_EQ(sl_word_distance("peaks", "peaks"), 0);
  EXPECT_EQ(sl_word_distance("peeks", "peaks"), 1);
  EXPECT_EQ(sl_word_distance("", "run"), 3);
  EXPECT_EQ(sl_word_distance("snapshot", "snapshots"), 1);
}

TEST(Words, TheNearestIsAtMostTwoEditsAway) {
  const char *const known[] = {"forward", "backward", "reduce"};
  EXPECT_STREQ(sl_word_nearest("foward", known, 3), "forward");
  EXPECT_STREQ(sl_word_nearest("bakcward", known, 3), "backward");
  EXPECT_EQ(sl_word_nearest("checkpoint", known, 3), nullptr);
}

} // namespace
