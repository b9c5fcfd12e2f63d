// Every rule of attribution_rules.def, decided from what is known at the end of a step.
extern "C" {
#include "storage/attribution/attribution.h"
}

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

// A step: forward of module 3 (10–20), backward (30–60) with module 3's own (32–50), its reduce (45–49) inside,
// optimizer (70–80). Positions stand for instants.
class Attribution : public ::testing::Test {
protected:
  sl_phase make(sl_kind kind, uint64_t start, uint64_t end, sl_phase *parent, uint32_t module = 0,
                sl_phase_point point = SL_POINT_none) {
    sl_phase phase{};
    phase.id = ++ids;
    phase.kind = kind;
    phase.start_at = start;
    phase.end_at = end;
    phase.parent = parent;
    phase.module = module;
    phase.point = point;
    return phase;
  }

  uint64_t ids = 0;
  sl_phase step = make(SL_KIND_step, 1, 90, nullptr);
  sl_phase forward = make(SL_KIND_forward, 10, 20, &step, 3);
  sl_phase backward = make(SL_KIND_backward, 30, 60, &step);
  sl_phase module_backward = make(SL_KIND_backward, 32, 50, &backward, 3);
  sl_phase reduce = make(SL_KIND_reduce, 45, 49, &module_backward, 3, SL_POINT_reduce_scatter);
  sl_phase optimizer = make(SL_KIND_optimizer_step, 70, 80, &step);
  std::vector<uint64_t> optimizer_starts{70}, backward_starts{30};
  bool modules_known = true, gradients_tagged = false;
  sl_workspaces workspaces{};
  bool cut_off = false;           // the log ended within the step
  bool workspaces_listed = false; // PyTorch's table of them was recorded

  sl_allocation allocation(uint64_t at, uint64_t freed, sl_phase *phase, sl_phase *free_phase = nullptr) {
    sl_allocation a{};
    a.alloc_at = at;
    a.free_at = freed;
    a.phase = phase;
    a.free_phase = free_phase;
    a.requested_bytes = a.bytes = 512;
    a.tag_category = -1;
    return a;
  }

  std::string rule(sl_allocation &a) {
    sl_step_facts facts{0,
                        optimizer_starts.data(),
                        optimizer_starts.size(),
                        backward_starts.data(),
                        backward_starts.size(),
                        modules_known,
                        gradients_tagged,
                        workspaces_listed ? nullptr : &workspaces,
                        cut_off};
    sl_attribute(&a, &facts);
    return sl_rules[a.rule].name;
  }

  std::string rule_of(uint64_t at, uint64_t freed, sl_phase *phase, sl_phase *free_phase = nullptr) {
    sl_allocation a = allocation(at, freed, phase, free_phase);
    return rule(a);
  }
};

TEST_F(Attribution, ATagOutranksEveryOtherRuleAndBringsItsModule) {
  sl_allocation a = allocation(12, 0, &forward);
  a.tag_category = SL_CATEGORY_sharded_param;
  a.tag_module = 7;
  EXPECT_EQ(rule(a), "tag");
  EXPECT_EQ(a.category, SL_CATEGORY_sharded_param);
  EXPECT_EQ(a.module, 7u);
}

TEST_F(Attribution, AnAllGatherBelongsToTheModuleItGathersAlsoWhenPrefetched) {
  sl_phase prefetch = make(SL_KIND_prefetch, 33, 38, &module_backward, 2);
  sl_phase gather = make(SL_KIND_unshard, 34, 37, &prefetch, 2, SL_POINT_all_gather);
  sl_allocation output = allocation(35, 55, &gather);
  EXPECT_EQ(rule(output), "fsdp_all_gather");
  EXPECT_EQ(output.category, SL_CATEGORY_all_gather);
  EXPECT_EQ(output.module, 2u);
  EXPECT_EQ(rule_of(35, 36, &gather), "fsdp_all_gather_cast");
}

TEST_F(Attribution, WhatCopyOutLeavesBehindAreUnshardedParameters) {
  sl_phase copy_out = make(SL_KIND_unshard_copy_out, 11, 13, &forward, 3, SL_POINT_copy_out);
  EXPECT_EQ(rule_of(12, 19, &copy_out), "fsdp_copy_out");
  EXPECT_EQ(rule_of(12, 13, &copy_out), "fsdp_copy_out_temp");
}

TEST_F(Attribution, Fsdp1GathersIntoTheUnshardedParameterItself) {
  sl_phase unshard = make(SL_KIND_unshard, 11, 13, &forward, 0, SL_POINT_fsdp1_unshard);
  EXPECT_EQ(rule_of(12, 19, &unshard), "fsdp1_unshard");
  EXPECT_EQ(rule_of(12, 13, &unshard), "fsdp1_unshard_temp");
}

TEST_F(Attribution, AUnitWithOneShardCopiesItIntoTheUnshardedParameter) {
  for (sl_phase_point point : {SL_POINT_pre_forward, SL_POINT_pre_backward}) {
    sl_phase unshard = make(SL_KIND_unshard, 11, 13, &forward, 0, point);
    EXPECT_EQ(rule_of(12, 19, &unshard), "fsdp_only_shard");
    EXPECT_EQ(rule_of(12, 13, &unshard), "forward_temp");
  }
}

TEST_F(Attribution, BucketsOfDistributedDataParallelAreGradients) {
  sl_phase buckets = make(SL_KIND_user, 11, 13, &forward, 0, SL_POINT_ddp_buckets);
  EXPECT_EQ(rule_of(12, 0, &buckets), "ddp_bucket");
  EXPECT_EQ(rule_of(12, 40, &buckets), "forward_activation") << "made in PyTorch's range of the same name";
  EXPECT_EQ(rule_of(12, 13, &buckets), "forward_temp");
}

TEST_F(Attribution, InputsMovedToTheDeviceAreInputs) {
  sl_phase inputs = make(SL_KIND_input, 11, 13, &forward, 0, SL_POINT_inputs);
  EXPECT_EQ(rule_of(12, 40, &inputs), "fsdp_inputs");
}

TEST_F(Attribution, ReduceScatterInputDiesWithBackwardAndItsOutputIsTheShardedGradient) {
  EXPECT_EQ(rule_of(46, 47, &reduce), "fsdp_reduce_staging");
  EXPECT_EQ(rule_of(46, 55, &reduce), "fsdp_reduce_scatter");
  EXPECT_EQ(rule_of(46, 0, &reduce), "fsdp_sharded_grad");
  EXPECT_EQ(rule_of(46, 85, &reduce), "fsdp_sharded_grad");
}

TEST_F(Attribution, AccumulatedGradientsStayUnsharded) {
  sl_phase accumulate = make(SL_KIND_reduce, 40, 44, &module_backward, 3, SL_POINT_accumulate);
  EXPECT_EQ(rule_of(41, 48, &accumulate), "fsdp_accumulate");
  EXPECT_EQ(rule_of(41, 42, &accumulate), "backward_temp");
}

TEST_F(Attribution, AGradientThatIsFreedInItsReduceIsUnsharded) {
  sl_allocation a = allocation(40, 47, &backward, &reduce);
  EXPECT_EQ(rule(a), "freed_in_reduce");
  EXPECT_EQ(a.category, SL_CATEGORY_unsharded_grad);
  EXPECT_EQ(a.module, 3u) << "the module whose reduce freed it";
}

TEST_F(Attribution, AGradientThatTheRootsCallbackFreesIsUnshardedToo) {
  sl_phase callback = make(SL_KIND_reduce, 52, 59, &backward, 1, SL_POINT_root_callback);
  sl_allocation a = allocation(40, 58, &module_backward, &callback);
  EXPECT_EQ(rule(a), "freed_in_root_callback");
  EXPECT_EQ(a.module, 1u);
}

TEST_F(Attribution, CublasWorkspaceIsNeitherActivationNorGradient) {
  sl_allocation a = allocation(12, 0, &forward);
  a.requested_bytes = 32u << 20;
  EXPECT_EQ(rule(a), "cublas_workspace");
  sl_allocation b = allocation(40, 0, &module_backward);
  b.requested_bytes = 32u << 20;
  EXPECT_EQ(rule(b), "backward_gradient") << "without gradient tags this size could be a gradient";
  gradients_tagged = true;
  b.thread = 2; // autograd's
  EXPECT_EQ(rule(b), "cublas_workspace");
}

TEST_F(Attribution, WherePyTorchsTableIsRecordedSizeSaysNothing) {
  workspaces_listed = true;
  sl_allocation a = allocation(12, 0, &forward);
  a.requested_bytes = 32 << 20;
  EXPECT_EQ(rule(a), "forward_survivor");
  sl_allocation listed = allocation(12, 0, &forward);
  listed.workspace = true;
  EXPECT_EQ(rule(listed), "cublas_workspace");
  EXPECT_EQ(listed.category, SL_CATEGORY_workspace);
  sl_allocation older = allocation(1, 0, nullptr);
  older.restored = older.workspace = true;
  EXPECT_EQ(rule(older), "cublas_workspace") << "made before recording began";
}

TEST_F(Attribution, OnlyTheFirstOfAThreadAndStreamIsCublasWorkspace) {
  auto of_its_size = [&](sl_phase *phase) {
    sl_allocation a = allocation(12, 0, phase);
    a.requested_bytes = 32u << 20; // also that of a 4096 x 4096 weight in bf16
    return a;
  };
  sl_allocation tagged = of_its_size(&forward), setup = of_its_size(nullptr), first = of_its_size(&forward),
                second = of_its_size(&forward), stream = of_its_size(&forward);
  tagged.tag_category = SL_CATEGORY_buffer;
  setup.step = -1;
  stream.place = 1;
  EXPECT_EQ(rule(tagged), "tag");
  EXPECT_EQ(rule(setup), "program_kept");
  EXPECT_EQ(rule(first), "cublas_workspace");
  EXPECT_EQ(rule(second), "forward_survivor");
  EXPECT_EQ(rule(stream), "cublas_workspace");
}

TEST_F(Attribution, WhatOutlivesTheOptimizerStepIsOptimizerState) {
  EXPECT_EQ(rule_of(75, 0, &optimizer), "optimizer_state");
  EXPECT_EQ(rule_of(75, 79, &optimizer), "optimizer_temp");
}

TEST_F(Attribution, ForwardMakesActivationsTemporariesAndSurvivors) {
  EXPECT_EQ(rule_of(12, 15, &forward), "forward_temp");
  EXPECT_EQ(rule_of(12, 40, &forward), "forward_activation");
  EXPECT_EQ(rule_of(12, 0, &forward), "forward_survivor");
}

TEST_F(Attribution, UserRangesDoNotChangeWhatAForwardMakes) {
  sl_phase user = make(SL_KIND_user, 11, 14, &forward);
  EXPECT_EQ(rule_of(12, 40, &user), "forward_activation");
}

TEST_F(Attribution, RecomputationIsToldApartFromForward) {
  sl_phase recompute = make(SL_KIND_recompute, 33, 36, &module_backward, 3);
  EXPECT_EQ(rule_of(34, 40, &recompute), "recompute_activation");
  EXPECT_EQ(rule_of(34, 35, &recompute), "recompute_temp");
}

TEST_F(Attribution, BackwardMakesGradientsWhichTheOptimizerFindsAndTemporaries) {
  EXPECT_EQ(rule_of(40, 58, &module_backward), "backward_temp");
  EXPECT_EQ(rule_of(40, 0, &module_backward), "backward_gradient");
  EXPECT_EQ(rule_of(40, 85, &module_backward), "backward_gradient");
}

TEST_F(Attribution, GradientsOfAStepWithoutAnOptimizerAreStillGradients) {
  optimizer_starts.clear();
  EXPECT_EQ(rule_of(40, 0, &module_backward), "backward_survivor");
}

TEST_F(Attribution, WithoutAnOptimizerWhatOutlivesTheBackwardPassIsAGradient) {
  EXPECT_EQ(rule_of(40, 62, &module_backward), "backward_temp") << "an optimizer steps later, and does not find it";
  optimizer_starts.clear();
  EXPECT_EQ(rule_of(40, 58, &module_backward), "backward_temp") << "freed within";
  EXPECT_EQ(rule_of(40, 62, &module_backward), "backward_kept");
  sl_phase second = make(SL_KIND_backward, 61, 66, &step);
  EXPECT_EQ(rule_of(40, 62, &module_backward, &second), "backward_temp") << "another backward uses it up";
  cut_off = true;
  EXPECT_EQ(rule_of(40, 62, &module_backward), "backward_temp") << "an error may have let go of it";
}

TEST_F(Attribution, WhatABackwardThatTheEndCutOffHasMadeMayBecomeAnything) {
  optimizer_starts.clear();
  cut_off = true;
  EXPECT_EQ(rule_of(40, 0, &module_backward), "backward_survivor") << "this backward had ended: it waits for another";
  backward.end_at = 0;
  EXPECT_EQ(rule_of(40, 0, &module_backward), "backward_in_flight");
  EXPECT_EQ(rule_of(40, 45, &module_backward), "backward_temp");
}

TEST_F(Attribution, TheLossIsAnActivationOutsideOfModules) {
  EXPECT_EQ(rule_of(25, 40, &step), "step_activation");
  EXPECT_EQ(rule_of(25, 27, &step), "step_temp");
  EXPECT_EQ(rule_of(65, 68, &step), "step_temp");
  EXPECT_EQ(rule_of(25, 0, &step), "step_survivor");
}

TEST_F(Attribution, WhatIsMadeOutsideOfStepsAndModulesIsTheProgramsOwn) {
  sl_allocation a = allocation(2, 0, nullptr), b = allocation(2, 5, nullptr);
  a.step = b.step = -1;
  EXPECT_EQ(rule(a), "program_kept");
  EXPECT_EQ(a.category, SL_CATEGORY_program);
  EXPECT_EQ(rule(b), "program_temp");
}

TEST_F(Attribution, WithoutTheCompanionNobodyKnowsWhatIsOutsideOfModules) {
  sl_allocation a = allocation(2, 0, nullptr);
  a.step = -1;
  modules_known = false;
  EXPECT_EQ(rule(a), "none");
  EXPECT_EQ(a.category, SL_CATEGORY_unattributed);
}

TEST_F(Attribution, WhatACallOutsideOfStepsReturnsBelongsToTheProgramThatKeepsIt) {
  sl_phase root = make(SL_KIND_eval, 2, 8, nullptr, 1), head = make(SL_KIND_eval, 3, 7, &root, 4);
  auto made = [&](uint64_t freed) {
    sl_allocation a = allocation(4, freed, &head);
    a.step = -1;
    return a;
  };
  sl_allocation logits = made(0), passed_on = made(8), scratch = made(6), dies_later = made(9);
  EXPECT_EQ(rule(logits), "call_output");
  EXPECT_EQ(logits.category, SL_CATEGORY_program);
  EXPECT_EQ(logits.module, 4u);
  EXPECT_EQ(rule(dies_later), "call_output");
  EXPECT_EQ(rule(passed_on), "forward_activation") << "the root's forward frees it as it ends";
  EXPECT_EQ(rule(scratch), "forward_temp");
  root.end_at = 0;
  cut_off = true;
  EXPECT_EQ(rule(logits), "forward_activation") << "the call goes on";
}

TEST_F(Attribution, PhaseIdsAreKeptWithTheDecision) {
  sl_allocation a = allocation(12, 40, &forward, &module_backward);
  rule(a);
  EXPECT_EQ(a.phase_id, forward.id);
  EXPECT_EQ(a.free_phase_id, module_backward.id);
}

} // namespace
