// Replaying PyTorch's allocator: the sums that torch.cuda.memory_stats would show after each event.
extern "C" {
#include "plugin/format/events.h"
#include "storage/allocator/block_map.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint64_t kMiB = 1 << 20;

class BlockMap : public ::testing::Test {
protected:
  void SetUp() override {
    use("");
  }
  void TearDown() override {
    sl_block_map_free(map);
  }

  void use(const char *config_text) {
    sl_block_map_free(map);
    sl_allocator_config config;
    sl_allocator_config_parse(config_text, &config);
    map = sl_block_map_new(&config);
  }

  sl_block_change apply(int action, uint64_t address, uint64_t bytes, uint32_t place = 1) {
    sl_block_change change;
    EXPECT_EQ(sl_block_map_apply(map, action, address, bytes, place, &change), 0);
    return change;
  }

  void release(uint64_t address) {
    apply(SL_FREE_REQUESTED, address, 0);
    apply(SL_FREE_COMPLETED, address, 0);
  }

  const sl_block_totals &totals() {
    return *sl_block_map_totals(map);
  }

  sl_block_map *map = nullptr;
};

TEST_F(BlockMap, RoundsASmallRequestTo512BytesAndSplitsTheRestOff) {
  apply(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
  EXPECT_EQ(apply(SL_ALLOC, 0x1000000, 4).block_bytes, 512u);
  EXPECT_EQ(apply(SL_ALLOC, 0x1000200, 1000).block_bytes, 1024u);
  EXPECT_EQ(totals().requested_bytes, 1004u);
  EXPECT_EQ(totals().allocated_bytes, 1536u);
  EXPECT_EQ(totals().reserved_bytes, 2 * kMiB);
}

TEST_F(BlockMap, KeepsALargeBlockWholeWhenLessThanAMebibyteWouldRemain) {
  apply(SL_SEGMENT_ALLOC, 0x2000000, 12 * kMiB);
  EXPECT_EQ(apply(SL_ALLOC, 0x2000000, 11 * kMiB).block_bytes, 12 * kMiB);
  EXPECT_EQ(totals().allocated_bytes, 12 * kMiB);
  EXPECT_EQ(totals().requested_bytes, 11 * kMiB);
}

TEST_F(BlockMap, SplitsALargeBlockWhenMoreThanAMebibyteRemains) {
  apply(SL_SEGMENT_ALLOC, 0x2000000, 20 * kMiB);
  EXPECT_EQ(apply(SL_ALLOC, 0x2000000, 3 * kMiB).block_bytes, 3 * kMiB);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 17 * kMiB);
}

TEST_F(BlockMap, AllocatedFallsAtTheRequestAndActiveAtTheCompletion) {
  apply(SL_SEGMENT_ALLOC, 0x2000000, 2 * kMiB);
  apply(SL_ALLOC, 0x2000000, 512);
  apply(SL_FREE_REQUESTED, 0x2000000, 512);
  EXPECT_EQ(totals().allocated_bytes, 0u);
  EXPECT_EQ(totals().active_bytes, 512u);
  EXPECT_EQ(totals().requested_bytes, 512u);
  apply(SL_FREE_COMPLETED, 0x2000000, 512);
  EXPECT_EQ(totals().active_bytes, 0u);
  EXPECT_EQ(totals().requested_bytes, 0u);
}

TEST_F(BlockMap, MergesFreedNeighboursSoThatALargerRequestFits) {
  apply(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
  apply(SL_ALLOC, 0x1000000, 512);
  apply(SL_ALLOC, 0x1000200, 512);
  apply(SL_ALLOC, 0x1000400, 512);
  release(0x1000000);
  release(0x1000400);
  release(0x1000200);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 2 * kMiB);
  EXPECT_FALSE(apply(SL_ALLOC, 0x1000000, kMiB).unknown);
  release(0x1000000);
  EXPECT_FALSE(apply(SL_SEGMENT_FREE, 0x1000000, 2 * kMiB).unknown);
  EXPECT_EQ(totals().reserved_bytes, 0u);
}

TEST_F(BlockMap, DoesNotMergeWithABlockThatAnotherStreamMayStillUse) {
  apply(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
  apply(SL_ALLOC, 0x1000000, kMiB);
  apply(SL_ALLOC, 0x1100000, kMiB);
  apply(SL_FREE_REQUESTED, 0x1000000, kMiB);
  release(0x1100000);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, kMiB);
}

TEST_F(BlockMap, DoesNotMergeAcrossSegments) {
  apply(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
  apply(SL_SEGMENT_ALLOC, 0x1200000, 2 * kMiB);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 2 * kMiB);
}

TEST_F(BlockMap, JoinsMappedRangesOfAnExpandableSegment) {
  use("expandable_segments:True");
  apply(SL_SEGMENT_MAP, 0x1000000, 2 * kMiB);
  apply(SL_SEGMENT_MAP, 0x1200000, 2 * kMiB);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 4 * kMiB);
  EXPECT_EQ(apply(SL_ALLOC, 0x1000000, 3 * kMiB).block_bytes, 3 * kMiB);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, kMiB);
  apply(SL_SEGMENT_MAP, 0x1400000, 2 * kMiB);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 3 * kMiB);
}

TEST_F(BlockMap, UnmapsTheMiddleOfAFreeRange) {
  use("expandable_segments:True");
  apply(SL_SEGMENT_MAP, 0x1000000, 6 * kMiB);
  EXPECT_FALSE(apply(SL_SEGMENT_UNMAP, 0x1200000, 2 * kMiB).unknown);
  EXPECT_EQ(totals().reserved_bytes, 4 * kMiB);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 2 * kMiB);
  EXPECT_FALSE(apply(SL_SEGMENT_MAP, 0x1200000, 2 * kMiB).unknown);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 6 * kMiB);
}

TEST_F(BlockMap, MappedRangesOfOtherStreamsStayApart) {
  use("expandable_segments:True");
  apply(SL_SEGMENT_MAP, 0x1000000, 2 * kMiB, 1);
  apply(SL_SEGMENT_MAP, 0x1200000, 2 * kMiB, 2);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 2 * kMiB);
}

TEST_F(BlockMap, SaysSoWhenMemoryFromBeforeRecordingIsFreed) {
  EXPECT_TRUE(apply(SL_FREE_REQUESTED, 0x5000, 512).unknown);
  EXPECT_TRUE(apply(SL_FREE_COMPLETED, 0x5000, 512).unknown);
  EXPECT_TRUE(apply(SL_SEGMENT_FREE, 0x5000, 512).unknown);
  EXPECT_TRUE(apply(SL_ALLOC, 0x5000, 512).unknown);
  EXPECT_EQ(totals().allocated_bytes, 0u);
}

TEST_F(BlockMap, ReturnsTheUserPointerOfABlockUntilItsFreeIsComplete) {
  int user = 0;
  apply(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
  apply(SL_ALLOC, 0x1000000, 512);
  sl_block_map_set_user(map, &user);
  EXPECT_EQ(sl_block_map_find(map, 0x1000000), &user);
  EXPECT_EQ(apply(SL_FREE_REQUESTED, 0x1000000, 512).user, &user);
  EXPECT_EQ(sl_block_map_find(map, 0x1000000), nullptr);
  EXPECT_EQ(apply(SL_FREE_COMPLETED, 0x1000000, 512).user, &user);
}

TEST_F(BlockMap, FindsEachOfManyBlocksWhicheverHaveGone) {
  std::vector<int> users(3000);
  const auto address = [](size_t i) { return 0x7f0000000000 + i * 2 * kMiB; };
  for (size_t i = 0; i < users.size(); i++) {
    apply(SL_SEGMENT_ALLOC, address(i), 2 * kMiB);
    apply(SL_ALLOC, address(i), 512);
    sl_block_map_set_user(map, &users[i]);
  }
  for (size_t i = 0; i < users.size(); i += 3) {
    release(address(i));
    apply(SL_SEGMENT_FREE, address(i), 2 * kMiB);
  }
  for (size_t i = 0; i < users.size(); i++)
    EXPECT_EQ(sl_block_map_find(map, address(i)), i % 3 ? &users[i] : nullptr) << i;
  EXPECT_EQ(totals().allocated_bytes, users.size() / 3 * 2 * 512);
  size_t count;
  struct sl_block *blocks = sl_block_map_blocks(map, &count);
  ASSERT_EQ(count, users.size() / 3 * 2 * 2);
  for (size_t i = 0; i < count; i += 2) { /* in order of address: what is used, and the rest of its segment */
    const size_t segment = i / 2 / 2 * 3 + 1 + i / 2 % 2;
    EXPECT_EQ(blocks[i].address, address(segment));
    EXPECT_EQ(blocks[i].user, &users[segment]);
    EXPECT_EQ(blocks[i + 1].address, address(segment) + 512);
    EXPECT_EQ(blocks[i + 1].user, nullptr);
  }
  free(blocks);
}

TEST_F(BlockMap, MaxSplitSizeKeepsLargerBlocksWhole) {
  use("max_split_size_mb:32");
  apply(SL_SEGMENT_ALLOC, 0x8000000, 100 * kMiB);
  EXPECT_EQ(apply(SL_ALLOC, 0x8000000, 40 * kMiB).block_bytes, 100 * kMiB);
}

TEST(AllocatorConfig, RoundsUpToDivisionsOfThePowerOfTwo) {
  sl_allocator_config config;
  sl_allocator_config_parse("roundup_power2_divisions:4", &config);
  EXPECT_EQ(sl_allocator_round(&config, 1200 * 1024), 1280u * 1024); // as PyTorch's documentation: 1200 → 1280
  EXPECT_EQ(sl_allocator_round(&config, 4 * kMiB), 4 * kMiB);
}

TEST(AllocatorConfig, ReadsDivisionsBySizeAndOtherOptionsAroundThem) {
  sl_allocator_config config;
  sl_allocator_config_parse("max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2,>:8],expandable_segments:True",
                            &config);
  EXPECT_EQ(config.max_split_bytes, 64 * kMiB);
  EXPECT_TRUE(config.expandable_segments);
  EXPECT_EQ(sl_allocator_round(&config, 300 * kMiB + 1), 300 * kMiB + 512);
  EXPECT_EQ(sl_allocator_round(&config, 600 * kMiB), 768 * kMiB);
  EXPECT_EQ(sl_allocator_round(&config, 1100 * kMiB), 1152 * kMiB);
}

TEST(AllocatorConfig, WantsWholeSegmentsFromTheDriver) {
  sl_allocator_config config;
  sl_allocator_config_parse("", &config);
  EXPECT_EQ(sl_allocator_segment(&config, 512), 2 * kMiB);
  EXPECT_EQ(sl_allocator_segment(&config, kMiB), 2 * kMiB);
  EXPECT_EQ(sl_allocator_segment(&config, kMiB + 512), 20 * kMiB);
  EXPECT_EQ(sl_allocator_segment(&config, 10 * kMiB), 10 * kMiB);
  EXPECT_EQ(sl_allocator_segment(&config, 24 * kMiB + 512), 26 * kMiB);
  sl_allocator_config_parse("large_segment_size_mb:64", &config);
  EXPECT_EQ(sl_allocator_segment(&config, 5 * kMiB), 64 * kMiB);
}

TEST(AllocatorConfig, DefaultsToPlainRounding) {
  sl_allocator_config config;
  sl_allocator_config_parse(nullptr, &config);
  EXPECT_EQ(sl_allocator_round(&config, 1), 512u);
  EXPECT_EQ(sl_allocator_round(&config, 513), 1024u);
  EXPECT_EQ(sl_allocator_round(&config, 32072), 32256u);
}

class RestoredBlockMap : public BlockMap {
protected:
  void SetUp() override {
    BlockMap::SetUp();
    restore(0x1000000, 4096, 4000, SL_BLOCK_ALLOCATED, true);
    restore(0x1001000, 512, 100, SL_BLOCK_PENDING, false);
    restore(0x1001200, 2 * kMiB - 4608, 777, SL_BLOCK_FREE, false); // what was in a free block once means nothing
    restore(0x1200000, 2 * kMiB, 0, SL_BLOCK_FREE, true);           // next to it by chance
  }

  int restore(uint64_t address, uint64_t bytes, uint64_t requested, int state, bool starts, uint32_t place = 1) {
    return sl_block_map_restore(map, address, bytes, requested, state, place, starts);
  }

  void expect_totals(uint64_t requested, uint64_t allocated, uint64_t active, uint64_t reserved) {
    EXPECT_EQ(totals().requested_bytes, requested);
    EXPECT_EQ(totals().allocated_bytes, allocated);
    EXPECT_EQ(totals().active_bytes, active);
    EXPECT_EQ(totals().reserved_bytes, reserved);
  }
};

TEST_F(RestoredBlockMap, HasTheTotalsOfItsBlocks) {
  expect_totals(4100, 4096, 4608, 4 * kMiB);
}

TEST_F(RestoredBlockMap, GoesOnAsIfItHadSeenTheBlocksBegin) {
  EXPECT_FALSE(apply(SL_FREE_COMPLETED, 0x1001000, 512).unknown);
  expect_totals(4000, 4096, 4096, 4 * kMiB);
  EXPECT_EQ(apply(SL_ALLOC, 0x1001000, 1024).block_bytes, 1024u); // the free neighbours are one block
  release(0x1001000);
  release(0x1000000);
  expect_totals(0, 0, 0, 4 * kMiB);
  EXPECT_FALSE(apply(SL_SEGMENT_FREE, 0x1000000, 2 * kMiB).unknown);
  EXPECT_FALSE(apply(SL_SEGMENT_FREE, 0x1200000, 2 * kMiB).unknown);
  expect_totals(0, 0, 0, 0);
}

TEST_F(RestoredBlockMap, KeepsSegmentsThatAreNeighboursApart) {
  EXPECT_TRUE(apply(SL_SEGMENT_FREE, 0x1001200, 4 * kMiB - 4608).unknown);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 2 * kMiB);
}

TEST_F(RestoredBlockMap, GivesAUserPointerBackWithTheBlocksFree) {
  int user = 0;
  restore(0x3000000, 2 * kMiB, 2 * kMiB, SL_BLOCK_ALLOCATED, true);
  sl_block_map_set_user(map, &user);
  EXPECT_EQ(sl_block_map_find(map, 0x3000000), &user);
  EXPECT_EQ(sl_block_map_find(map, 0x1000000), nullptr);
  EXPECT_EQ(apply(SL_FREE_REQUESTED, 0x3000000, 0).user, &user);
}

TEST_F(RestoredBlockMap, MapsFurtherMemoryToAnExpandableSegment) {
  use("expandable_segments:True");
  restore(0x2000000, 20 * kMiB, 20 * kMiB, SL_BLOCK_ALLOCATED, true, 7);
  apply(SL_SEGMENT_MAP, 0x2000000 + 20 * kMiB, 20 * kMiB, 7);
  release(0x2000000);
  EXPECT_EQ(sl_block_map_free_blocks(map).largest_bytes, 40 * kMiB);
  EXPECT_FALSE(apply(SL_SEGMENT_UNMAP, 0x2000000 + 20 * kMiB, 20 * kMiB, 7).unknown);
  expect_totals(0, 0, 0, 20 * kMiB);
}

TEST_F(RestoredBlockMap, RefusesBlocksThatCannotBe) {
  EXPECT_EQ(restore(0x1000000, 512, 512, SL_BLOCK_ALLOCATED, true), -EINVAL);
  EXPECT_EQ(restore(0x5000000, 0, 0, SL_BLOCK_FREE, true), -EINVAL);
  EXPECT_EQ(restore(0x5000000, 512, 512, 3, true), -EINVAL);
  expect_totals(4100, 4096, 4608, 4 * kMiB);
}

} // namespace
