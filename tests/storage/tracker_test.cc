// The sums that PyTorch's trackers would show: what they learn later than the ledger, and what they lose sight of.
extern "C" {
#include "storage/tracker/tracker.h"
}

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace {

class Tracker : public ::testing::Test {
protected:
  Tracker() {
    backward.kind = SL_KIND_backward;
    forward.kind = SL_KIND_forward;
  }
  ~Tracker() override {
    sl_tracker_free(tracker);
    sl_phases_free(phases);
  }

  static sl_allocation make(uint64_t bytes, int category, sl_phase *phase = nullptr, uint32_t module = 0) {
    sl_allocation a{};
    a.bytes = a.requested_bytes = bytes;
    a.category = category;
    a.phase = phase;
    a.module = module;
    a.tag_category = -1;
    return a;
  }
  sl_allocation bucket(uint64_t bytes) {
    sl_allocation a = make(bytes, SL_CATEGORY_gradient, &forward);
    a.rule = SL_RULE_ddp_bucket;
    return a;
  }

  void add(sl_item_type type, sl_allocation *allocation) {
    sl_item item{};
    item.type = type;
    item.allocation = allocation;
    items.push_back(item);
  }
  void at(sl_item_type type, uint32_t module = 0, sl_state state = SL_STATE_plain_pre_forward, int category = 0) {
    sl_item item{};
    item.type = type;
    item.module = module;
    item.state = state;
    item.category = category;
    items.push_back(item);
  }
  void snapshot() {
    at(SL_ITEM_snapshot);
  }
  void window(sl_item_type type) {
    at(type, 1, SL_STATE_peak_backward);
  }
  void run() {
    ASSERT_EQ(sl_tracker_run(tracker, kind, items.data(), items.size()), 0);
    items.clear();
  }
  // By category, without those that have none.
  std::map<int, uint64_t> next() {
    const uint64_t *bytes = sl_tracker_next(tracker);
    std::map<int, uint64_t> found;
    for (int c = 0; c < SL_CATEGORY_limit; c++)
      if (bytes[c])
        found[c] = bytes[c];
    return found;
  }
  void step_ends(std::vector<sl_allocation *> alive) {
    sl_step_facts facts{};
    sl_tracker_step_ended(tracker, alive.data(), alive.size(), &facts);
  }

  sl_phase_listener listener{this, [](void *, sl_phase *) { return 0; }, [](void *, sl_phase *) { return 0; }};
  sl_phases *phases = sl_phases_new(nullptr, &listener);
  sl_tracker *tracker = sl_tracker_new(phases);
  sl_tracker_kind kind = SL_TRACKER_fsdp;
  sl_phase backward{}, forward{};
  std::vector<sl_item> items;
};

using Bytes = std::map<int, uint64_t>;

TEST_F(Tracker, TakesGradientsForTemporariesUntilTheirUnitsPostBackward) {
  sl_allocation mine = make(512, SL_CATEGORY_unsharded_grad, &backward, 3);
  sl_allocation other = make(1024, SL_CATEGORY_unsharded_grad, &backward, 4);
  add(SL_ITEM_alloc, &mine);
  add(SL_ITEM_alloc, &other);
  snapshot();
  at(SL_ITEM_snapshot, 3, SL_STATE_before_post_backward);
  add(SL_ITEM_free, &mine);
  snapshot();
  run();
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_temp, 1536}}));
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_temp, 1024}, {SL_CATEGORY_unsharded_grad, 512}}));
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_temp, 1024}}));
}

TEST_F(Tracker, KnowsABufferFromItsCollectiveOn) {
  sl_allocation buffer = make(512, SL_CATEGORY_all_gather, &backward, 3);
  add(SL_ITEM_alloc, &buffer);
  snapshot();
  for (uint32_t module : {4u, 3u}) {
    at(SL_ITEM_recognise, module, SL_STATE_plain_pre_forward, SL_CATEGORY_all_gather);
    snapshot();
  }
  run();
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_temp, 512}}));
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_temp, 512}})) << "another module's collective";
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_all_gather, 512}}));
}

TEST_F(Tracker, GivesAGradientItsWordWhenBackwardsFunctionHasEnded) {
  kind = SL_TRACKER_module;
  sl_allocation saved = make(64, SL_CATEGORY_activation, &forward);
  sl_allocation gradient = make(512, SL_CATEGORY_gradient, &backward), scratch = make(2048, SL_CATEGORY_temp);
  sl_allocation input = make(1024, SL_CATEGORY_temp, &backward); // the gradient of the function's input
  add(SL_ITEM_alloc, &saved);
  window(SL_ITEM_window_open);
  add(SL_ITEM_alloc, &gradient);
  add(SL_ITEM_alloc, &scratch);
  add(SL_ITEM_free, &scratch);
  add(SL_ITEM_alloc, &input);
  add(SL_ITEM_free, &saved);
  window(SL_ITEM_window_close);
  snapshot();
  run();
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_activation, 512}, {SL_CATEGORY_temp, 1536}}))
      << "at the highest point both were temporaries";
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_gradient, 512}, {SL_CATEGORY_temp, 1024}}));
}

TEST_F(Tracker, SeesBucketsOneAfterAnotherAsGradientsFillThem) {
  kind = SL_TRACKER_module;
  sl_allocation first = bucket(1024), second = bucket(2048);
  add(SL_ITEM_alloc, &first);
  add(SL_ITEM_alloc, &second);
  for (int step = 0; step < 2; step++) {
    std::vector<sl_allocation> gradients{make(1024, SL_CATEGORY_gradient, &backward),
                                         make(512, SL_CATEGORY_gradient, &backward)};
    snapshot();
    for (sl_allocation &gradient : gradients) {
      add(SL_ITEM_alloc, &gradient);
      snapshot();
    }
    for (sl_allocation &gradient : gradients)
      add(SL_ITEM_free, &gradient);
    run();
    EXPECT_EQ(next(), Bytes{});
    EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_temp, 1024}, {SL_CATEGORY_gradient, 1024}})) << "the first is full";
    EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_temp, 3072}, {SL_CATEGORY_gradient, 1536}}));
    step_ends({&first, &second}); // the next step's tracker has not seen them
    for (sl_allocation &gradient : gradients)
      sl_tracker_forget(tracker, &gradient);
  }
}

TEST_F(Tracker, HasHighestPointsOfItsOwnInAWindowAndTellsWhatIsOpenAtTheEndOfTheStep) {
  sl_allocation unseen = make(4096, SL_CATEGORY_other), seen = make(512, SL_CATEGORY_activation, &forward);
  window(SL_ITEM_window_open);
  add(SL_ITEM_alloc, &unseen);
  add(SL_ITEM_free, &unseen);
  add(SL_ITEM_alloc, &seen);
  window(SL_ITEM_window_close);
  window(SL_ITEM_window_close); // nothing is open
  add(SL_ITEM_free, &seen);
  window(SL_ITEM_window_open);
  run();
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_activation, 512}}));
  EXPECT_EQ(next(), Bytes{});
}

TEST_F(Tracker, DoesNotSeeInTheNextStepWhatPassedInThisOne) {
  sl_allocation kept = make(512, SL_CATEGORY_activation, &forward);
  add(SL_ITEM_alloc, &kept);
  snapshot();
  run();
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_activation, 512}}));
  step_ends({&kept});
  snapshot();
  add(SL_ITEM_free, &kept);
  snapshot();
  run();
  EXPECT_EQ(next(), Bytes{});
  EXPECT_EQ(next(), Bytes{});
}

TEST_F(Tracker, LearnsFromATagWhenItComes) {
  sl_allocation a = make(512, SL_CATEGORY_other);
  add(SL_ITEM_alloc, &a);
  run();
  a.category = SL_CATEGORY_input;
  a.rule = SL_RULE_tag;
  snapshot();
  add(SL_ITEM_retag, &a);
  snapshot();
  run();
  EXPECT_EQ(next(), Bytes{}) << "it is not tagged yet";
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_input, 512}}));
}

TEST_F(Tracker, DoesNotLearnFromPyTorchsTableOfWorkspaces) {
  sl_allocation a = make(512, SL_CATEGORY_optstate);
  add(SL_ITEM_alloc, &a);
  run();
  a.category = SL_CATEGORY_workspace;
  a.rule = SL_RULE_cublas_workspace;
  add(SL_ITEM_retag, &a);
  snapshot();
  run();
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_optstate, 512}}));
}

TEST_F(Tracker, OfAnotherModelSeesNothingThatATagNamesWhileItFollowsOne) {
  sl_allocation a = make(512, SL_CATEGORY_other);
  add(SL_ITEM_alloc, &a);
  run();
  a.category = SL_CATEGORY_param;
  a.rule = SL_RULE_tag;
  add(SL_ITEM_retag, &a);
  items.back().aside = true;
  snapshot();
  run();
  EXPECT_EQ(next(), Bytes{});
}

TEST_F(Tracker, ForgetsWhatGoesWithoutBeingFreed) {
  sl_allocation a = make(512, SL_CATEGORY_param), b = make(1024, SL_CATEGORY_param);
  add(SL_ITEM_alloc, &a);
  run();
  sl_tracker_forget(tracker, &a);
  EXPECT_EQ(a.tracked, nullptr);
  add(SL_ITEM_alloc, &b);
  snapshot();
  run();
  EXPECT_EQ(next(), (Bytes{{SL_CATEGORY_param, 1024}}));
}

} // namespace
