// The highest point of the whole life, wherever it is: in the commands that name a run's peak.
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class PeaksOfALife : public testing::Test {
protected:
  // Rank 0 loads a state dict between two steps, which takes more than any of them; rank 1, if it is there, does not.
  void job(int ranks, int64_t step_bytes = 3 * gib) {
    LedgerBuilder ledger(path);
    for (int rank = 0; rank < ranks; rank++) {
      ledger.rank(rank, ranks);
      const int64_t block = ledger.module(rank, "blocks.3", "Block", ledger.module(rank, "", "Model"));
      ledger.between(rank, -1, "", {{"param", gib}});
      for (int step = 2; step < 4; step++) {
        const int64_t backward = ledger.phase(rank, step, "backward", block);
        ledger.step(rank, step, step_bytes, backward, block);
        ledger.peak(rank, step, 0, "step", {{"activation", step_bytes}});
        ledger.owner(rank, step, block, "activation", "forward", step_bytes, 7);
        if (step == 2 && rank == 0) {
          const int64_t load = ledger.phase(0, 2, "user", 0, "load_state_dict");
          ledger.between(0, 2, "load_state_dict", {{"param", 2 * gib}, {"program", 4 * gib}}, load);
          ledger.owner_between(0, 2, 0, "program", "user", 4 * gib, 3);
          ledger.owner_between(0, 2, block, "param", "", 2 * gib, 5);
        } else {
          ledger.between(rank, step, "", {{"param", gib}}, 0, step == 3 ? "end" : "");
        }
      }
    }
  }
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";
};

TEST_F(PeaksOfALife, APeakBetweenStepsIsTheHeadlineWithItsOwnersAndTheHighestStepBelow) {
  job(1);
  const std::string expected = "Peak 6.00 GiB allocated: rank 0, between steps 2 and 3 (load_state_dict)\n"
                               "     Highest step: 3.00 GiB, step 2, backward of blocks.3\n"
                               "     7.00 GiB reserved by PyTorch, 9.00 GiB of the device's 79.00 GiB in use (11.4%)\n"
                               "\n"
                               "Alive at the peak     Bytes  Share  \n"
                               "program            4.00 GiB  66.7%  ████████████████████████\n"
                               "param              2.00 GiB  33.3%  ████████████\n"
                               "\n"
                               "Largest owners  Category  Allocated in     Bytes  Allocations\n"
                               "(no module)     program   user          4.00 GiB            3\n"
                               "blocks.3        param     (outside)     2.00 GiB            5\n";
  for (const char *command : {"peaks", "info"}) {
    CommandResult result = shardledger({command, path});
    EXPECT_EQ(result.status, 0);
    EXPECT_TRUE(contains(result.out, expected)) << command << "\n" << result.out;
  }
}

TEST_F(PeaksOfALife, RanksWhosePeaksAreElsewhereAreSeen) {
  job(2);
  const std::string out = shardledger({"peaks", path}).out;
  EXPECT_TRUE(contains(out, "     Lowest peak of 2 ranks: 3.00 GiB on rank 1, 3.00 GiB less, step 2\n")) << out;
  EXPECT_TRUE(contains(out, "Rank  Step  Allocated  Reserved    Device  Where\n"
                            "   0     -   6.00 GiB  7.00 GiB  9.00 GiB  between steps 2 and 3 (load_state_dict)\n"
                            "   1     2   3.00 GiB  3.50 GiB  5.00 GiB  backward of blocks.3\n"))
      << out;
  EXPECT_TRUE(contains(out, "Alive at the peak    Rank 0    Rank 1  Share  \n"
                            "program            4.00 GiB       0 B  66.7%"))
      << out;
}

TEST_F(PeaksOfALife, EqualBytesInOtherPeriodsAreNotTheSamePeak) {
  job(2, 6 * gib);
  {
    LedgerBuilder equal(path = directory / "equal.sqlite");
    equal.rank(0, 2).between(0, -1, "", {{"param", gib}});
    equal.step(0, 0, mib).peak(0, 0, 0, "step", {{"param", mib}});
    equal.rank(1, 2).step(1, 0, gib).peak(1, 0, 0, "step", {{"param", gib}});
  }
  const std::string out = shardledger({"peaks", path}).out;
  EXPECT_TRUE(contains(out, "Peak 1.00 GiB allocated: rank 0, before step 0\n"
                            "     Highest step: 1.00 GiB, rank 1, step 0, outside any phase\n"))
      << out;
  EXPECT_TRUE(contains(out, "     As high on all 2 ranks, but not in the same period\n")) << out;
}

TEST_F(PeaksOfALife, AJobWithoutStepsHasAPeakWithOwnersAndPhase) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    const int64_t head = ledger.module(0, "head", "Linear", ledger.module(0, "", "Model"));
    const int64_t serve = ledger.phase(0, 0, "eval", head);
    ledger.between(0, -1, "generate", {{"param", gib}, {"activation", mib}}, serve, "whole");
    ledger.sql("UPDATE period SET peak_module_id = " + std::to_string(head));
    ledger.owner_between(0, -1, head, "param", "", gib, 5);
  }
  CommandResult result = shardledger({"peaks", path});
  EXPECT_EQ(result.error, "");
  EXPECT_TRUE(contains(result.out, "Peak 1.00 GiB allocated: rank 0, in a job without steps (generate), eval of head\n"
                                   "     2.00 GiB reserved by PyTorch"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "head            param     (outside)     1.00 GiB            5\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "(all)   whole")) << result.out;
}

TEST_F(PeaksOfALife, DataNamePeriodAndPlaceAndLeaveTheStepEmpty) {
  job(1);
  EXPECT_EQ(shardledger({"peaks", path, "--by", "category", "--csv"}).out,
            "rank,step,category,bytes,share,period,place\n"
            "0,,program,4294967296,0.666666666666667,6,between steps 2 and 3 (load_state_dict)\n"
            "0,,param,2147483648,0.333333333333333,6,between steps 2 and 3 (load_state_dict)\n");
  EXPECT_TRUE(contains(shardledger({"peaks", path, "--by", "rank", "--csv"}).out,
                       ",load_state_dict,6,between steps 2 and 3 (load_state_dict)\n"));
  EXPECT_TRUE(contains(shardledger({"peaks", path, "--csv"}).out,
                       "\n0,,,between,6442450944,0,6,between steps 2 and 3 (load_state_dict),,0,"));
  EXPECT_EQ(shardledger({"peaks", path, "--by", "category", "--period", "0", "--csv"}).out,
            "rank,step,category,bytes,share,period,place\n0,,param,1073741824,1,0,before step 2\n");
  EXPECT_TRUE(contains(shardledger({"peaks", path, "--period", "99"}).error, "there is no period 99 with a peak"));
  EXPECT_EQ(shardledger({"peaks", path, "--period", "1", "--step", "2"}).status, 2);
}

TEST_F(PeaksOfALife, WhatHasNoOwnerIsCountedAtThatPeak) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).between(0, -1, "", {{"unattributed", 3 * gib}, {"param", gib}});
    ledger.step(0, 0, gib).peak(0, 0, 0, "step", {{"param", gib}});
  }
  EXPECT_EQ(shardledger({"peaks", path}).out.find("0 events lost, 0 gaps; 3.00 GiB (75.0%) unattributed at the peak\n"),
            0u);
}

TEST_F(PeaksOfALife, WithoutPyTorchTheDriversAllocationsAreTheLedger) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    const int64_t range = ledger.phase(0, 0, "user", 0, "warm up");
    const std::string phase = std::to_string(range);
    ledger.sql("INSERT INTO segment(rank, device, address, bytes, owner, api, alloc_ns, free_ns, phase_id) VALUES"
               "(0, 0, 1, 3221225472, 'app', 'cuMemAlloc', 100, 400, NULL),"
               "(0, 0, 2, 1073741824, 'libcufft.so.11', 'cuMemAlloc', 200, 300, " +
               phase +
               "),"
               "(0, 0, 3, 2147483648, 'app', 'cuMemAlloc', 500, NULL, NULL),"
               "(0, 1, 4, 9147483648, 'app', 'cuMemAlloc', 500, NULL, NULL)");
  }
  for (const char *command : {"peaks", "info"}) {
    CommandResult result = shardledger({command, path});
    EXPECT_EQ(result.error, "");
    EXPECT_TRUE(contains(result.out,
                         "\nPeak 4.00 GiB of the driver's allocations: rank 0, outside of all periods, in "
                         "\"warm up\"\n"
                         "     PyTorch's allocations are not in this record; these are cudaMalloc's and its "
                         "like\n"
                         "\n"
                         "Rank  Alive at the peak  Allocated in     Bytes  Allocations\n"
                         "   0  app                (outside)     3.00 GiB            1\n"
                         "   0  libcufft.so.11     \"warm up\"     1.00 GiB            1\n"))
        << result.out;
  }
  EXPECT_EQ(shardledger({"peaks", path, "--csv"}).out,
            "rank,owner,range,bytes,allocations,place\n"
            "0,app,(outside),3221225472,1,outside of all periods\n"
            "0,libcufft.so.11,\"\"\"warm up\"\"\",1073741824,1,outside of all periods\n");
}

} // namespace
