// Lists of ranks as people write them.
extern "C" {
#include "storage/rank_ranges.h"
}

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace {

std::string ranges_of(std::initializer_list<int64_t> ranks, size_t limit = 0) {
  sl_rank_ranges ranges = {};
  for (int64_t rank : ranks)
    EXPECT_EQ(sl_rank_ranges_add(&ranges, rank, rank), 0);
  char *text = sl_rank_ranges_text(&ranges, limit);
  const std::string result = text;
  free(text);
  free(ranges.list);
  return result;
}

TEST(RankRanges, JoinWhatTouchesInAnyOrder) {
  EXPECT_EQ(ranges_of({}), "");
  EXPECT_EQ(ranges_of({7}), "7");
  EXPECT_EQ(ranges_of({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(ranges_of({80, 71, 64, 66, 65, 70, 69, 68, 67}), "64-71,80");
  EXPECT_EQ(ranges_of({3, 3, 1, 3}), "1,3");
}

TEST(RankRanges, CountWhatIsBeyondTheLimit) {
  EXPECT_EQ(ranges_of({0, 2, 4, 5, 6, 9}, 2), "0,2,… (4 more)");
  EXPECT_EQ(ranges_of({0, 2}, 2), "0,2");
}

TEST(RankRanges, TakeSpansThatOverlap) {
  sl_rank_ranges ranges = {};
  sl_rank_ranges_add(&ranges, 10, 20);
  sl_rank_ranges_add(&ranges, 0, 4);
  sl_rank_ranges_add(&ranges, 12, 13);
  sl_rank_ranges_add(&ranges, 9, 8);
  sl_rank_ranges_add(&ranges, 5, 5);
  char *text = sl_rank_ranges_text(&ranges, 0);
  EXPECT_STREQ(text, "0-5,10-20");
  free(text);
  free(ranges.list);
}

} // namespace
