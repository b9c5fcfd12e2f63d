// When PyTorch's trackers take their snapshots of a module, and from when to when they look for its highest point.
#include "fakes/log_builder.h"

extern "C" {
#include "storage/attribution/module_states.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

class ModuleStates : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("module-states-" + std::to_string(getpid()));
    fs::remove_all(directory);
    log = std::make_unique<LogBuilder>(directory);
    log->module(1, 0, "", "Model", SL_MODULE_FSDP | SL_MODULE_ROOT, 0);
    for (uint32_t i = 0; i < 3; i++)
      log->module(2 + i, 1, ("b." + std::to_string(i)).c_str(), "Block", SL_MODULE_FSDP, 1);
    log->module(5, 1, "head", "Linear", 0, 1);
    main().range_start(1, "step 0", SL_KIND_step, 0);
  }
  void TearDown() override {
    states = sl_module_states_free(states);
    phases = sl_phases_free(phases);
    reader = sl_log_close(reader);
    fs::remove_all(directory);
  }

  static int opened(void *self, sl_phase *phase) {
    auto *test = static_cast<ModuleStates *>(self);
    if (phase->kind == SL_KIND_step)
      sl_module_states_step_begins(test->states);
    return sl_module_states_opened(test->states, phase);
  }
  static int closed(void *self, sl_phase *phase) {
    auto *test = static_cast<ModuleStates *>(self);
    const int r = sl_module_states_closed(test->states, phase);
    if (phase->kind == SL_KIND_step)
      sl_module_states_step_ended(test->states);
    return r;
  }
  static size_t add(void *self, const sl_item *item) {
    auto &said = static_cast<ModuleStates *>(self)->said;
    std::string text = item->type == SL_ITEM_window_open    ? "+"
                       : item->type == SL_ITEM_window_close ? "-"
                       : item->type == SL_ITEM_recognise    ? "!"
                                                            : "";
    text += std::to_string(item->module) + " ";
    text += item->type == SL_ITEM_recognise ? sl_categories[item->category].name : sl_state_name(item->state);
    if (item->type != SL_ITEM_recognise && item->type != SL_ITEM_window_close && item->call_index)
      text += " " + std::to_string(item->call_index);
    said.push_back(text);
    return said.size() - 1;
  }
  static void withdraw(void *self, size_t index) {
    static_cast<ModuleStates *>(self)->said.at(index) = "";
  }

  // What was said of the states and windows whose text contains the word.
  std::vector<std::string> read(const std::string &word) {
    log->finish();
    sl_error error{};
    EXPECT_EQ(sl_log_open(directory.c_str(), &reader, &error), 0) << error.text;
    sl_phase_listener listener{this, opened, closed};
    phases = sl_phases_new(reader, &listener);
    sl_states_sink sink{this, add, withdraw};
    states = sl_module_states_new(phases, &sink);
    sl_event event;
    for (uint64_t at = 1; sl_log_next(reader, &event, &error) > 0; at++) {
      if (event.type == SL_EVENT_allocator) {
        sl_module_states_allocated(states, sl_phases_current(phases, event.thread),
                                   static_cast<const sl_event_allocator *>(event.payload)->bytes);
        said.push_back("allocation " + word);
      }
      EXPECT_EQ(sl_phases_event(phases, &event, at), 0);
    }
    return with(word);
  }
  std::vector<std::string> with(const std::string &word) {
    std::vector<std::string> found;
    for (const std::string &text : said)
      if (text.find(word) != std::string::npos)
        found.push_back(text);
    return found;
  }

  LogBuilder::Thread &main() {
    return log->thread(1).at(++clock);
  }
  void fsdp(const std::string &name) {
    main().range_push(("FSDP::" + name).c_str(), SL_KIND_record_function).range_pop();
  }
  void post_backward(const std::string &unit) {
    for (const char *part : {"accumulate", "reshard", "reduce"})
      fsdp("post_backward_" + std::string(part) + unit);
  }
  void gather(const std::string &unit) {
    main().range_push("FSDP::all_gather (" + unit + ")", SL_KIND_record_function);
    main().range_push("nccl:_all_gather_base", SL_KIND_record_function).range_pop().range_pop();
  }
  void allocate(uint64_t bytes = 512) {
    main().allocator(SL_ALLOC, 0x1000000 + 0x1000 * clock, bytes);
  }

  using Said = std::vector<std::string>;
  fs::path directory;
  std::unique_ptr<LogBuilder> log;
  sl_log *reader = nullptr;
  sl_phases *phases = nullptr;
  sl_module_states *states = nullptr;
  Said said;
  uint64_t clock = 10;
};

TEST_F(ModuleStates, AUnitsBackwardLastsUntilThePreBackwardOfTheUnitBeforeItIsOver) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  fsdp("pre_backward (b.1)");
  post_backward(" (b.1)");
  main().range_push("FSDP::pre_backward (b.0)", SL_KIND_record_function);
  allocate(); // the gathered parameters
  main().range_pop();
  allocate();
  main().range_pop();
  EXPECT_EQ(read("Peak Backward"), (Said{"+3 Peak Backward", "+2 Peak Backward", "allocation Peak Backward",
                                         "-3 Peak Backward", "allocation Peak Backward", "-2 Peak Backward"}));
}

TEST_F(ModuleStates, AUnitsBackwardEndsBeforeTheNextFunctionsAllocation) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  fsdp("pre_backward (b.1)");
  allocate();
  post_backward(" (b.1)");
  allocate();
  main().range_pop();
  EXPECT_EQ(read("Peak Backward"),
            (Said{"+3 Peak Backward", "allocation Peak Backward", "-3 Peak Backward", "allocation Peak Backward"}));
}

TEST_F(ModuleStates, WhatFSDPCastsHasItsGradientInTheUnitsBackward) {
  main().range_push("Model", SL_KIND_forward, 1);
  main().range_push("b.1", SL_KIND_forward, 3);
  main().range_push("FSDP::cast_forward_inputs", SL_KIND_record_function);
  allocate(4096);
  main().range_pop().range_pop().range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  fsdp("pre_backward (b.1)");
  post_backward(" (b.1)");
  allocate(8192); // its gradient, in the type of before
  main().range_push("FSDP::pre_backward (b.0)", SL_KIND_record_function);
  allocate(8192);
  main().range_pop();
  allocate(8192);
  main().range_pop();
  EXPECT_EQ(read("Peak Backward"),
            (Said{"allocation Peak Backward", "+3 Peak Backward", "allocation Peak Backward", "+2 Peak Backward",
                  "allocation Peak Backward", "-3 Peak Backward", "allocation Peak Backward", "-2 Peak Backward"}));
}

TEST_F(ModuleStates, AnotherAllocationIsNoCastsGradient) {
  main().range_push("Model", SL_KIND_forward, 1);
  main().range_push("b.1", SL_KIND_forward, 3);
  main().range_push("FSDP::cast_forward_inputs", SL_KIND_record_function);
  allocate(4096);
  main().range_pop().range_pop().range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  fsdp("pre_backward (b.1)");
  post_backward(" (b.1)");
  allocate(4096);
  main().range_pop();
  EXPECT_EQ(read("Peak Backward"),
            (Said{"allocation Peak Backward", "+3 Peak Backward", "-3 Peak Backward", "allocation Peak Backward"}));
}

TEST_F(ModuleStates, AUnitWithoutDifferentiableInputsIsLeftBeforeTheRootsCallback) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  fsdp("pre_backward");
  main().range_push("FSDP::root_post_backward_callback", SL_KIND_record_function);
  post_backward("");
  main().range_pop();
  main().range_pop();
  EXPECT_EQ(read("Backward"), (Said{"1 Before Pre-Backward", "+1 Peak Backward", "1 After Pre-Backward",
                                    "-1 Peak Backward", "1 Before Post-Backward", "1 After Post-Backward"}));
}

TEST_F(ModuleStates, EachCallOfPreBackwardRestartsThePeak) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  for (int i = 0; i < 2; i++) {
    fsdp("pre_backward (b.1)");
    post_backward(" (b.1)");
  }
  main().range_pop();
  EXPECT_EQ(read("Peak Backward"),
            (Said{"+3 Peak Backward", "-3 Peak Backward", "+3 Peak Backward 1", "-3 Peak Backward"}));
}

TEST_F(ModuleStates, ModulesThatShareAUnitReachItsStatesTogether) {
  main().range_push("Model", SL_KIND_forward, 1);
  main().range_push("b.1", SL_KIND_forward, 3);
  fsdp("pre_forward (b.0, b.1)");
  fsdp("post_forward (b.0, b.1)");
  main().range_pop();
  main().range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  fsdp("pre_backward (b.0, b.1)");
  main().range_pop();
  read("");
  EXPECT_EQ(with("Pre-Backward"),
            (Said{"2 Before Pre-Backward", "3 Before Pre-Backward", "2 After Pre-Backward", "3 After Pre-Backward"}));
  EXPECT_EQ(with("After Pre-Forward"), (Said{"3 After Pre-Forward"})) << "the one that is called";
  EXPECT_EQ(with("Before Post-Forward"), (Said{"3 Before Post-Forward"}));
}

TEST_F(ModuleStates, OfModulesThatShareAUnitOnlyThoseThatBackwardIsInGetHigher) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  fsdp("pre_backward (b.0, b.1)"); // the gradients of b.1's output have come
  allocate();
  fsdp("pre_backward (b.0, b.1)"); // those of b.0's
  allocate();
  main().range_pop();
  EXPECT_EQ(read("Peak Backward"),
            (Said{"+2 Peak Backward", "-2 Peak Backward", "+3 Peak Backward", "allocation Peak Backward",
                  "+2 Peak Backward 1", "-3 Peak Backward", "+3 Peak Backward 1", "-3 Peak Backward",
                  "allocation Peak Backward", "-2 Peak Backward"}));
}

TEST_F(ModuleStates, AnUnitIsCalledAgainOnlyWhereTheCallIsItsOwn) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  main().range_push("b.0", SL_KIND_recompute, 2);
  fsdp("pre_forward (b.0)");
  fsdp("post_forward (b.0)");
  main().range_pop();
  main().range_push("b.1._checkpoint_wrapped_module", SL_KIND_recompute, 3).range_pop();
  main().range_pop();
  EXPECT_EQ(read("-Forward"),
            (Said{"1 Before Pre-Forward", "1 After Post-Forward", "2 Pre-Forward AC", "2 Post-Forward AC"}));
}

TEST_F(ModuleStates, APeakForwardLastsFromTheCallToItsPostForward) {
  main().range_push("b.0", SL_KIND_forward, 2);
  fsdp("pre_forward (b.0)");
  allocate();
  fsdp("post_forward (b.0)");
  main().range_pop();
  EXPECT_EQ(read("Forward"),
            (Said{"2 Before Pre-Forward", "+2 Peak Forward", "2 After Pre-Forward", "allocation Forward",
                  "2 Before Post-Forward", "-2 Peak Forward", "-2 Peak Forward", "2 After Post-Forward"}));
}

TEST_F(ModuleStates, ACollectiveTellsItsBuffersApart) {
  main().range_push("b.0", SL_KIND_forward, 2);
  main().range_push("FSDP::all_gather (b.0)", SL_KIND_record_function);
  main().range_push("nccl:_all_gather_base", SL_KIND_record_function).range_pop();
  allocate();
  main().range_pop();
  main().range_pop();
  EXPECT_EQ(read("all_gather"), (Said{"!2 all_gather", "allocation all_gather"}));
}

TEST_F(ModuleStates, AGatherThatIsPrefetchedExplicitlyInBackwardIsNotToldApart) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  main().range_push("FSDP::pre_backward (b.1)", SL_KIND_record_function);
  gather("b.1");
  main().range_pop();
  gather("b.0");
  main().range_pop();
  EXPECT_EQ(read("all_gather"), (Said{"!3 all_gather"}));
}

TEST_F(ModuleStates, OnlyACollectiveOfItsOwnTellsAReductionsBufferApart) {
  main().range_push("Model", SL_KIND_forward, 1).range_pop();
  main().range_push("FSDP::post_backward_reduce (b.0)", SL_KIND_record_function);
  main().range_push("nccl:all_reduce", SL_KIND_record_function).range_pop().range_pop();
  main().range_push("FSDP::post_backward_reduce (b.1)", SL_KIND_record_function);
  main().range_push("nccl:_reduce_scatter_base", SL_KIND_record_function).range_pop().range_pop();
  EXPECT_EQ(read("reduce_scatter"), (Said{"!3 reduce_scatter"}));
}

TEST_F(ModuleStates, ExplicitPrefetchesInForwardBelongToThePreForward) {
  main().range_push("b.0", SL_KIND_forward, 2);
  fsdp("pre_forward (b.0)");
  main().range_push("FSDP::forward_prefetch for b.1", SL_KIND_record_function);
  allocate();
  main().range_pop().range_pop();
  EXPECT_EQ(read("After Pre-Forward"), (Said{"allocation After Pre-Forward", "2 After Pre-Forward"}));
}

TEST_F(ModuleStates, ModulesWithoutFsdpHaveMemTrackersStates) {
  main().range_push("Model", SL_KIND_forward, 1).range_push("head", SL_KIND_forward, 5).range_pop().range_pop();
  main().range_push("backward", SL_KIND_backward, 0);
  main().range_start(9, "head", SL_KIND_backward, 5);
  main().range_end(9);
  main().range_pop();
  EXPECT_EQ(read("5 "), (Said{"5 Pre-Forward", "+5 Peak-Forward", "-5 Peak-Forward", "5 Post-Forward", "5 Pre-Backward",
                              "+5 Peak-Backward", "5 Post-Backward", "-5 Peak-Backward"}));
}

TEST_F(ModuleStates, NothingIsTakenOutsideOfSteps) {
  main().range_end(1);
  main().range_push("b.0", SL_KIND_forward, 2).range_pop();
  EXPECT_EQ(read("Forward"), (Said{}));
}

} // namespace
