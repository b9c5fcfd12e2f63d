// What PyTorch's trackers would call an allocation: the rules that tracker_label.h lists.
#include "fakes/log_builder.h"

extern "C" {
#include "storage/attribution/attribution.h"
#include "storage/tracker/tracker_label.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

class TrackerLabel : public ::testing::Test {
protected:
  TrackerLabel() {
    backward.kind = SL_KIND_backward;
    optimizer.kind = SL_KIND_optimizer_step;
    forward.kind = SL_KIND_forward;
    forward.module = 3;
    recompute.kind = SL_KIND_recompute;
    recompute.parent = &backward;
  }

  sl_allocation make(int category, sl_phase *phase) {
    sl_allocation a{};
    a.category = category;
    a.phase = phase;
    a.module = 3;
    a.tag_category = -1;
    a.requested_bytes = 1000;
    return a;
  }

  ~TrackerLabel() override {
    sl_phases_free(phases);
    sl_log_close(log);
    std::filesystem::remove_all(directory);
  }

  // {label at first, label later}
  std::vector<int> labels(const sl_allocation &a, sl_tracker_kind kind = SL_TRACKER_fsdp, bool scratch = false) {
    sl_tracked tracked = track(a);
    tracked.scratch = scratch;
    sl_tracker_label(&tracked, kind, phases);
    EXPECT_EQ(tracked.bytes, 1024u);
    return {tracked.label, tracked.later};
  }

  static sl_tracked track(const sl_allocation &a, int counted = -1) {
    sl_tracked tracked{};
    tracked.allocation = &a;
    tracked.counted = counted;
    return tracked;
  }

  bool loses_sight(const sl_allocation &a, int counted) {
    sl_tracked tracked = track(a, counted);
    return sl_tracker_loses_sight(&tracked, &facts, phases);
  }

  int relabel(const sl_allocation &a) {
    sl_tracked tracked = track(a);
    sl_tracker_relabel(&tracked, sl_phases_is_aside(phases, a.module), phases);
    return tracked.label;
  }

  // Two models, 3 and 5; a backward of 3 is seen.
  void train_one_of_two_models() {
    directory = std::filesystem::temp_directory_path() / ("tracker-label-" + std::to_string(getpid()));
    LogBuilder builder(directory);
    builder.module(3, 0, "", "Model", SL_MODULE_ROOT).module(5, 0, "", "Reference", SL_MODULE_ROOT);
    builder.module(6, 5, "embedding", "Embedding", 0, 1).module(7, 5, "head", "Linear", 0, 1);
    builder.thread(1).at(10).range_start(1, "backward", SL_KIND_backward, 3).range_end(1);
    builder.finish();
    sl_error error{};
    ASSERT_EQ(sl_log_open(directory.c_str(), &log, &error), 0) << error.text;
    sl_phases_free(phases);
    phases = sl_phases_new(log, &listener);
    sl_event event;
    for (uint64_t at = 1; sl_log_next(log, &event, &error) > 0; at++)
      ASSERT_EQ(sl_phases_event(phases, &event, at), 0);
  }

  sl_phase_listener listener{this, [](void *, sl_phase *) { return 0; }, [](void *, sl_phase *) { return 0; }};
  std::filesystem::path directory;
  sl_log *log = nullptr;
  sl_phases *phases = sl_phases_new(nullptr, &listener);

  sl_phase backward{}, optimizer{}, forward{}, recompute{};
  sl_step_facts facts{};
};

using Labels = std::vector<int>;

TEST_F(TrackerLabel, GradientsAreTemporariesUntilTheyAreRecognised) {
  EXPECT_EQ(labels(make(SL_CATEGORY_unsharded_grad, &backward)),
            (Labels{SL_CATEGORY_temp, SL_CATEGORY_unsharded_grad}));
  EXPECT_EQ(labels(make(SL_CATEGORY_sharded_grad, &backward)), (Labels{SL_CATEGORY_temp, SL_CATEGORY_sharded_grad}));
  EXPECT_EQ(labels(make(SL_CATEGORY_gradient, &backward), SL_TRACKER_module),
            (Labels{SL_CATEGORY_temp, SL_CATEGORY_gradient}));
  EXPECT_EQ(labels(make(SL_CATEGORY_sharded_grad, nullptr)), (Labels{SL_CATEGORY_sharded_grad, -1}));
}

TEST_F(TrackerLabel, BuffersOfCollectivesAreWhateverIsMadeThereUntilTheirCollective) {
  EXPECT_EQ(labels(make(SL_CATEGORY_all_gather, &forward)), (Labels{SL_CATEGORY_activation, SL_CATEGORY_all_gather}));
  EXPECT_EQ(labels(make(SL_CATEGORY_all_gather, &backward)), (Labels{SL_CATEGORY_temp, SL_CATEGORY_all_gather}));
  EXPECT_EQ(labels(make(SL_CATEGORY_reduce_scatter, &backward)),
            (Labels{SL_CATEGORY_temp, SL_CATEGORY_reduce_scatter}));
  sl_allocation cast = make(SL_CATEGORY_all_gather, &forward);
  cast.rule = SL_RULE_fsdp_all_gather_cast;
  EXPECT_EQ(labels(cast), (Labels{SL_CATEGORY_activation, -1}));
}

TEST_F(TrackerLabel, GatheredParametersAreKnownAfterTheirFirstPreForward) {
  EXPECT_EQ(labels(make(SL_CATEGORY_unsharded_param, &forward)),
            (Labels{SL_CATEGORY_activation, SL_CATEGORY_unsharded_param}));
  EXPECT_EQ(labels(make(SL_CATEGORY_unsharded_param, &backward)), (Labels{SL_CATEGORY_unsharded_param, -1}));
  forward.call_index = 1;
  EXPECT_EQ(labels(make(SL_CATEGORY_unsharded_param, &forward)), (Labels{SL_CATEGORY_unsharded_param, -1}));
  sl_allocation before = make(SL_CATEGORY_unsharded_param, &forward);
  before.step = -1;
  EXPECT_EQ(labels(before), (Labels{-1, SL_CATEGORY_unsharded_param})) << "gathered by an evaluation before the step";
}

TEST_F(TrackerLabel, RecomputationIsTemporaryForOneTrackerAndActivationForTheOther) {
  EXPECT_EQ(labels(make(SL_CATEGORY_activation, &recompute)), (Labels{SL_CATEGORY_temp, -1}));
  EXPECT_EQ(labels(make(SL_CATEGORY_activation, &recompute), SL_TRACKER_module), (Labels{SL_CATEGORY_activation, -1}));
  EXPECT_EQ(labels(make(SL_CATEGORY_temp, &backward), SL_TRACKER_module), (Labels{SL_CATEGORY_temp, -1}));
}

TEST_F(TrackerLabel, TheOptimizersTemporariesAreState) {
  EXPECT_EQ(labels(make(SL_CATEGORY_temp, &optimizer)), (Labels{SL_CATEGORY_optstate, -1}));
  sl_allocation scratch = make(SL_CATEGORY_temp, &optimizer);
  EXPECT_EQ(labels(scratch, SL_TRACKER_fsdp, true), (Labels{SL_CATEGORY_optstate, -1}))
      << "one of a list that dies in reverse";
}

TEST_F(TrackerLabel, ABucketIsATemporaryOnceAGradientGoesIn) {
  sl_allocation bucket = make(SL_CATEGORY_gradient, &forward);
  bucket.rule = SL_RULE_ddp_bucket;
  EXPECT_EQ(labels(bucket, SL_TRACKER_module), (Labels{-1, SL_CATEGORY_temp}));
}

TEST_F(TrackerLabel, MemTrackerHasNoWordForInputs) {
  EXPECT_EQ(labels(make(SL_CATEGORY_input, nullptr)), (Labels{SL_CATEGORY_input, -1}));
  EXPECT_EQ(labels(make(SL_CATEGORY_input, nullptr), SL_TRACKER_module), (Labels{SL_CATEGORY_activation, -1}));
}

TEST_F(TrackerLabel, WorkspacesAndScratchAreNotSeen) {
  EXPECT_EQ(labels(make(SL_CATEGORY_other, &forward)), (Labels{-1, -1}));
  sl_allocation kept = make(SL_CATEGORY_other, &forward);
  kept.rule = SL_RULE_forward_survivor;
  EXPECT_EQ(labels(kept), (Labels{SL_CATEGORY_activation, -1})) << "passing, as far as the tracker knows";
  EXPECT_EQ(labels(make(SL_CATEGORY_temp, &backward), SL_TRACKER_fsdp, true), (Labels{-1, -1}));
}

TEST_F(TrackerLabel, WhatPassesIsOutOfSightInTheNextStepButStateIsNot) {
  sl_allocation a{};
  a.tag_category = -1;
  for (int label : {SL_CATEGORY_activation, SL_CATEGORY_temp, SL_CATEGORY_input})
    EXPECT_TRUE(loses_sight(a, label));
  for (int label : std::vector<int>{SL_CATEGORY_sharded_grad, SL_CATEGORY_optstate, SL_CATEGORY_param, -1})
    EXPECT_FALSE(loses_sight(a, label));
}

TEST_F(TrackerLabel, AGradientThatIsNoParametersAnyMoreIsOutOfSight) {
  sl_allocation a{};
  a.tag_category = SL_CATEGORY_gradient;
  a.tag_step = 4;
  facts.step = 5;
  EXPECT_FALSE(loses_sight(a, SL_CATEGORY_gradient)) << "no gradient was tagged, so nothing is known";
  facts.gradients_tagged = true;
  EXPECT_TRUE(loses_sight(a, SL_CATEGORY_gradient));
  a.tag_step = 5;
  EXPECT_FALSE(loses_sight(a, SL_CATEGORY_gradient));
}

class Scratch : public ::testing::Test {
protected:
  struct Tracked : sl_allocation {
    Tracked() : sl_allocation() {
      tracked = &state;
    }
    sl_tracked state{};
  };

  void alloc(Tracked &a) {
    add(SL_ITEM_alloc).allocation = &a;
  }
  void free(Tracked &a) {
    add(SL_ITEM_free).allocation = &a;
  }
  sl_item &add(sl_item_type type) {
    items.push_back({});
    items.back().type = type;
    return items.back();
  }
  void find() {
    sl_tracker_find_scratch(items.data(), items.size());
  }
  std::vector<sl_item> items;
  Tracked a, b, c;
};

TEST_F(Scratch, IsWhatAnOperationMakesAndFreesWithinItself) {
  alloc(a); // the result
  alloc(b); // a workspace and a semaphore
  alloc(c);
  free(c);
  free(b);
  find();
  EXPECT_FALSE(a.state.scratch);
  EXPECT_TRUE(b.state.scratch);
  EXPECT_TRUE(c.state.scratch);
}

TEST_F(Scratch, IsNotWhatAnotherResultOutlives) {
  alloc(a);
  alloc(b); // made of a
  free(a);
  free(b);
  find();
  EXPECT_FALSE(a.state.scratch);
  EXPECT_FALSE(b.state.scratch);
}

TEST_F(Scratch, IsNotWhatAnOlderOneDiesBefore) {
  alloc(a);
  add(SL_ITEM_snapshot);
  alloc(b);
  free(a);
  free(b);
  find();
  EXPECT_FALSE(b.state.scratch);
}

TEST_F(Scratch, IsNotWhatAModuleStateSees) {
  alloc(a);
  add(SL_ITEM_snapshot);
  free(a);
  find();
  EXPECT_FALSE(a.state.scratch);
}

TEST_F(TrackerLabel, OfAModelThatIsNotTrainedOnlyWhatPassesIsSeen) {
  sl_phase inference = forward;
  inference.module = 5;
  auto of_reference = [&](int category, int64_t step) {
    sl_allocation a = make(category, &inference);
    a.module = 5;
    a.step = step;
    return a;
  };
  EXPECT_EQ(labels(of_reference(SL_CATEGORY_all_gather, 0)), (Labels{SL_CATEGORY_activation, SL_CATEGORY_all_gather}))
      << "no model is trained: the tracker may follow this one";
  train_one_of_two_models();
  EXPECT_EQ(labels(of_reference(SL_CATEGORY_all_gather, 0)), (Labels{SL_CATEGORY_activation, -1}));
  EXPECT_EQ(labels(of_reference(SL_CATEGORY_unsharded_param, 0)), (Labels{SL_CATEGORY_activation, -1}));
  EXPECT_EQ(labels(of_reference(SL_CATEGORY_sharded_param, -1)), (Labels{-1, -1}));
  EXPECT_EQ(labels(of_reference(SL_CATEGORY_workspace, 0)), (Labels{-1, -1}));
  EXPECT_EQ(labels(make(SL_CATEGORY_all_gather, &forward)), (Labels{SL_CATEGORY_activation, SL_CATEGORY_all_gather}))
      << "of the model that is trained";
}

TEST_F(TrackerLabel, WhatStaysGatheredThereIsSeenWhereEachCallTakesAView) {
  train_one_of_two_models();
  for (auto [name, label] : {std::pair("head.weight", int(SL_CATEGORY_activation)), {"embedding.weight", -1}}) {
    sl_allocation a = make(SL_CATEGORY_unsharded_param, &forward);
    a.module = 5;
    a.tag_category = SL_CATEGORY_unsharded_param;
    a.tag_name = name;
    EXPECT_EQ(loses_sight(a, SL_CATEGORY_activation), label == -1) << name;
    EXPECT_EQ(relabel(a), label) << name;
  }
}

TEST_F(TrackerLabel, ATagOfAModelThatIsNotTrainedIsNotSeen) {
  train_one_of_two_models();
  sl_allocation a = make(SL_CATEGORY_sharded_param, nullptr);
  EXPECT_EQ(relabel(a), SL_CATEGORY_sharded_param);
  a.module = 5;
  EXPECT_EQ(relabel(a), -1);
}

} // namespace
