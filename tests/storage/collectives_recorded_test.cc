// NCCL's calls in the ledger, from recorded logs held against what the job did; and why a call has no time of its
// kernel.
#include "collectives_job.h"

using namespace collectives;

namespace {

class RecordedFsdp : public Collectives, public ::testing::WithParamInterface<const char *> {};

TEST_P(RecordedFsdp, EveryKernelOfNcclIsJoinedToItsCall) {
  build_recorded(GetParam());
  EXPECT_EQ(rows("SELECT (SELECT count(*) FROM kernel WHERE name LIKE '%nccl%') = count(joined_by), "
                 "count(*) = count(joined_by), count(*) FROM collective"),
            (Rows{"1|1|150"}));
  EXPECT_EQ(rows("SELECT count(*) FROM collective c WHERE NOT EXISTS(SELECT 1 FROM kernel k WHERE k.rank = c.rank AND "
                 "k.start_ns = c.start_ns AND k.end_ns = c.end_ns AND instr(k.name, c.operation))"),
            (Rows{"0"}));
}

TEST_P(RecordedFsdp, EachUnitsGathersAndReductionsMoveWhatItsParametersWeigh) {
  build_recorded(GetParam());
  // A unit's own parameters: without those of the units inside of it. In mixed precision gathers are half as wide.
  const std::string own = "m.param_bytes - coalesce((SELECT sum(i.param_bytes) FROM module i WHERE i.rank = m.rank AND "
                          "i.is_fsdp AND i.root_id = m.root_id AND i.id <> m.id AND m.id = m.root_id), 0)";
  const bool mixed = std::string(GetParam()) == "fsdp2-2rank-recompute";
  EXPECT_EQ(rows("SELECT count(DISTINCT m.id), count(*) FROM collective c JOIN module m ON m.id = c.module_id "
                 "WHERE m.is_fsdp AND c.bytes = (" +
                 own + ") / iif(c.operation = 'AllGather', " + (mixed ? "2" : "1") + ", 1)"),
            (Rows{"10|150"}));
  EXPECT_EQ(
      rows("SELECT DISTINCT count(*) FROM collective WHERE step IS NOT NULL GROUP BY rank, step, module_id, operation "
           "ORDER BY 1"),
      (Rows{"1", "2"}))
      << "a step gathers each unit in forward and in backward, and reduces it once";
}

TEST_P(RecordedFsdp, BuffersAreTheAllocationsOfTheSameUnitAndKind) {
  build_recorded(GetParam());
  EXPECT_EQ(rows("SELECT operation, a.category, a.requested_bytes / c.bytes, a.module_id = c.module_id, count(*) "
                 "FROM collective c JOIN allocation a ON a.id = iif(operation = 'AllGather', receive_allocation_id, "
                 "send_allocation_id) GROUP BY 1, 2, 3, 4"),
            (Rows{"AllGather|all_gather|2|1|100", "ReduceScatter|reduce_scatter|2|1|50"}));
}

TEST_P(RecordedFsdp, RanksAgreeOnEveryCollective) {
  build_recorded(GetParam());
  EXPECT_EQ(rows("SELECT count(*) FROM (SELECT comm, seq FROM collective GROUP BY comm, seq HAVING count(*) <> 2 OR "
                 "count(DISTINCT operation) <> 1 OR count(DISTINCT bytes) <> 1 OR count(DISTINCT rank) <> 2)"),
            (Rows{"0"}));
  EXPECT_EQ(rows("SELECT rank, nranks, comm_rank, device_bytes > 0 FROM communicator ORDER BY rank"),
            (Rows{"0|2|0|1", "1|2|1|1"}));
}

INSTANTIATE_TEST_SUITE_P(Runs, RecordedFsdp, ::testing::Values("fsdp2-2rank", "fsdp2-2rank-recompute"));

// ---- tests/gpu/nccl_calls.py, with launches and NCCL's profiler ----

TEST_F(Collectives, EveryKindOfCallOfARecordedJobIsThereAndJoined) {
  build_recorded("nccl-2rank");
  EXPECT_EQ(
      rows("SELECT operation, kernel_calls, count(*), count(start_ns), count(DISTINCT comm), min(bytes), max(bytes) "
           "FROM collective WHERE rank = 0 GROUP BY 1, 2"),
      (Rows{"AllGather|1|5|5|1|4194304|4194304", "AllReduce|1|10|10|2|4194304|4194304",
            "AllReduce|2|10|10|1|4194304|4194304", "AlltoAll|1|5|5|1|4194304|4194304",
            "Broadcast|1|5|5|1|4194304|4194304", "Recv|2|5|5|1|4194304|4194304", "Reduce|1|5|5|1|4194304|4194304",
            "ReduceScatter|1|5|5|1|4194304|4194304", "Send|1|5|5|1|4194304|4194304", "Send|2|5|5|1|4194304|4194304"}));
  EXPECT_EQ(rows("SELECT DISTINCT joined_by FROM collective"), (Rows{"correlation"}));
  EXPECT_EQ(rows("SELECT count(*) FROM kernel k WHERE name LIKE '%nccl%' AND NOT EXISTS(SELECT 1 FROM collective c "
                 "WHERE c.rank = k.rank AND c.start_ns = k.start_ns AND c.stream = k.stream)"),
            (Rows{"0"}));
}

TEST_F(Collectives, SendsAndReceivesOfTwoRanksMeetInTheirNumbers) {
  build_recorded("nccl-2rank");
  EXPECT_EQ(rows("SELECT count(*), sum(r.id IS NULL) FROM collective s LEFT JOIN communicator k ON k.rank = s.rank AND "
                 "k.comm = s.comm LEFT JOIN collective r ON r.comm = s.comm AND r.operation = 'Recv' AND "
                 "r.seq = s.seq AND r.rank = s.peer AND r.peer = k.comm_rank AND r.bytes = s.bytes "
                 "WHERE s.operation = 'Send'"),
            (Rows{"15|0"}));
}

TEST_F(Collectives, TheProfilerAloneGivesTheSameCollectives) {
  build_recorded("nccl-profiler-only-2rank");
  EXPECT_EQ(
      rows("SELECT operation, kernel_calls, count(*), count(start_ns), min(bytes), max(bytes) FROM collective "
           "WHERE rank = 0 AND operation NOT IN ('Send', 'Recv') GROUP BY 1, 2"),
      (Rows{"AllGather|1|5|5|4194304|4194304", "AllReduce|1|10|10|4194304|4194304", "AllReduce|2|10|10|4194304|4194304",
            "Broadcast|1|5|5|4194304|4194304", "Reduce|1|5|5|4194304|4194304", "ReduceScatter|1|5|5|4194304|4194304"}));
  EXPECT_EQ(
      rows("SELECT count(*) FROM collective c WHERE operation NOT IN ('Send', 'Recv') AND NOT EXISTS(SELECT 1 FROM "
           "kernel k WHERE k.rank = c.rank AND k.start_ns = c.start_ns AND instr(k.name, c.operation))"),
      (Rows{"0"}));
}

TEST_F(Collectives, ACallWithoutAKernelSaysWhy) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(100, 1, 51);
    job.all_gather(110, 2, 52); // captured: its launch runs nothing
    job.all_gather(120, 3);     // by copy engines
    job.all_gather(130, 4, 55);
    job.all_gather(140, 5, 56); // no record came any more
    job.kernel(51, 200, 300, kAllGather).kernel(53, 300, 310, kAllGather).kernel(54, 310, 320, kAllGather);
    job.kernel(55, 400, 410, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT bytes, start_ns, untimed FROM collective ORDER BY id"),
            (Rows{"1|200|", "2||captured", "3||no_launch", "4|400|", "5||no_kernel"}));
}

TEST_F(Collectives, WithoutReplaysAMissingKernelIsNotTakenForACapture) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(100, 1, 51).all_gather(110, 2, 52).all_gather(120, 3, 53);
    job.kernel(51, 200, 300, kAllGather).kernel(53, 300, 310, kAllGather);
  }
  build();
  EXPECT_EQ(rows("SELECT untimed FROM collective ORDER BY id"), (Rows{"", "no_kernel", ""}));
}

TEST_F(Collectives, CallsOfStepsWithoutDeviceTimesAreNotTakenForCapturedOnes) {
  {
    Job job(directory / "host-1");
    job.schemas();
    auto &main = job.thread();
    uint32_t correlation = 50;
    for (uint64_t step = 0; step < 3; step++) {
      main.at(1000 * step + 100).range_start(step + 1, "step", SL_KIND_step, step);
      for (int call = 0; call < 3; call++)
        job.all_gather(1000 * step + 110, step, ++correlation);
      main.at(1000 * step + 900).range_end(step + 1);
    }
    for (uint32_t timed : {51, 52, 53, 57, 59}) // step 1 is not timed, and the second call of step 2 is captured
      job.kernel(timed, 3000 + timed * 10, 3005 + timed * 10, kAllGather);
    job.kernel(60, 9000, 9010, kAllGather); // its graph, replayed
  }
  build();
  EXPECT_EQ(
      rows("SELECT step, coalesce(untimed, '-') FROM collective ORDER BY id"),
      (Rows{"0|-", "0|-", "0|-", "1|untimed_step", "1|untimed_step", "1|untimed_step", "2|-", "2|captured", "2|-"}));
}

TEST_F(Collectives, OfTheLastStepTimesMayBeMissingOnlyWhereTheProcessWasKilled) {
  for (bool orderly : {false, true}) {
    {
      Job job(directory / "host-1");
      job.schemas();
      auto &main = job.thread();
      for (uint64_t step = 0; step < 2; step++) {
        main.at(1000 * step + 100).range_start(step + 1, "step", SL_KIND_step, step);
        job.all_gather(1000 * step + 110, step, (uint32_t)step + 1);
        main.at(1000 * step + 900).range_end(step + 1);
      }
      job.kernel(1, 120, 130, kAllGather);
      if (orderly)
        main.at(5000).process_end();
    }
    build();
    EXPECT_EQ(rows("SELECT coalesce(untimed, '-') FROM collective ORDER BY id"),
              (Rows{"-", orderly ? "untimed_step" : "no_kernel"}));
    fs::remove_all(directory / "host-1");
  }
}

TEST_F(Collectives, WhereOneOfSeveralStepsIsTimedEveryCallHasItsRowAndKernelsTheirCall) {
  constexpr uint64_t kSteps = 41, kCalls = 1000;
  {
    Job job(directory / "host-1");
    job.schemas();
    auto &main = job.thread();
    for (uint64_t step = 0; step < kSteps; step++) {
      const uint64_t start = 10'000'000 * (step + 1);
      main.at(start).range_start(step + 1, "step", SL_KIND_step, step);
      for (uint64_t call = 0; call < kCalls; call++) {
        const uint32_t correlation = step * kCalls + call + 1;
        job.all_gather(start + 1000 * call + 1, step, correlation);
        if (step % 5 == 0)
          job.kernel(correlation, start + 1000 * call + 500, start + 1000 * call + 900, kAllGather);
      }
      main.at(start + 9'000'000).range_end(step + 1);
    }
  }
  sl_ledger_options options{};
  options.keep_all = true;
  ASSERT_EQ(sl_ledger_build(directory.c_str(), output.c_str(), &options, &note, &error), 0) << error.text;
  EXPECT_EQ(rows("SELECT count(*), count(DISTINCT seq), count(start_ns), sum(untimed IS 'untimed_step'),"
                 " sum(start_ns - enqueue_ns <> 499) FROM collective"),
            (Rows{"41000|41000|9000|32000|0"}));
}

TEST_F(Collectives, WithoutCuptiNoTimeWasRecorded) {
  {
    Job job(directory / "host-1");
    job.schemas().all_gather(100, 1);
  }
  build();
  EXPECT_EQ(rows("SELECT untimed FROM collective"), (Rows{"not_recorded"}));
}

// tests/gpu/nccl_without_kernels.py --graph: three all-reduces, one captured, four replays, three all-reduces.
TEST_F(Collectives, ARecordedCudaGraphHasOneCapturedCallAndKernelsOfItsReplays) {
  build_recorded("nccl-graph-2rank");
  EXPECT_EQ(rows("SELECT rank, count(*), count(start_ns), sum(untimed IS 'captured') FROM collective GROUP BY rank"),
            (Rows{"0|7|6|1", "1|7|6|1"}));
  EXPECT_EQ(rows("SELECT rank, count(*) FROM kernel WHERE instr(name, 'nccl') GROUP BY rank"), (Rows{"0|10", "1|10"}));
  EXPECT_EQ(rows("SELECT DISTINCT seq FROM collective WHERE untimed IS NOT NULL"), (Rows{"3"}));
}

} // namespace
