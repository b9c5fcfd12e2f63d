// From process directories to a ledger: the rows that a small made-up job gives, and what bad input does.
#include "ledger_job.h"

#include <fstream>
#include <numeric>

using namespace small_job;

namespace {

TEST_F(Ledger, EveryAllocationOfAStepHasAnOwnerAndAReason) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.info("rank", "0").info("world_size", "1").info("start_ns", "50");
    job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT category, decided_by, bytes, requested_bytes, module_id, coalesce(name, ''), step, alloc_ns, "
                 "coalesce(free_ns, 0) FROM allocation ORDER BY alloc_ns"),
            (std::vector<std::string>{
                "sharded_param|tag|1024|1000|1|weight||101|0",
                "activation|forward_activation|2048|2048|1||0|121|138",
                "unsharded_grad|freed_in_reduce|512|512|1||0|132|136",
                "sharded_grad|fsdp_sharded_grad|512|512|1||0|135|0",
                "optstate|optimizer_state|1024|1024|||0|151|0",
            }));
}

TEST_F(Ledger, TheStepHasItsPeakAndIsCheckedAgainstPyTorchsOwnStatistics) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT step, start_ns, end_ns, peak_ns, peak_allocated_bytes, peak_requested_bytes, "
                 "peak_reserved_bytes, end_allocated_bytes, checked FROM step"),
            (std::vector<std::string>{"0|110|170|135|4096|4072|2097152|2560|1"}));
  EXPECT_EQ(
      rows("SELECT category, bytes FROM category_at_peak WHERE step IS NOT NULL ORDER BY category"),
      (std::vector<std::string>{"activation|2048", "sharded_grad|512", "sharded_param|1024", "unsharded_grad|512"}));
  EXPECT_EQ(rows("SELECT peak_phase, peak_module FROM step_summary"), (std::vector<std::string>{"reduce|Model"}));
}

TEST_F(Ledger, ADifferenceFromPyTorchsStatisticsIsNotHidden) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.thread(1).at(10).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).range_start(1, "step 0", SL_KIND_step, 0);
    log.thread(1).at(20).append(sl_event_allocator_stats{0, 512, 0, 2 * kMiB, 1, 0}).at(30).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT checked FROM step"), (std::vector<std::string>{"0"}));
}

TEST_F(Ledger, TheOwnersOfAPeriodAreFoundByAnIndex) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  auto plan = rows("EXPLAIN QUERY PLAN SELECT * FROM peak_owner WHERE rank = 0 AND period = 0");
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_NE(plan[0].find("USING INDEX peak_owner_by_period (rank=? AND period=?)"), std::string::npos) << plan[0];
}

TEST_F(Ledger, WhereAllocationsWereNotRecordedSumsAreUnknownAndNotZero) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.thread(1).at(10).range_start(1, "step 0", SL_KIND_step, 0).at(20).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT step, peak_allocated_bytes IS NULL, end_reserved_bytes IS NULL, peak_ns IS NULL FROM step"),
            (std::vector<std::string>{"0|1|1|1"}));
  EXPECT_TRUE(rows("SELECT * FROM peak").empty());
}

TEST_F(Ledger, SnapshotsHoldTheDeviceAtEveryStateOfTheModule) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT state, sum(bytes) FROM snapshot GROUP BY state ORDER BY min(at_ns), state"),
            (std::vector<std::string>{
                "Before Pre-Forward|1024",
                "After Pre-Forward|1024",
                "Peak Forward|3072",
                "After Post-Forward|3072",
                "Before Post-Forward|3072",
                "After Pre-Backward|3072",
                "Before Pre-Backward|3072",
                "Before Post-Backward|3584",
                "Peak Backward|4096",
                "After Post-Backward|3584",
            }));
  EXPECT_EQ(rows("SELECT bytes FROM fsdp_snapshot WHERE fqn = 'FSDPModel' AND state = 'Before Post-Backward' AND "
                 "category IN ('Unsharded Grad', 'Total') ORDER BY category"),
            (std::vector<std::string>{"3584", "512"}));
}

TEST_F(Ledger, WrappersAndTheModulesInThemHaveMemTrackersNames) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT | SL_MODULE_DDP, 0);
    log.module(2, 1, "blocks", "ModuleList", 0, 1).module(3, 2, "blocks.0", "Block", SL_MODULE_RECOMPUTE, 2);
    log.module(4, 3, "blocks.0.up", "Linear", 0, 3);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).allocator(SL_ALLOC, 0x1000000, 1000);
    main.at(110).range_start(1, "step 0", SL_KIND_step, 0).tag(0x1000000, "param", 1, "weight");
    main.at(120).range_push("Model", SL_KIND_forward, 1).range_push("blocks.0", SL_KIND_forward, 3);
    main.at(121).allocator(SL_ALLOC, 0x1000400, 2048).range_pop().range_pop();
    main.at(130).range_push("backward", SL_KIND_backward, 0);
    main.at(131).range_push("blocks.0._checkpoint_wrapped_module", SL_KIND_recompute, 3);
    main.at(132).range_push("blocks.0.up", SL_KIND_recompute, 4).range_pop().range_pop();
    main.at(133).allocator(SL_FREE_REQUESTED, 0x1000400, 2048).allocator(SL_FREE_COMPLETED, 0x1000400, 2048);
    main.at(140).range_pop().at(170).range_end(1).process_end();
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT DISTINCT fqn FROM module_snapshot WHERE state = 'Post-Forward' ORDER BY fqn"),
            (std::vector<std::string>{
                "DistributedDataParallel",
                "DistributedDataParallel.module",
                "DistributedDataParallel.module.blocks.0",
                "DistributedDataParallel.module.blocks.0._checkpoint_wrapped_module",
            }));
  EXPECT_EQ(rows("SELECT DISTINCT fqn FROM module_snapshot WHERE state = 'Post-Forward-AC' ORDER BY fqn"),
            (std::vector<std::string>{
                "DistributedDataParallel.module.blocks.0._checkpoint_wrapped_module",
                "DistributedDataParallel.module.blocks.0._checkpoint_wrapped_module.up",
            }));
  EXPECT_EQ(rows("SELECT category, bytes FROM module_snapshot WHERE state = 'Peak-Forward' AND bytes > 0 AND "
                 "fqn = 'DistributedDataParallel.module' ORDER BY category"),
            (std::vector<std::string>{"Activation|2048", "Parameter|1024", "Total|3072"}));
}

TEST_F(Ledger, FsdpsTrackerKeepsOnePeakForwardOverAllCalls) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT | SL_MODULE_FSDP, 0).module(2, 1, "b", "Block", SL_MODULE_FSDP, 1);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).allocator(SL_ALLOC, 0x1000000, 512);
    main.tag(0x1000000, "sharded_param", 1, "weight");
    main.at(110).range_start(1, "step 0", SL_KIND_step, 0).range_push("Model", SL_KIND_forward, 1);
    for (uint64_t address : {0x1000200, 0x1000600}) {
      main.at(address).range_push("b", SL_KIND_forward, 2).range_push("FSDP::pre_forward (b)", SL_KIND_record_function);
      main.range_pop().allocator(SL_ALLOC, address, 1024).range_pop();
    }
    main.range_pop().range_end(1).process_end();
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT call, state FROM fsdp_snapshot WHERE fqn = 'FSDPModel.b' AND category = 'Total' AND "
                 "state IN ('Peak Forward', 'After Pre-Forward') ORDER BY state, call"),
            (std::vector<std::string>{"0|After Pre-Forward", "1|After Pre-Forward", "0|Peak Forward"}));
  EXPECT_EQ(rows("SELECT DISTINCT call_index FROM snapshot JOIN module ON module.id = module_id WHERE fqn = 'b' AND "
                 "state = 'Peak Forward' ORDER BY call_index"),
            (std::vector<std::string>{"0", "1"}))
      << "the ledger keeps each";
}

TEST_F(Ledger, PeaksOfModulesCountWhatTheyOwn) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT phase, allocated_bytes, own_bytes FROM module_peaks WHERE fqn = '' AND module_id IS NOT NULL "
                 "ORDER BY phase"),
            (std::vector<std::string>{"backward|4096|4096", "forward|3072|3072"}));
}

TEST_F(Ledger, AParentsPeakWithItsChildrenIsOfOneInstant) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT).module(2, 1, "a", "Linear", 0, 1).module(3, 1, "b", "Linear", 0, 1);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(110).range_push("Model", SL_KIND_forward, 1).allocator(SL_ALLOC, 0x1000000, 512);
    main.at(120).range_push("a", SL_KIND_forward, 2).allocator(SL_ALLOC, 0x1000200, 1024).range_pop();
    main.at(130).range_push("b", SL_KIND_forward, 3).allocator(SL_ALLOC, 0x1000600, 2048);
    main.at(131).allocator(SL_FREE_REQUESTED, 0x1000600, 2048).allocator(SL_FREE_COMPLETED, 0x1000600, 2048);
    main.at(132).range_pop().range_pop().at(140).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT fqn, own_bytes, own_with_children_bytes FROM module_peaks WHERE phase = 'forward' "
                 "ORDER BY fqn"),
            (std::vector<std::string>{"|512|3584", "a|1024|1024", "b|2048|2048"}));
}

TEST_F(Ledger, ABackwardWithoutGradientSyncHasThePeakOfItsTimeUpToTheReshard) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT | SL_MODULE_FSDP, 0).module(2, 1, "b", "Block", SL_MODULE_FSDP, 1);
    auto &main = log.thread(1);
    auto &autograd = log.thread(2);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(110).range_push("Model", SL_KIND_forward, 1).range_pop();
    main.at(120).range_push("backward", SL_KIND_backward, 0);
    autograd.at(121).range_push("FSDP::pre_backward", SL_KIND_record_function).range_pop();
    autograd.at(130).range_push("FSDP::pre_backward (b)", SL_KIND_record_function).range_pop();
    autograd.at(131).allocator(SL_ALLOC, 0x1000000, 1024);
    autograd.at(132).range_push("FSDP::post_backward_reshard (b)", SL_KIND_record_function).range_pop();
    autograd.at(140).allocator(SL_ALLOC, 0x1000400, 4096); // the gradient of the root's own parameter
    main.at(150).range_pop().at(160).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT fqn, allocated_bytes, own_bytes FROM module_peaks WHERE phase = 'backward' AND module_id IS "
                 "NOT NULL ORDER BY fqn"),
            (std::vector<std::string>{"|5120|4096", "b|1024|1024"}));
}

TEST_F(Ledger, WhatModulesReachBetweenStepsIsNoPeakOfTheNextStep) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    for (uint64_t step = 0; step < 2; step++) {
      for (auto kind : {SL_KIND_eval, SL_KIND_forward}) { // an evaluation, and the other model of a pair
        main.at(110 + 100 * step).range_push("Model", kind, 1).allocator(SL_ALLOC, 0x1000000, 8192);
        main.allocator(SL_FREE_REQUESTED, 0x1000000, 8192).allocator(SL_FREE_COMPLETED, 0x1000000, 8192).range_pop();
      }
      main.at(150 + 100 * step)
          .range_start(step + 1, "step", SL_KIND_step, step)
          .range_push("Model", SL_KIND_forward, 1);
      main.allocator(SL_ALLOC, 0x1000000, 512).allocator(SL_FREE_REQUESTED, 0x1000000, 512);
      main.allocator(SL_FREE_COMPLETED, 0x1000000, 512).range_pop().range_end(step + 1);
    }
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT step, phase, allocated_bytes FROM peak WHERE module_id = 1 AND step IS NOT NULL"),
            (std::vector<std::string>{"0|forward|512", "1|forward|512"}));
  EXPECT_EQ(rows("SELECT peak_allocated_bytes, before_allocated_bytes FROM step"),
            (std::vector<std::string>{"512|8192", "512|8192"}));
}

TEST_F(Ledger, WhatAForwardHoldsWhenTheLogEndsInItIsActivationsAlsoBetweenSteps) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT).module(2, 1, "block", "Block", 0, 1);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    main.at(110).range_start(1, "step 0", SL_KIND_step, 0).at(120).range_end(1);
    main.at(130).range_push("Model", SL_KIND_eval, 1).range_push("block", SL_KIND_eval, 2);
    main.at(140).allocator(SL_ALLOC, 0x1000000, 512); // killed here
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT category, decided_by FROM allocation"),
            (std::vector<std::string>{"activation|forward_activation"}));
}

TEST_F(Ledger, ATagWithoutAModuleLeavesTheOneThatIsKnown) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).allocator(SL_ALLOC, 0x1000000, 512);
    main.at(101).allocator(SL_ALLOC, 0x1000200, 512).tag(0x1000000, "param", 1).tag(0x1000200, "param", 1);
    main.at(102).tag(0x1000000, "mine"); // before the step in which they are decided ends, and after
    main.at(110).range_start(1, "step 0", SL_KIND_step, 0).at(120).range_end(1).tag(0x1000200, "mine");
    main.at(130).range_start(2, "step 1", SL_KIND_step, 1).at(140).range_end(2);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT category, module_id FROM allocation"), (std::vector<std::string>{"mine|1", "mine|1"}));
}

TEST_F(Ledger, SurvivorsAreAliveAfterTheStepThatFollowsTheirOwn) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT);
    auto &main = log.thread(1);
    main.at(90).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).allocator(SL_ALLOC, 0x1000000, 512);
    for (uint64_t step = 0; step < 3; step++) {
      main.at(100 + 10 * step)
          .range_start(step + 1, "step", SL_KIND_step, step)
          .range_push("Model", SL_KIND_forward, 1);
      main.allocator(SL_ALLOC, 0x1000200 + step * 2048, 1024); // kept for good
      if (step == 1)                                           // what the first step kept of the second kind
        main.allocator(SL_FREE_REQUESTED, 0x1000600, 1024).allocator(SL_FREE_COMPLETED, 0x1000600, 1024);
      main.allocator(SL_ALLOC, 0x1000600 + step * 2048, 1024).range_pop().at(105 + 10 * step).range_end(step + 1);
    }
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT coalesce(step, 'setup'), coalesce(last_step, 'none') FROM allocation ORDER BY address"),
            (std::vector<std::string>{"setup|2", "0|2", "0|0", "1|2", "1|2", "2|2", "2|2"}));
  EXPECT_EQ(
      rows("SELECT step, module, phase, category, size_bytes, bytes, allocations, kept_bytes FROM survivors"),
      (std::vector<std::string>{"0|Model|forward|other|1024|1024|1|1024", "1|Model|forward|other|1024|2048|2|2048"}))
      << "of the last step nobody knows yet";
  auto plan = rows("EXPLAIN QUERY PLAN SELECT * FROM survivors");
  EXPECT_NE(std::accumulate(plan.begin(), plan.end(), std::string()).find("USING INDEX allocation_survivor"),
            std::string::npos)
      << "not by reading every allocation";
}

TEST_F(Ledger, AStepThatTheLogsEndCutsOffIsKeptAndTheProcessIsNotCleanlyEnded) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(120).range_push("Model", SL_KIND_forward, 1).allocator(SL_ALLOC, 0x1000000, 4096);
    main.at(130).allocator(SL_OUT_OF_MEMORY, 777, 123 * kMiB);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT step, peak_allocated_bytes FROM step"), (std::vector<std::string>{"0|4096"}));
  EXPECT_EQ(rows("SELECT requested_bytes, free_bytes, allocated_bytes, largest_free_bytes FROM oom"),
            (std::vector<std::string>{"128974848|777|4096|2093056"}));
  EXPECT_EQ(rows("SELECT clean_exit FROM rank"), (std::vector<std::string>{"0"}));
  EXPECT_EQ(rows("SELECT kind, coalesce(end_ns, 'open') FROM phase ORDER BY id"),
            (std::vector<std::string>{"step|open", "forward|open"}));
}

TEST_F(Ledger, RanksShareOneFileAndTheirIdsStayApart) {
  for (const char *rank : {"0", "1"}) {
    LogBuilder log(directory / (std::string("host-") + rank), 50);
    log.info("rank", rank).info("world_size", "2");
    job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT rank, world_size FROM rank"), (std::vector<std::string>{"0|2", "1|2"}));
  EXPECT_EQ(rows("SELECT count(*), count(DISTINCT id) FROM allocation"), (std::vector<std::string>{"10|10"}));
  EXPECT_EQ(rows("SELECT count(*) FROM allocation a JOIN module m ON m.id = a.module_id WHERE m.rank <> a.rank"),
            (std::vector<std::string>{"0"}));
  EXPECT_STREQ(note.text, "");
}

// Browsers of databases follow the references that tables declare: none may lead nowhere.
TEST_F(Ledger, EveryReferenceLeadsToARow) {
  for (const char *run : {"fsdp2-2rank", "killed-2rank", "nccl-2rank", "oom-loss-2rank", "matrix/late-attach"}) {
    fs::remove(output);
    ASSERT_EQ(sl_ledger_build((fs::path(SL_TEST_DATA) / run).c_str(), output.c_str(), nullptr, &note, &error), 0)
        << error.text;
    EXPECT_GT(std::stoi(rows("SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%REFERENCES module(id)%'").at(0)), 5);
    EXPECT_EQ(rows("SELECT * FROM pragma_foreign_key_check"), std::vector<std::string>{}) << run;
  }
}

TEST_F(Ledger, OnlyTheNewestRunOfADirectoryCountsAndTheRestIsNamed) {
  for (int run = 0; run < 2; run++) {
    LogBuilder log(directory / ("host-" + std::to_string(run)), 50);
    log.info("rank", "0").info("start_ns", std::to_string(1000 + run)).info("pid", std::to_string(40 + run));
    job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT pid FROM rank"), (std::vector<std::string>{"41"}));
  EXPECT_NE(std::string(note.text).find("holds 2 runs: the newest, run 2"), std::string::npos) << note.text;
}

TEST_F(Ledger, LossesAndUnknownMemoryAreCountedAsGaps) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.thread(1).at(10).gap("nvtx", "no segment was ready", 7).allocator(SL_FREE_REQUESTED, 0x99, 512).range_pop();
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT source, lost FROM gap ORDER BY source"),
            (std::vector<std::string>{"nvtx|7", "ranges|1", "replay|1"}));
  EXPECT_EQ(rows("SELECT events_lost FROM rank"), (std::vector<std::string>{"8"}));
}

TEST_F(Ledger, UserCategoriesKeepTheirNames) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &main = log.thread(1);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(110).allocator(SL_ALLOC, 0x1000000, 4096).tag(0x1000000, "kv_cache").at(120).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT category, bytes FROM category_at_peak WHERE step IS NOT NULL"),
            (std::vector<std::string>{"kv_cache|4096"}));
  EXPECT_EQ(rows("SELECT allocated_bytes, other_bytes FROM module_peaks WHERE step IS NOT NULL"),
            (std::vector<std::string>{"4096|4096"}))
      << "columns add up";
}

TEST_F(Ledger, ABuildGivesTheSameContentEveryTime) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  const std::string allocations = "SELECT * FROM allocation", snapshots = "SELECT * FROM snapshot";
  ASSERT_EQ(build(), 0);
  const auto first = rows(allocations), states = rows(snapshots);
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows(allocations), first);
  EXPECT_EQ(rows(snapshots), states);
  EXPECT_FALSE(first.empty() || states.empty());
}

TEST_F(Ledger, StatisticsOfADeviceThatIsNoneAreNotCompared) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.thread(1).append(sl_event_allocator_stats{1, 1, 1, 1, 0, UINT32_MAX});
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM rank"), (std::vector<std::string>{"1"}));
}

TEST_F(Ledger, ItIsStaleWhenALogIsNewer) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  EXPECT_EQ(sl_ledger_is_stale(directory.c_str(), output.c_str()), 1);
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(sl_ledger_is_stale(directory.c_str(), output.c_str()), 0);
  fs::last_write_time(directory / "host-1-1" / "00000000.slog",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(sl_ledger_is_stale(directory.c_str(), output.c_str()), 1);
}

TEST_F(Ledger, AnEmptyDirectorySaysHowToRecord) {
  EXPECT_EQ(build(), -ENODATA);
  EXPECT_NE(std::string(error.text).find("shardledger run"), std::string::npos) << error.text;
  EXPECT_FALSE(fs::exists(output));
}

TEST_F(Ledger, AMissingDirectoryIsNamed) {
  EXPECT_EQ(sl_ledger_build("/nowhere/at/all", output.c_str(), nullptr, &note, &error), -ENOENT);
  EXPECT_NE(std::string(error.text).find("/nowhere/at/all"), std::string::npos);
}

TEST_F(Ledger, ForeignFilesNamedLikeLogsAreRefusedInWords) {
  fs::create_directories(directory / "host-1-1");
  std::ofstream(directory / "host-1-1" / "00000000.slog") << std::string(4096, 'x');
  EXPECT_LT(build(), 0);
  EXPECT_STRNE(error.text, "");
  EXPECT_FALSE(fs::exists(output));
}

TEST_F(Ledger, AnUnwritablePlaceLeavesNothingBehind) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  EXPECT_LT(sl_ledger_build(directory.c_str(), "/proc/ledger.sqlite", nullptr, &note, &error), 0);
  EXPECT_NE(std::string(error.text).find("/proc/ledger.sqlite"), std::string::npos) << error.text;
  for (const auto &entry : fs::directory_iterator(directory))
    EXPECT_EQ(entry.path().extension() == ".part", false) << entry.path();
}

} // namespace
