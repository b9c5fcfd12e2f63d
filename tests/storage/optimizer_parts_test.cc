// Which parameter each allocation of an optimizer's step is of, with several groups and frozen parameters.
extern "C" {
#include "storage/predict/shards/optimizer_parts.h"
}

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

class OptimizerParts : public ::testing::Test {
protected:
  OptimizerParts() {
    for (uint64_t elements : {100, 20, 7}) {
      names.push_back("p" + std::to_string(names.size()));
      sl_shard_parameter p = {};
      p.rows = elements;
      p.row_elements = 1;
      p.element_bytes = 4;
      p.unit = 1;
      p.is_trained = true;
      parameters.push_back(p);
    }
  }
  // In the one step that there is; state 0: a temporary.
  void make(uint64_t bytes, uint32_t state = 0, uint32_t parameter = 0) {
    sl_tape_allocation a = {};
    a.requested = bytes;
    a.state = state;
    a.parameter = parameter;
    a.optimizer_step = 5;
    allocations.push_back(a);
  }
  void group(std::vector<uint32_t> numbers) {
    members.push_back(std::move(numbers));
  }
  int find() {
    std::vector<char *> words, state_words;
    for (size_t i = 0; i < parameters.size(); i++) {
      parameters[i].name = names[i].data();
      words.push_back(names[i].data());
    }
    for (auto &state : states)
      state_words.push_back(state.data());
    std::vector<sl_shard_group> groups;
    for (auto &one : members)
      groups.push_back({1, one.data(), one.size(), true});
    sl_tape_optimizer_step step = {5, 0, 10, 20};
    sl_tape tape = {};
    tape.allocations = allocations.data();
    tape.allocation_count = allocations.size();
    tape.optimizer_steps = &step;
    tape.optimizer_step_count = 1;
    tape.parameters = {words.data(), words.size()};
    tape.states = {state_words.data(), state_words.size()};
    sl_shards shards = {};
    shards.parameters = parameters.data();
    shards.parameter_count = parameters.size();
    shards.groups = groups.data();
    shards.group_count = groups.size();
    found.assign(allocations.size(), 0);
    return sl_optimizer_parts(&tape, &shards, 2, found.data(), &error);
  }

  std::vector<std::string> names, states = {"exp_avg", "step", "preconditioner"};
  std::vector<sl_shard_parameter> parameters;
  std::vector<sl_tape_allocation> allocations;
  std::vector<std::vector<uint32_t>> members;
  std::vector<uint32_t> found;
  sl_error error = {};
};

TEST_F(OptimizerParts, AreOfEachGroupInItsOrder) {
  group({2, 0});
  group({1});
  for (uint64_t bytes : {16, 200, 40}) // halves of 7 (padded: 4), 100 and 20 elements
    make(bytes);
  ASSERT_EQ(find(), 0) << error.text;
  EXPECT_EQ(found, (std::vector<uint32_t>{3, 1, 2}));
}

TEST_F(OptimizerParts, MayBeTwoOfEach) {
  group({0, 1});
  for (uint64_t bytes : {200, 200, 40, 40}) // one parameter after the other
    make(bytes);
  ASSERT_EQ(find(), 0) << error.text;
  EXPECT_EQ(found, (std::vector<uint32_t>{1, 1, 2, 2}));
  allocations.clear();
  for (uint64_t bytes : {200, 40, 200, 40}) // all of them again
    make(bytes);
  ASSERT_EQ(find(), 0) << error.text;
  EXPECT_EQ(found, (std::vector<uint32_t>{1, 2, 1, 2}));
}

TEST_F(OptimizerParts, AreToldByTheNamesOfStates) {
  group({0});
  make(200, 1, 1);
  make(4, 2, 1); // a count of steps is of no parameter's size
  ASSERT_EQ(find(), 0) << error.text;
  EXPECT_EQ(found, (std::vector<uint32_t>{1, 0}));
}

TEST_F(OptimizerParts, AreRefusedWhereSizesSaySomethingElse) {
  group({0, 1});
  make(200);
  make(44);
  EXPECT_EQ(find(), -ENOTSUP);
  EXPECT_NE(std::string(error.text).find("its temporaries are others"), std::string::npos) << error.text;
  allocations.clear();
  make(200);
  EXPECT_EQ(find(), -ENOTSUP); // one, of two parameters
  allocations.clear();
  make(200, 3, 1); // a state of which nobody knows the shape
  EXPECT_EQ(find(), -ENOTSUP);
  EXPECT_NE(std::string(error.text).find("other states"), std::string::npos) << error.text;
}

} // namespace
