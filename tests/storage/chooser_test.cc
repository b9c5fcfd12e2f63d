// The allocator that chooses blocks itself: PyTorch's rules one by one, and its order of free blocks against std::set.
#include "fakes/sanitizers.h"

extern "C" {
#include "storage/allocator/chooser.h"
#include "storage/allocator/free_tree.h"
}

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <time.h>
#include <utility>
#include <vector>

namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

TEST(FreeTree, IsInTheOrderOfSizesAndAddresses) {
  std::mt19937 random(7);
  std::vector<sl_free_node> nodes(2000);
  std::set<std::pair<uint64_t, uint64_t>> expected;
  std::vector<bool> in(nodes.size());
  sl_free_node *root = nullptr;
  for (int turn = 0; turn < 20000; turn++) {
    size_t i = random() % nodes.size();
    if (in[i]) {
      expected.erase({nodes[i].bytes, nodes[i].address});
      sl_free_tree_remove(&root, &nodes[i]);
    } else {
      nodes[i].bytes = random() % 50;
      nodes[i].address = i;
      nodes[i].priority = (uint32_t)random();
      expected.insert({nodes[i].bytes, nodes[i].address});
      sl_free_tree_add(&root, &nodes[i]);
    }
    in[i] = !in[i];
    uint64_t wanted = random() % 60;
    auto found = expected.lower_bound({wanted, 0});
    sl_free_node *node = sl_free_tree_at_least(root, wanted);
    ASSERT_EQ(node != nullptr, found != expected.end());
    if (node) {
      ASSERT_EQ(std::make_pair(node->bytes, node->address), *found);
      sl_free_node *next = sl_free_tree_next(node), *previous = sl_free_tree_previous(node);
      ASSERT_EQ(next != nullptr, std::next(found) != expected.end());
      if (next) {
        ASSERT_EQ(std::make_pair(next->bytes, next->address), *std::next(found));
      }
      ASSERT_EQ(previous != nullptr, found != expected.begin());
      if (previous) {
        ASSERT_EQ(std::make_pair(previous->bytes, previous->address), *std::prev(found));
      }
    }
  }
}

class Chooser : public ::testing::Test {
protected:
  void TearDown() override {
    chooser = sl_chooser_free(chooser);
  }

  static uint64_t place_segment(void *context, uint64_t, uint32_t, uint64_t bytes, bool) {
    auto *self = static_cast<Chooser *>(context);
    self->next_address += 64 * kMiB + bytes / kMiB * kMiB;
    return self->next_address;
  }
  static void segment_gone(void *context, uint64_t) {
    static_cast<Chooser *>(context)->gone++;
  }

  void begin(const std::string &config = "", uint64_t limit = 0, uint64_t capacity = 0) {
    sl_chooser_options options = {};
    sl_allocator_config_parse(config.c_str(), &options.config);
    options.source = {this, place_segment, segment_gone};
    options.limit_bytes = limit;
    options.capacity_bytes = capacity;
    chooser = sl_chooser_new(&options);
    ASSERT_EQ(sl_chooser_place(chooser, 0, 0, &main), 0);
  }

  struct Tensor {
    sl_chosen_block *block = nullptr;
  };
  Tensor *request(uint64_t bytes, uint32_t place, int expected = 0) {
    tensors.push_back(std::make_unique<Tensor>());
    EXPECT_EQ(sl_chooser_request(chooser, place, bytes, &tensors.back()->block), expected);
    return tensors.back().get();
  }
  Tensor *request(uint64_t bytes) {
    return request(bytes, main);
  }
  void end(Tensor *tensor) {
    sl_chooser_release(chooser, tensor->block);
    sl_chooser_complete(chooser, tensor->block);
    EXPECT_EQ(tensor->block, nullptr);
  }
  uint64_t address(Tensor *tensor) {
    return sl_chosen_address(tensor->block);
  }
  uint64_t reserved() {
    return sl_chooser_totals(chooser)->reserved_bytes;
  }
  uint64_t allocated() {
    return sl_chooser_totals(chooser)->allocated_bytes;
  }

  sl_chooser *chooser = nullptr;
  uint32_t main = 0;
  uint64_t next_address = kMiB;
  int gone = 0;
  std::vector<std::unique_ptr<Tensor>> tensors;
};

TEST_F(Chooser, SmallOnesShareTwoMebibytesLargerOnesTwentyAndTheLargestHaveTheirOwn) {
  begin();
  request(100);
  EXPECT_EQ(allocated(), 512u);
  EXPECT_EQ(reserved(), 2 * kMiB);
  request(1 * kMiB);
  EXPECT_EQ(reserved(), 2 * kMiB);
  request(1 * kMiB + 1);
  EXPECT_EQ(reserved(), 22 * kMiB);
  request(10 * kMiB + 1);
  EXPECT_EQ(reserved(), 22 * kMiB); // what is left of the 20 MiB
  request(10 * kMiB + 1);
  EXPECT_EQ(reserved(), 34 * kMiB);
  EXPECT_EQ(sl_chooser_totals(chooser)->requested_bytes, 100 + kMiB + kMiB + 1 + 2 * (10 * kMiB + 1));
}

TEST_F(Chooser, TakesTheSmallestBlockThatFitsAndOfEqualOnesTheLowest) {
  begin();
  auto *a = request(30 * kMiB), *b = request(20 * kMiB), *c = request(20 * kMiB);
  uint64_t of_b = address(b);
  end(a);
  end(c);
  end(b);
  auto *d = request(20 * kMiB);
  EXPECT_EQ(address(d), of_b);
}

TEST_F(Chooser, TwoWholeSegmentsAreAsGoodAsEachOther) {
  begin();
  auto *a = request(30 * kMiB), *b = request(30 * kMiB);
  end(a);
  end(b);
  request(30 * kMiB);
  request(20 * kMiB); // the front of the other one
  EXPECT_FALSE(sl_chooser_open(chooser).segments);
}

TEST_F(Chooser, BlocksOfOneSegmentHaveAKnownOrder) {
  begin();
  std::vector<Tensor *> blocks;
  for (int i = 0; i < 6; i++)
    blocks.push_back(request(2 * kMiB)); // of 20 MiB
  end(blocks[1]);
  end(blocks[3]);
  request(2 * kMiB);
  EXPECT_FALSE(sl_chooser_open(chooser).segments);
}

TEST_F(Chooser, TellsWhereTheOrderOfSegmentsHasDecided) {
  begin();
  for (int i = 0; i < 2; i++)
    request(15 * kMiB); // of 16 MiB each, whole
  EXPECT_EQ(reserved(), 32 * kMiB);
  auto *a = request(20 * kMiB), *b = request(20 * kMiB);
  end(a);
  end(b);
  request(11 * kMiB);
  request(11 * kMiB); // each leaves 9 MiB
  EXPECT_FALSE(sl_chooser_open(chooser).segments);
  request(4 * kMiB);
  EXPECT_TRUE(sl_chooser_open(chooser).segments);
  EXPECT_TRUE(sl_chooser_open(chooser).sizes);
}

TEST_F(Chooser, OfTwoWholeSegmentsTheAgeDecidesWhereOldOnesAreCollected) {
  begin("garbage_collection_threshold:0.5", 1024 * kMiB);
  auto *a = request(30 * kMiB), *b = request(30 * kMiB);
  end(a);
  end(b);
  request(30 * kMiB);
  EXPECT_TRUE(sl_chooser_open(chooser).segments);
}

TEST_F(Chooser, TheOrderOfSmallSegmentsDecidesNoSizeUnlessThereIsALimit) {
  for (uint64_t limit : {uint64_t{0}, 1024 * kMiB}) {
    begin("", limit);
    std::vector<Tensor *> small;
    for (int i = 0; i < 4; i++)
      small.push_back(request(kMiB)); // two segments
    end(small[0]);
    end(small[2]);
    request(kMiB);
    EXPECT_TRUE(sl_chooser_open(chooser).segments);
    EXPECT_EQ(sl_chooser_open(chooser).sizes, limit != 0);
    chooser = sl_chooser_free(chooser);
  }
}

TEST_F(Chooser, AnExpandableSegmentHasAKnownOrder) {
  begin("expandable_segments:True");
  std::vector<Tensor *> blocks;
  for (int i = 0; i < 6; i++)
    blocks.push_back(request(12 * kMiB));
  end(blocks[1]);
  end(blocks[3]);
  request(12 * kMiB);
  EXPECT_FALSE(sl_chooser_open(chooser).segments);
}

TEST_F(Chooser, KeepsALargeBlockWholeWhereLessThanAMebibyteWouldBeLeft) {
  begin();
  end(request(20 * kMiB));
  request(19 * kMiB);
  EXPECT_EQ(allocated(), 20 * kMiB);
  end(request(40 * kMiB));
  request(38 * kMiB);
  EXPECT_EQ(allocated(), 58 * kMiB);
}

TEST_F(Chooser, JoinsFreeNeighboursOfASegment) {
  begin();
  auto *a = request(4 * kMiB), *b = request(4 * kMiB), *c = request(4 * kMiB);
  uint64_t first = address(a);
  end(a);
  end(c);
  end(b);
  EXPECT_EQ(sl_chooser_idle_segments(chooser, 0), 1u);
  EXPECT_EQ(address(request(20 * kMiB)), first);
}

TEST_F(Chooser, StreamsAndPoolsHaveTheirOwnBlocks) {
  begin();
  uint32_t other = 0, pool = 0;
  ASSERT_EQ(sl_chooser_place(chooser, 7, 0, &other), 0);
  ASSERT_EQ(sl_chooser_place(chooser, 0, 1, &pool), 0);
  end(request(20 * kMiB));
  request(20 * kMiB, other);
  EXPECT_EQ(reserved(), 40 * kMiB);
  end(request(20 * kMiB, pool));
  EXPECT_EQ(reserved(), 60 * kMiB);
  sl_chooser_empty(chooser, 0); // the pool's stays
  EXPECT_EQ(reserved(), 40 * kMiB);
  EXPECT_EQ(gone, 1);
}

TEST_F(Chooser, ABlockThatAnotherStreamUsesIsNotFreeYet) {
  begin();
  auto *a = request(20 * kMiB);
  sl_chooser_release(chooser, a->block);
  EXPECT_EQ(allocated(), 0u);
  EXPECT_EQ(sl_chooser_totals(chooser)->active_bytes, 20 * kMiB);
  request(20 * kMiB);
  EXPECT_EQ(reserved(), 40 * kMiB);
  sl_chooser_complete(chooser, a->block);
  request(20 * kMiB);
  EXPECT_EQ(reserved(), 40 * kMiB);
}

TEST_F(Chooser, RoundsUpToDivisionsOfAPowerOfTwo) {
  begin("roundup_power2_divisions:4");
  request(5 * kMiB + 1);
  EXPECT_EQ(allocated(), 6 * kMiB);
}

TEST_F(Chooser, DoesNotSplitOversizeBlocksNorGiveThemToSmallerRequests) {
  begin("max_split_size_mb:32");
  end(request(40 * kMiB));
  request(20 * kMiB);
  EXPECT_EQ(reserved(), 60 * kMiB);
  request(33 * kMiB); // the 40 MiB, whole
  EXPECT_EQ(reserved(), 60 * kMiB);
  EXPECT_EQ(allocated(), 60 * kMiB);
  end(request(100 * kMiB));
  request(50 * kMiB); // 50 MiB too large
  EXPECT_EQ(reserved(), 210 * kMiB);
}

TEST_F(Chooser, ExpandableSegmentsGrowByPagesAndKeepTheirRest) {
  begin("expandable_segments:True");
  auto *a = request(30 * kMiB);
  EXPECT_EQ(reserved(), 40 * kMiB);
  auto *b = request(15 * kMiB); // 10 MiB are there, 20 more are mapped behind them
  EXPECT_EQ(reserved(), 60 * kMiB);
  EXPECT_EQ(address(b), address(a) + 30 * kMiB);
  request(4 * kKiB);
  EXPECT_EQ(reserved(), 62 * kMiB);
  end(b);
  sl_chooser_empty(chooser, 0);
  EXPECT_EQ(reserved(), 42 * kMiB); // 30 MiB alive and the 10 beside them on their page
  end(a);
  sl_chooser_empty(chooser, 0);
  EXPECT_EQ(reserved(), 2 * kMiB);
}

TEST_F(Chooser, ExpandableSegmentsFillTheHoleThatWasUnmapped) {
  begin("expandable_segments:True");
  auto *a = request(40 * kMiB), *b = request(40 * kMiB);
  uint64_t hole = address(a);
  end(a);
  sl_chooser_empty(chooser, 0);
  EXPECT_EQ(reserved(), 40 * kMiB);
  EXPECT_EQ(address(request(40 * kMiB)), hole);
  EXPECT_EQ(reserved(), 80 * kMiB);
  EXPECT_GT(address(b), hole);
}

TEST_F(Chooser, GivesCachedSegmentsBackBeforeItRefuses) {
  begin("", 0, 100 * kMiB);
  end(request(40 * kMiB));
  auto *small = request(30 * kMiB); // of the 40
  EXPECT_EQ(reserved(), 40 * kMiB);
  end(small);
  request(80 * kMiB);
  EXPECT_EQ(reserved(), 80 * kMiB);
  EXPECT_EQ(sl_chooser_retries(chooser), 1u);
  request(30 * kMiB, main, 1);
  EXPECT_EQ(reserved(), 80 * kMiB);
  request(20 * kMiB);
  EXPECT_EQ(reserved(), 100 * kMiB);
}

TEST_F(Chooser, ARetryWaitsForOtherStreams) {
  begin("", 0, 50 * kMiB);
  auto *a = request(40 * kMiB);
  sl_chooser_release(chooser, a->block);
  request(44 * kMiB);
  EXPECT_EQ(a->block, nullptr);
  sl_chooser_complete(chooser, a->block); // it has been
  EXPECT_EQ(reserved(), 44 * kMiB);
}

TEST_F(Chooser, CollectsOldSegmentsAboveTheThresholdOnlyWithALimit) {
  begin("garbage_collection_threshold:0.5", 200 * kMiB);
  end(request(60 * kMiB));
  end(request(70 * kMiB));
  EXPECT_EQ(reserved(), 130 * kMiB);
  for (int i = 0; i < 5; i++)
    end(request(65 * kMiB)); // the 70 MiB are in use, the 60 grow old
  request(80 * kMiB);
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(reserved(), 150 * kMiB);
}

TEST_F(Chooser, WhatWasThereBeforeIsSplitAsItWas) {
  begin();
  ASSERT_EQ(sl_chooser_restore_segment(chooser, main, 1000 * kMiB, 20 * kMiB, false), 0);
  Tensor a, b;
  ASSERT_EQ(sl_chooser_restore_block(chooser, 1004 * kMiB, 2 * kMiB, 2 * kMiB - 1, &a.block), 0);
  EXPECT_EQ(sl_chooser_restore_block(chooser, 1005 * kMiB, 2 * kMiB, 2 * kMiB, &b.block), -EINVAL);
  EXPECT_EQ(allocated(), 2 * kMiB);
  EXPECT_EQ(address(request(4 * kMiB)), 1000 * kMiB);
  EXPECT_EQ(address(request(14 * kMiB)), 1006 * kMiB);
  EXPECT_EQ(reserved(), 20 * kMiB);
}

#ifdef NDEBUG
constexpr bool IS_OPTIMIZED = !SANITIZED;
#else
constexpr bool IS_OPTIMIZED = false;
#endif

// Of this thread.
double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Half a millisecond where this was written.
TEST_F(Chooser, AStepOfTwoThousandAllocationsTakesLessThanFiveMilliseconds) {
  begin();
  std::mt19937 random(3);
  std::vector<uint64_t> sizes(2000);
  for (auto &bytes : sizes)
    bytes = 512 + random() % (random() % 4 ? 200 * kKiB : 30 * kMiB);
  std::vector<sl_chosen_block *> blocks(sizes.size());
  double best = 1e9;
  for (int step = 0; step < 20; step++) {
    const double start = processor_seconds();
    for (size_t i = 0; i < sizes.size(); i++) {
      ASSERT_EQ(sl_chooser_request(chooser, main, sizes[i], &blocks[i]), 0);
      if (i % 2) {
        sl_chooser_release(chooser, blocks[i - 1]);
        sl_chooser_complete(chooser, blocks[i - 1]);
      }
    }
    for (auto *block : blocks) {
      sl_chooser_release(chooser, block);
      sl_chooser_complete(chooser, block);
    }
    best = std::min(best, processor_seconds() - start);
  }
  if (IS_OPTIMIZED) {
    EXPECT_LT(best, 0.005);
  }
  RecordProperty("seconds", std::to_string(best));
}

TEST_F(Chooser, AMillionAllocationsTakeLessThanTenSeconds) {
  begin("expandable_segments:True,large_segment_size_mb:2");
  std::mt19937 random(5);
  std::vector<sl_chosen_block *> blocks(20000); // alive at once, in any order
  const double start = processor_seconds();
  for (int i = 0; i < 1000000; i++) {
    sl_chosen_block *&block = blocks[random() % blocks.size()];
    if (block) {
      sl_chooser_release(chooser, block);
      sl_chooser_complete(chooser, block);
    }
    ASSERT_EQ(sl_chooser_request(chooser, main, 512 + random() % (random() % 8 ? 64 * kKiB : 8 * kMiB), &block), 0);
  }
  const double took = processor_seconds() - start;
  if (IS_OPTIMIZED) {
    EXPECT_LT(took, 10);
  }
  RecordProperty("seconds", std::to_string(took));
}

} // namespace
