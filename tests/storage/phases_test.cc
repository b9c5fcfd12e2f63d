// Ranges of a log become phases: nesting, threads, modules, steps, and what unbalanced programs do to them.
#include "fakes/log_builder.h"

extern "C" {
#include "storage/phases/phases.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

class Phases : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("phases-" + std::to_string(getpid()));
    fs::remove_all(directory);
    log = std::make_unique<LogBuilder>(directory);
    log->module(1, 0, "", "Model", SL_MODULE_FSDP | SL_MODULE_ROOT, 0);
    log->module(2, 1, "blocks.0", "Block", SL_MODULE_FSDP, 1);
    log->module(3, 1, "blocks.1", "Block", SL_MODULE_FSDP, 1);
  }
  void TearDown() override {
    phases = sl_phases_free(phases);
    reader = sl_log_close(reader);
    fs::remove_all(directory);
  }

  // Reads the log; probe runs after each event with its position.
  void read(const std::function<void(const sl_event &)> &probe = {}) {
    log->finish();
    sl_error error{};
    ASSERT_EQ(sl_log_open(directory.c_str(), &reader, &error), 0) << error.text;
    sl_phase_listener listener{this,
                               [](void *self, sl_phase *phase) {
                                 static_cast<Phases *>(self)->opened.push_back(phase);
                                 return 0;
                               },
                               [](void *self, sl_phase *phase) {
                                 static_cast<Phases *>(self)->closed.push_back(phase);
                                 return 0;
                               }};
    phases = sl_phases_new(reader, &listener);
    sl_event event;
    for (uint64_t at = 1; sl_log_next(reader, &event, &error) > 0; at++) {
      ASSERT_EQ(sl_phases_event(phases, &event, at), 0);
      if (probe)
        probe(event);
    }
  }

  sl_phase *find(const std::string &name) {
    for (sl_phase *phase = sl_phases_list(phases); phase; phase = phase->next)
      if (name == phase->name)
        return phase;
    return nullptr;
  }

  LogBuilder::Thread &main() {
    return log->thread(1);
  }
  LogBuilder::Thread &autograd() {
    return log->thread(2);
  }

  fs::path directory;
  std::unique_ptr<LogBuilder> log;
  sl_log *reader = nullptr;
  sl_phases *phases = nullptr;
  std::vector<sl_phase *> opened, closed;
};

TEST_F(Phases, PushedRangesNestAndKnowTheirModuleAndStep) {
  main().at(10).range_start(7, "step 4", SL_KIND_step, 4);
  main().at(20).range_push("Model", SL_KIND_forward, 1).at(30).range_push("blocks.0", SL_KIND_forward, 2);
  main().at(40).range_pop().at(50).range_pop().at(60).range_end(7);
  read();
  sl_phase *inner = find("blocks.0");
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(inner->kind, SL_KIND_forward);
  EXPECT_EQ(inner->module, 2u);
  EXPECT_EQ(inner->step, 4);
  EXPECT_EQ(inner->start_ns, 30u);
  EXPECT_EQ(inner->end_ns, 40u);
  EXPECT_EQ(inner->parent, find("Model"));
  EXPECT_EQ(inner->parent->parent, find("step 4"));
  EXPECT_EQ(sl_phases_step(phases), -1) << "the step has ended";
}

TEST_F(Phases, FsdpRangesNameTheirModuleTheRootWithoutASuffix) {
  main().at(10).range_push("Model", SL_KIND_forward, 1);
  main().at(11).range_push("FSDP::pre_forward", SL_KIND_record_function).range_pop();
  main().at(12).range_push("FSDP::pre_forward (blocks.1)", SL_KIND_record_function);
  main().at(13).range_push("FSDP::all_gather (blocks.1)", SL_KIND_record_function).range_pop().range_pop();
  main().at(14).range_push("FSDP::forward_prefetch for blocks.0", SL_KIND_record_function).range_pop();
  read();
  EXPECT_EQ(find("FSDP::pre_forward")->module, 1u);
  EXPECT_EQ(find("FSDP::pre_forward (blocks.1)")->module, 3u);
  EXPECT_EQ(find("FSDP::all_gather (blocks.1)")->point, SL_POINT_all_gather);
  EXPECT_EQ(find("FSDP::forward_prefetch for blocks.0")->kind, SL_KIND_prefetch);
  EXPECT_EQ(find("FSDP::forward_prefetch for blocks.0")->module, 2u);
}

TEST_F(Phases, ModulesThatShareAUnitGoByTheFirstName) {
  main().at(10).range_push("Model", SL_KIND_forward, 1);
  main().at(11).range_push("FSDP::all_gather (blocks.0, blocks.1)", SL_KIND_record_function).range_pop();
  read();
  EXPECT_EQ(find("FSDP::all_gather (blocks.0, blocks.1)")->module, 2u);
}

TEST_F(Phases, NamesRelativeToAnFsdpRootBelowAWrapperAreFound) {
  log->module(10, 0, "", "Wrapper", SL_MODULE_ROOT, 0);
  log->module(11, 10, "module", "Model", SL_MODULE_FSDP, 1);
  log->module(12, 11, "module.blocks.0", "Block", SL_MODULE_FSDP, 2);
  main().at(10).range_push("Wrapper", SL_KIND_forward, 10);
  main().at(11).range_push("FSDP::pre_forward", SL_KIND_record_function).range_pop();
  main().at(12).range_push("FSDP::pre_forward (blocks.0)", SL_KIND_record_function).range_pop();
  read();
  EXPECT_EQ(find("FSDP::pre_forward")->module, 11u);
  EXPECT_EQ(find("FSDP::pre_forward (blocks.0)")->module, 12u);
}

TEST_F(Phases, AutogradsThreadBelongsToTheModuleWhoseBackwardIsOpen) {
  main().at(10).range_push("Model", SL_KIND_forward, 1).at(20).range_pop();
  main().at(30).range_push("backward", SL_KIND_backward, 0);
  autograd().at(35).range_mark("probe: before");
  autograd().at(40).range_push("FSDP::pre_backward (blocks.1)", SL_KIND_record_function).at(41).range_pop();
  autograd().at(42).range_mark("probe: inside");
  autograd().at(50).range_push("FSDP::post_backward_accumulate (blocks.1)", SL_KIND_record_function).range_pop();
  autograd().at(51).range_push("FSDP::post_backward_reshard (blocks.1)", SL_KIND_record_function).range_pop();
  autograd().at(52).range_push("FSDP::post_backward_reduce (blocks.1)", SL_KIND_record_function).at(53).range_pop();
  autograd().at(54).range_mark("probe: after");
  main().at(60).range_pop();
  autograd().at(70).range_mark("probe: outside");
  std::vector<const sl_phase *> at;
  std::vector<std::string> kinds;
  read([&](const sl_event &event) {
    if (event.type != SL_EVENT_range_mark)
      return;
    const sl_phase *phase = sl_phases_current(phases, event.thread);
    kinds.push_back(phase ? std::string(phase->name) : "nothing");
  });
  EXPECT_EQ(kinds, (std::vector<std::string>{"backward", "blocks.1", "backward", "nothing"}));
  sl_phase *module = find("blocks.1");
  EXPECT_EQ(module->kind, SL_KIND_backward);
  EXPECT_EQ(module->start_ns, 40u);
  EXPECT_EQ(module->end_ns, 53u);
  EXPECT_EQ(module->parent, find("backward"));
}

TEST_F(Phases, ABackwardLastsUntilItsReduceHasEndedWhateverRunsInIt) {
  main().at(10).range_push("Model", SL_KIND_forward, 1).at(20).range_pop();
  main().at(30).range_push("backward", SL_KIND_backward, 0);
  autograd().at(40).range_push("FSDP::pre_backward (blocks.1)", SL_KIND_record_function).at(41).range_pop();
  autograd().at(51).range_push("FSDP::post_backward_reshard (blocks.1)", SL_KIND_record_function).at(52).range_pop();
  autograd().at(53).range_push("FSDP::post_backward_reduce (blocks.1)", SL_KIND_record_function);
  autograd().at(54).range_push("Optimizer.step#AdamW.step", SL_KIND_record_function).at(57).range_pop();
  autograd().at(58).range_pop();
  autograd().at(60).range_push("FSDP::pre_backward (blocks.0)", SL_KIND_record_function).at(61).range_pop();
  autograd().at(62).range_push("FSDP::post_backward_reshard (blocks.0)", SL_KIND_record_function).at(63).range_pop();
  autograd().at(64).range_push("FSDP::post_backward_reduce (blocks.0)", SL_KIND_record_function);
  autograd().at(65).range_push("Optimizer.step#AdamW.step", SL_KIND_record_function); /* and there the process dies */
  read();
  EXPECT_EQ(find("blocks.1")->end_ns, 58u);
  EXPECT_EQ(find("Optimizer.step#AdamW.step")->end_ns, 57u);
  EXPECT_EQ(find("blocks.0")->end_ns, 0u) << "it had not ended when the log did";
}

TEST_F(Phases, ABackwardWithoutGradientSyncEndsWithItsReshard) {
  main().at(10).range_push("Model", SL_KIND_forward, 1).at(20).range_pop();
  main().at(30).range_push("backward", SL_KIND_backward, 0);
  autograd().at(40).range_push("FSDP::pre_backward (blocks.1)", SL_KIND_record_function).at(41).range_pop();
  autograd().at(51).range_push("FSDP::post_backward_reshard (blocks.1)", SL_KIND_record_function).at(52).range_pop();
  autograd().at(60).range_push("FSDP::pre_backward (blocks.0)", SL_KIND_record_function).at(61).range_pop();
  main().at(90).range_pop();
  read();
  EXPECT_EQ(find("blocks.1")->end_ns, 52u);
  EXPECT_EQ(find("blocks.0")->end_ns, 90u) << "closed by the end of the whole backward";
}

TEST_F(Phases, WhatRunsAfterTheReshardOfAUnitWithoutGradientSyncIsNotTheUnits) {
  main().at(10).range_push("Model", SL_KIND_forward, 1).at(20).range_pop();
  main().at(30).range_push("backward", SL_KIND_backward, 0);
  autograd().at(31).range_push("FSDP::pre_backward", SL_KIND_record_function).range_pop();
  autograd().at(40).range_push("FSDP::pre_backward (blocks.0)", SL_KIND_record_function).at(41).range_pop();
  autograd().at(42).range_mark("probe: inside");
  autograd().at(51).range_push("FSDP::post_backward_reshard (blocks.0)", SL_KIND_record_function).at(52).range_pop();
  autograd().at(53).range_mark("probe: the root's embedding"); /* no range of another unit comes any more */
  main().at(90).range_pop();
  std::vector<std::string> names;
  read([&](const sl_event &event) {
    if (event.type == SL_EVENT_range_mark)
      names.push_back(sl_phases_current(phases, event.thread)->name);
  });
  EXPECT_EQ(names, (std::vector<std::string>{"blocks.0", "Model"}));
}

TEST_F(Phases, CallsOfAModuleAreCountedPerStep) {
  main().at(10).range_start(1, "step 0", SL_KIND_step, 0);
  for (int i = 0; i < 2; i++)
    main().at(20 + i).range_push("blocks.0", SL_KIND_forward, 2).range_pop();
  main().at(30).range_end(1).at(31).range_start(2, "step 1", SL_KIND_step, 1);
  main().at(40).range_push("blocks.0", SL_KIND_forward, 2).range_pop().at(50).range_end(2);
  read();
  std::vector<uint32_t> calls;
  for (sl_phase *phase = sl_phases_list(phases); phase; phase = phase->next)
    if (phase->kind == SL_KIND_forward)
      calls.push_back(phase->call_index);
  EXPECT_EQ(calls, (std::vector<uint32_t>{0, 1, 0}));
}

TEST_F(Phases, APopWithoutAPushIsCountedAndChangesNothing) {
  main().at(10).range_pop().range_push("Model", SL_KIND_forward, 1).at(20).range_pop();
  read();
  EXPECT_EQ(sl_phases_unbalanced(phases), 1u);
  EXPECT_EQ(find("Model")->end_ns, 20u);
}

TEST_F(Phases, DomainsHaveStacksOfTheirOwn) {
  main().at(10).range_push("Model", SL_KIND_forward, 1);
  main().at(11).range_push("theirs", 0, 0, "somebody").at(20).range_pop(); // ours ends before theirs
  main().at(30).range_pop("somebody");
  read();
  EXPECT_EQ(find("Model")->end_ns, 20u);
  EXPECT_EQ(find("theirs")->end_ns, 30u);
  EXPECT_EQ(find("theirs")->kind, SL_KIND_user);
}

TEST_F(Phases, NcclsCallsAreNoPhases) {
  main().at(10).range_push("ncclAllGather", 0, 0, "NCCL").at(11).range_pop("NCCL");
  read();
  EXPECT_EQ(find("ncclAllGather"), nullptr);
}

TEST_F(Phases, ARangeThatTheLogsEndCutsOffStaysOpen) {
  main().at(10).range_push("Model", SL_KIND_forward, 1);
  read();
  EXPECT_EQ(find("Model")->end_at, 0u);
  EXPECT_TRUE(closed.empty());
  EXPECT_EQ(sl_phases_current(phases, 1), find("Model"));
}

TEST_F(Phases, TheCompanionsOptimizerStepInsideRecordFunctionsIsOneStep) {
  main().at(10).range_push("Optimizer.step#AdamW.step", SL_KIND_record_function);
  main().at(11).range_push("AdamW", SL_KIND_optimizer_step, 1).at(12).range_pop().at(13).range_pop();
  read();
  EXPECT_EQ(find("Optimizer.step#AdamW.step")->kind, SL_KIND_optimizer_step);
  EXPECT_EQ(find("AdamW")->kind, SL_KIND_user);
}

TEST_F(Phases, PruningKeepsOpenPhasesAndTheirParents) {
  main().at(10).range_push("Model", SL_KIND_forward, 1).at(11).range_push("blocks.0", SL_KIND_forward, 2);
  main().at(12).range_pop().at(13).range_push("blocks.1", SL_KIND_forward, 3);
  read();
  sl_phases_prune(phases);
  EXPECT_EQ(find("blocks.0"), nullptr);
  ASSERT_NE(find("blocks.1"), nullptr);
  EXPECT_EQ(find("blocks.1")->parent, find("Model"));
}

} // namespace
