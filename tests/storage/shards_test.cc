// What FSDP2's rules say of shapes, against what a recorded run of these shapes took, and where shards are uneven.
extern "C" {
#include "storage/predict/shards/shards.h"
}

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace {

class Shards : public ::testing::Test {
protected:
  void add(uint64_t rows, uint64_t row_elements, bool is_trained = true) {
    sl_shard_parameter p = {};
    strcpy(p.dtype, "float32");
    p.rows = rows;
    p.row_elements = row_elements;
    p.element_bytes = 4;
    p.is_trained = is_trained;
    parameters.push_back(p);
    order.push_back((uint32_t)order.size());
    unit.parameters = order.data();
    unit.count = order.size();
    shards.parameters = parameters.data();
    shards.parameter_count = parameters.size();
    shards.multiprocessors = 132;
    shards.multiprocessor_threads = 2048;
  }
  // A block of the recorded job: norm, qkv, out, up, down, with their biases.
  void block() {
    const uint64_t rows[] = {768, 768, 2304, 2304, 768, 768, 3072, 3072, 768, 768};
    const uint64_t elements[] = {1, 1, 768, 1, 768, 1, 768, 1, 3072, 1};
    for (int i = 0; i < 10; i++)
      add(rows[i], elements[i]);
  }
  std::vector<sl_shard_parameter> parameters;
  std::vector<uint32_t> order;
  sl_shard_unit unit = {};
  sl_shards shards = {};
};

TEST_F(Shards, OfARecordedBlockTakeWhatWasRecorded) {
  block();
  EXPECT_EQ(sl_unit_gather(&shards, &unit, 4), 28345344u);
  EXPECT_EQ(sl_unit_copy_table(&shards, &unit, 4), 14200u);
  EXPECT_EQ(sl_unit_copy_table(&shards, &unit, 8), 7288u);
  EXPECT_EQ(sl_unit_reduce_input(&shards, &unit, 4), 28345344u);
  EXPECT_EQ(sl_unit_reduce_table(&shards, &unit, 4), 28208u);
  EXPECT_EQ(sl_unit_reduce_output(&shards, &unit, 8), 3543168u);
  EXPECT_EQ(sl_unit_cast(&shards, &unit, 4), 0u);
  EXPECT_EQ(sl_unit_reduce_cast(&shards, &unit, 4), 0u);
}

TEST_F(Shards, OfMixedPrecisionAreCastBeforeGathering) {
  block();
  strcpy(unit.param_dtype, "bfloat16");
  strcpy(unit.reduce_dtype, "float32");
  EXPECT_EQ(sl_unit_cast(&shards, &unit, 4), 3543168u);
  EXPECT_EQ(sl_unit_gather(&shards, &unit, 4), 14172672u);
  EXPECT_EQ(sl_unit_reduce_input(&shards, &unit, 4), 28345344u);
  EXPECT_EQ(sl_unit_reduce_cast(&shards, &unit, 4), 0u);
  strcpy(unit.reduce_dtype, "");
  EXPECT_EQ(sl_unit_reduce_input(&shards, &unit, 4), 14172672u);
  EXPECT_EQ(sl_unit_reduce_cast(&shards, &unit, 4), 7086336u); // back to the stored type
}

TEST_F(Shards, AreUnevenWhereRowsDoNotDivide) {
  add(10, 3);
  EXPECT_EQ(sl_shard_padded(&parameters[0], 4), 9u); // three rows each
  EXPECT_EQ(sl_shard_own(&parameters[0], 4, 0), 9u);
  EXPECT_EQ(sl_shard_own(&parameters[0], 4, 3), 3u); // the last one has what is left
  EXPECT_EQ(sl_shard_own(&parameters[0], 8, 5), 0u);
  EXPECT_EQ(sl_unit_gather(&shards, &unit, 4), 4u * 9u * 4u);
}

TEST_F(Shards, OfFrozenParametersHaveNoGradients) {
  add(8, 1);
  add(16, 1, false);
  EXPECT_EQ(sl_unit_reduce_output(&shards, &unit, 4), 8u);
  EXPECT_EQ(sl_unit_reduce_table(&shards, &unit, 4), 8u * (6 + 2 + 1));
}

} // namespace
