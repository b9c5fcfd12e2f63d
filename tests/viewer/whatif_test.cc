// What a recorded run would have taken: what users read, and what is refused. docs/prediction.md has the proof of the
// figures.
#include "fakes/command.h"
#include "fakes/ledger_rows.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace {

namespace fs = std::filesystem;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Whatif : public testing::Test {
protected:
  std::string ledger(const std::string &run) {
    return recorded_ledger(directory, run);
  }
  /* The row that CSV should have: this figure of rank 0 as two recorded runs had it. */
  std::string row(const std::string &figure, const std::string &before, const std::string &after) {
    const std::string highest = "SELECT max(peak_" + figure + "_bytes) FROM period WHERE rank = 0";
    return "0," + figure + "," + ledger_rows(ledger(before), highest)[0] + "," +
           ledger_rows(ledger(after), highest)[0] + ",";
  }
  TemporaryDirectory directory;
};

TEST_F(Whatif, NothingChangedIsTheRunAsItWas) {
  CommandResult result = shardledger({"whatif", ledger("matrix/fsdp1"), "--bytes"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "Nothing is changed"));
  EXPECT_FALSE(contains(result.out, "estimate"));
  EXPECT_FALSE(contains(result.out, "refused"));
}

TEST_F(Whatif, SaysEachFigureWithItsStandingAndWhere) {
  CommandResult result =
      shardledger({"whatif", ledger("predictions/plain"), "--alloc-conf", "expandable_segments:True", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "rank,figure,before_bytes,after_bytes,after_most_bytes,change_bytes,standing"));
  EXPECT_TRUE(contains(result.out, row("reserved", "predictions/plain", "predictions/plain-expandable"))) << result.out;
  EXPECT_TRUE(contains(result.out, ",exact,\"step ")) << result.out;
}

TEST_F(Whatif, IsAnEstimateWhereTheAddressesOfSegmentsDecide) {
  std::string path = ledger("predictions/plain");
  CommandResult result = shardledger({"whatif", path, "--optimizer", "adamw-fused"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "Rank 0: estimate: not proven; 16 plays gave allocated 1.07 GiB")) << result.out;
  EXPECT_TRUE(contains(result.out, "it depends on where the driver puts segments")) << result.out;
  result = shardledger({"whatif", path, "--optimizer", "adamw-fused", "--json"});
  EXPECT_TRUE(contains(result.out, "\"standing\": \"estimate\"")) << result.out;
  EXPECT_TRUE(contains(result.out, "\"plays\": 16")) << result.out;
  EXPECT_TRUE(contains(result.out, "\"standing\": \"exact\"")) << result.out; // what is requested
  result = shardledger({"whatif", path, "--optimizer", "adamw-fused", "--by", "period", "--csv"});
  EXPECT_TRUE(contains(result.out, "step,1,allocated,832067072,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",estimate,16\n")) << result.out;
}

TEST_F(Whatif, IsExactWhereEverythingIsInOneSegment) {
  CommandResult result =
      shardledger({"whatif", ledger("predictions/plain"), "--alloc-conf", "expandable_segments:True"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_FALSE(contains(result.out, "estimate")) << result.out;
}

TEST_F(Whatif, ItsOwnLimitChangesNothing) {
  CommandResult result = shardledger({"whatif", ledger("matrix/garbage-collection"), "--recorded-limit", "512MiB"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_FALSE(contains(result.out, "estimate")) << result.out;
  EXPECT_FALSE(contains(result.out, "refused")) << result.out;
}

TEST_F(Whatif, IsAnEstimateWhereOtherStreamsUsedWhatWasFreed) {
  CommandResult result = shardledger({"whatif", ledger("matrix/fsdp1"), "--alloc-conf", "max_split_size_mb:32"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "At most")) << result.out;
  EXPECT_TRUE(contains(result.out, "; it depends on when other streams")) << result.out;
}

TEST_F(Whatif, RunsOutOfMemoryWhereTheDeviceIsTooSmall) {
  std::string path = ledger("fsdp2-2rank");
  CommandResult result = shardledger({"whatif", path, "--device-memory", "1800MiB", "--rank", "0"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "Rank 0: it runs out of memory")) << result.out;
  result = shardledger({"whatif", path, "--device-memory", "80GiB", "--json"});
  EXPECT_TRUE(contains(result.out, "\"ends\": \"as recorded\"")) << result.out;
  result = shardledger({"whatif", path, "--device-memory", "1GiB"});
  EXPECT_TRUE(contains(result.out, "refused: ")) << result.out;
}

TEST_F(Whatif, GetsPastTheRequestThatFailedAndSaysThatNobodyKnowsMore) {
  CommandResult result = shardledger({"whatif", ledger("oom-limit-2rank"), "--memory-limit", "3GiB", "--rank", "0"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "the 250.0 MiB that failed in step 1 are served")) << result.out;
}

TEST_F(Whatif, AsksForALimitThatTheRecordDoesNotTell) {
  std::string path = ledger("matrix/garbage-collection");
  CommandResult result = shardledger({"whatif", path, "--alloc-conf", "max_split_size_mb:32"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "refused: in step 0 the allocator gave cached segments back within a request: "
                                   "--recorded-limit tells the limit"))
      << result.out;
  // A wrong one shows: with it the recorded run itself would have been another one.
  result = shardledger({"whatif", path, "--recorded-limit", "600MiB"});
  EXPECT_TRUE(contains(result.out, "is that its limit?")) << result.out;
}

TEST_F(Whatif, RefusesWhatItCanNotKnow) {
  CommandResult result = shardledger({"whatif", ledger("matrix/cuda-malloc-async")});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "refused: its allocator was cudaMallocAsync")) << result.out;
  result = shardledger({"whatif", ledger("matrix/late-attach"), "--alloc-conf", "expandable_segments:True"});
  EXPECT_TRUE(contains(result.out, "refused: recording began when the allocator held memory already")) << result.out;
}

TEST_F(Whatif, AnotherOptimizerHasItsOwnStates) {
  std::string path = ledger("fsdp2-2rank");
  CommandResult result = shardledger({"whatif", path, "--optimizer", "sgd", "--rank", "0", "--bytes"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "With SGD")) << result.out;
  EXPECT_TRUE(contains(result.out, "0  optstate")) << result.out;
  // One that it is not known to be; and a step that is stored as another one, of which only one is to change.
  result = shardledger({"whatif", ledger("matrix/fsdp2-loops"), "--optimizer", "sgd", "--rank", "0"});
  EXPECT_TRUE(contains(result.out, "refused: in step 54 the optimizer is none of")) << result.out;
  result = shardledger({"whatif", ledger("fsdp2-2rank-long"), "--optimizer", "sgd", "--steps", "0-3", "--rank", "0"});
  EXPECT_TRUE(contains(result.out, "shardledger ingest --keep all")) << result.out;
}

TEST_F(Whatif, GatheredParametersStayUntilBackward) {
  CommandResult result = shardledger({"whatif", ledger("predictions/ranks4"), "--reshard", "off", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, row("requested", "predictions/ranks4", "predictions/ranks4-keep"))) << result.out;
  EXPECT_TRUE(contains(result.out, ",exact,")) << result.out;
  result = shardledger({"whatif", ledger("matrix/fsdp1"), "--reshard", "off", "--rank", "0"});
  EXPECT_TRUE(contains(result.out, "refused: in step 0 a unit's parameters are not gathered as FSDP2 does"))
      << result.out;
  result = shardledger({"whatif", ledger("life/closure"), "--reshard", "off"});
  EXPECT_TRUE(contains(result.out, "refused: nothing is gathered twice in a step")) << result.out;
}

TEST_F(Whatif, GatheredParametersGoAfterForward) {
  CommandResult result = shardledger({"whatif", ledger("predictions/ranks4-keep"), "--reshard", "on", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, ",874797256,,-85036032,exact,")) << result.out;
  result = shardledger({"whatif", ledger("predictions/ranks4"), "--reshard", "on"});
  EXPECT_TRUE(contains(result.out, "refused: in step 0 a unit of FSDP2 is resharded after forward already"))
      << result.out;
  result = shardledger({"whatif", ledger("predictions/one"), "--reshard", "on"});
  EXPECT_TRUE(contains(result.out, "refused: with one rank FSDP2 gathers nothing")) << result.out;
}

TEST_F(Whatif, APartOfWhatWasGatheredStays) {
  std::string path = ledger("predictions/ranks4");
  CommandResult result = shardledger({"whatif", path, "--reshard", "2", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "0,requested,874797256,931487944,,56690688,exact,")) << result.out;
  result = shardledger({"whatif", path, "--reshard", "3"});
  EXPECT_TRUE(contains(result.out, "refused: FSDP2 reshards to a divisor of its 4 ranks, which 3 is not"))
      << result.out;
  result = shardledger({"whatif", ledger("predictions/ranks4-keep"), "--reshard", "2"});
  EXPECT_TRUE(contains(result.out, "refused: no unit of FSDP2 reshards to all ranks")) << result.out;
  result = shardledger({"whatif", ledger("predictions/mixed4"), "--reshard", "2", "--csv"});
  EXPECT_TRUE(contains(result.out, "from FSDP2's code alone")) << result.out;
  for (auto wrong : {"1", "many", "-2", ""})
    EXPECT_EQ(shardledger({"whatif", path, "--reshard", wrong}).status, 2) << wrong;
}

TEST_F(Whatif, WorkspacesAreLeftOut) {
  CommandResult result = shardledger({"whatif", ledger("predictions/plain"), "--no-workspaces", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, row("requested", "predictions/plain", "predictions/plain-no-workspaces")))
      << result.out;
}

TEST_F(Whatif, OtherNumbersOfRanksSplitParametersDifferently) {
  std::string path = ledger("predictions/ranks4");
  CommandResult result = shardledger({"whatif", path, "--world-size", "7", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "0,requested,874797256,826371300,,-48425956,exact,")) << result.out;
  EXPECT_TRUE(contains(result.out, "0,reserved,1040187392,987758592,,-52428800,exact,")) << result.out;
  // Its own number is no change, however far the rules go.
  result = shardledger({"whatif", path, "--world-size", "4", "--csv"});
  EXPECT_TRUE(contains(result.out, "0,requested,874797256,874797256,,0,exact,")) << result.out;
}

// As many bytes as the recorded communicator is held to take, in no other figure.
TEST_F(Whatif, HasNcclsMemoryOfOtherNumbersOfRanksAsALineOfItsOwn) {
  std::string path = ledger("fsdp2-2rank");
  CommandResult query = shardledger({"query", "--csv", "SELECT max(device_bytes) FROM communicator", path});
  const std::string bytes =
      query.out.substr(query.out.find('\n') + 1, query.out.rfind('\n') - query.out.find('\n') - 1);
  CommandResult result = shardledger({"whatif", path, "--world-size", "64", "--json"});
  EXPECT_TRUE(contains(result.out, "{\"ranks\": \"0-1\", \"communicators\": 1, \"estimated_bytes\": " + bytes + ","))
      << result.out << query.out;
  result = shardledger({"whatif", path, "--world-size", "64"});
  EXPECT_TRUE(contains(result.out, "NCCL, ranks 0-1: estimate: 484.0 MiB more, for 1 communicator")) << result.out;
  result = shardledger({"whatif", ledger("predictions/ranks4"), "--world-size", "64"});
  EXPECT_TRUE(contains(result.out, "NCCL, rank 0: no estimate, since no use of a communicator was recorded"))
      << result.out;
  result = shardledger({"whatif", path, "--world-size", "1"});
  EXPECT_FALSE(contains(result.out, "NCCL,")) << result.out;
}

TEST_F(Whatif, SaysWhyANumberOfRanksIsRefused) {
  const struct {
    const char *run, *ranks, *why;
  } cases[] = {
      {"predictions/mixed4", "1", "parameters are cast before they are gathered, which one rank does in another order"},
      {"predictions/hsdp2x4", "2", "copies on several ranks (HSDP) that are not split"},
      {"predictions/ranks8-seventh", "4", "of 4 ranks none is rank 6"},
      {"predictions/one", "8", "it has no unit of FSDP2"},
      {"predictions/ranks4-offload", "8", "its parameters are in the host's memory"},
      {"predictions/ranks8-reshard4", "16", "it is resharded to fewer ranks"},
      {"versions/1", "8", "no unit of FSDP2 (fully_shard) was recorded with its shapes"},
  };
  for (auto &one : cases) {
    CommandResult result = shardledger({"whatif", ledger(one.run), "--world-size", one.ranks});
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_TRUE(contains(result.out, "refused: ")) << one.run << result.out;
    EXPECT_TRUE(contains(result.out, one.why)) << one.run << result.out;
  }
  EXPECT_EQ(shardledger({"whatif", ledger("predictions/ranks2"), "--world-size", "0"}).status, 2);
}

// It moves states to the device and back, by itself: of what size they are for other numbers nobody knows.
TEST_F(Whatif, IsAnEstimateWhereTheProgramItselfMakesWhatMayDependOnIt) {
  CommandResult result = shardledger({"whatif", ledger("predictions/ranks4-swap"), "--world-size", "8"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "of the program itself")) << result.out;
  EXPECT_FALSE(contains(result.out, "exact")) << result.out;
}

// The peak is in no block, but in the optimizer: both ends are the same, and the recorded run's.
TEST_F(Whatif, RecomputationIsExactOutsideOfTheModules) {
  CommandResult result = shardledger({"whatif", ledger("predictions/one"), "--recompute", "all", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "0,requested,1148776648,824979456,,-323797192,exact,")) << result.out;
  EXPECT_TRUE(contains(result.out, "0,allocated,1148777984,824979456,,-323798528,exact,")) << result.out;
}

TEST_F(Whatif, RecomputationIsABoundWithinTheModules) {
  std::string path = ledger("predictions/ranks4");
  CommandResult result = shardledger({"whatif", path, "--recompute", "all", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, ",bound,\"step 2, backward, Model\"")) << result.out;
  EXPECT_TRUE(contains(result.out, "0,reserved,1040187392,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",estimate,")) << result.out;
  // All of them by a pattern, and some of them.
  CommandResult same = shardledger({"whatif", path, "--recompute", "blocks.[0-3]", "--csv"});
  EXPECT_EQ(same.out, result.out);
  same = shardledger({"whatif", path, "--recompute", "blocks.1,blocks.2", "--csv"});
  EXPECT_NE(same.out, result.out);
}

TEST_F(Whatif, SaysWhyRecomputationIsRefused) {
  CommandResult result = shardledger({"whatif", ledger("predictions/one"), "--recompute", "layers.*"});
  EXPECT_TRUE(contains(result.out, "refused: no module that 'layers.*' names was recorded")) << result.out;
  std::string path = ledger("predictions/one-recompute");
  result = shardledger({"whatif", path, "--recompute", "all"});
  EXPECT_TRUE(contains(result.out, "refused: the modules that 'all' names are recomputed already")) << result.out;
  // A function around several modules; and nothing to keep.
  result = shardledger({"whatif", ledger("matrix/fsdp2-loops"), "--recompute", "none"});
  EXPECT_TRUE(contains(result.out, "is recomputed, and no forward of it was recorded")) << result.out;
  result = shardledger({"whatif", ledger("predictions/one"), "--recompute", "none"});
  EXPECT_TRUE(contains(result.out, "refused: no module was recorded to be recomputed")) << result.out;
}

TEST_F(Whatif, KeepsWhatWasRecomputed) {
  // predictions/one is the same job without recomputation: PyTorch said 1,148,776,648 requested bytes of it.
  CommandResult result = shardledger({"whatif", ledger("predictions/one-recompute"), "--recompute", "none", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "0,requested,824979456,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",1149825224,324845768,bound,")) << result.out; // and a workspace of 1 MiB
}

TEST_F(Whatif, MixedPrecisionIsAnEstimateBetweenTwoTypes) {
  std::string path = ledger("predictions/ranks4");
  CommandResult result = shardledger({"whatif", path, "--mixed-precision", "bf16", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_FALSE(contains(result.out, ",exact,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",estimate,")) << result.out;
  result = shardledger({"whatif", path, "--mixed-precision", "bf16"});
  EXPECT_TRUE(contains(result.out, "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"));
  EXPECT_TRUE(contains(result.out, "types of activations are not recorded")) << result.out;
  struct {
    std::string run, type, reason;
  } refusals[] = {
      {"predictions/ranks4", "bf16,bf16", "refused: with gradients reduced in bfloat16 FSDP2 casts them"},
      {"predictions/ranks4", "fp32", "refused: parameters are gathered in a type of 4 bytes already"},
      {"predictions/mixed4", "fp16", "refused: parameters are gathered in a type of 2 bytes already"},
      {"predictions/one", "bf16", "refused: it has no unit of FSDP2"},
      {"predictions/ranks1", "bf16", "refused: with one rank FSDP2 gathers nothing"},
  };
  for (const auto &refusal : refusals) {
    result = shardledger({"whatif", ledger(refusal.run), "--mixed-precision", refusal.type});
    EXPECT_TRUE(contains(result.out, refusal.reason)) << result.out;
  }
  result = shardledger({"whatif", path, "--mixed-precision", "bf16,"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "--mixed-precision: 'bf16,' is not bf16, fp16 or fp32")) << result.error;
}

TEST_F(Whatif, TheLossIsInPiecesWhereItIsRecognised) {
  CommandResult result = shardledger({"whatif", ledger("predictions/one"), "--loss-chunks", "8", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_FALSE(contains(result.out, ",exact,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",estimate,")) << result.out;
  result =
      shardledger({"whatif", ledger("matrix/hf-trainer"), "--loss-chunks", "8", "--csv"}); // in the model's forward
  EXPECT_TRUE(contains(result.out, ",estimate,")) << result.out;
  result = shardledger({"whatif", ledger("oom-limit-fixed-2rank"), "--loss-chunks", "8"}); // in chunks already
  EXPECT_TRUE(contains(result.out, "refused: in step 0 no loss is recognised")) << result.out;
  result = shardledger({"whatif", ledger("predictions/one"), "--loss-chunks", "1"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "--loss-chunks: from 2 to 65536 pieces")) << result.error;
}

TEST_F(Whatif, ReducedGradientsAreAccumulatedInPlace) {
  CommandResult result = shardledger({"whatif", ledger("predictions/ranks4"), "--accumulate", "3", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "0,requested,874797256,912585928,,37788672,exact,")) << result.out;
  EXPECT_TRUE(contains(result.out, "0,reserved,1040187392,1061158912,,20971520,exact,")) << result.out;
}

TEST_F(Whatif, WholeGradientsAreAccumulated) {
  CommandResult result = shardledger({"whatif", ledger("predictions/one"), "--accumulate", "2", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "0,requested,1148776648,1299931336,,151154688,exact,")) << result.out; // one-micro2
  // Which parameters FSDP2's are of is not recorded, so when an operator is over is not known.
  std::string path = ledger("predictions/ranks4");
  result = shardledger({"whatif", path, "--accumulate", "2", "--no-sync", "--csv"});
  EXPECT_TRUE(contains(result.out, ",bound,")) << result.out;
  // Once is as recorded.
  result = shardledger({"whatif", path, "--accumulate", "1", "--csv"});
  EXPECT_TRUE(contains(result.out, "0,requested,874797256,874797256,,0,exact,")) << result.out;
}

TEST_F(Whatif, StepsThatHandObjectsOnAreAccumulatedToo) {
  // The loop keeps outputs for its next step; what operators use was recorded.
  CommandResult result = shardledger({"whatif", ledger("code/idle/loop"), "--accumulate", "2", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, ",bound,")) << result.out;
}

TEST_F(Whatif, SaysAllThatSeveralChangesTakeForGranted) {
  CommandResult result =
      shardledger({"whatif", ledger("predictions/ranks4"), "--mixed-precision", "bf16", "--loss-chunks", "4"});
  EXPECT_TRUE(contains(result.out, "types of activations are not recorded")) << result.out;
  EXPECT_TRUE(contains(result.out, "; what the last layer and the loss make is taken")) << result.out;
}

TEST_F(Whatif, SaysWhyAccumulationIsRefused) {
  const struct {
    const char *run, *why;
  } cases[] = {
      {"predictions/ranks4-micro2", "refused: in step 0 backward does not run once"},
      {"matrix/tracked-ddp", "refused: what several ranks do without FSDP2"},
  };
  for (auto &one : cases) {
    CommandResult result = shardledger({"whatif", ledger(one.run), "--accumulate", "2"});
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_TRUE(contains(result.out, one.why)) << one.run << result.out;
  }
  CommandResult result = shardledger({"whatif", ledger("predictions/mixed4"), "--accumulate", "2", "--no-sync"});
  EXPECT_TRUE(contains(result.out, "refused: gradients are reduced in float32")) << result.out;
  result = shardledger({"whatif", ledger("predictions/one"), "--accumulate", "2", "--no-sync"});
  EXPECT_TRUE(contains(result.out, "refused: only FSDP2")) << result.out;
  EXPECT_EQ(shardledger({"whatif", ledger("predictions/one-sgd"), "--accumulate", "0"}).status, 2);
  EXPECT_EQ(shardledger({"whatif", ledger("predictions/ranks2"), "--no-sync"}).status, 2);
}

TEST_F(Whatif, StatesAreOnTheDeviceInTheOptimizersStepsOnly) {
  CommandResult result = shardledger({"whatif", ledger("predictions/one"), "--offload-optimizer", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "0,requested,1148776648,846467272,,-302309376,exact,")) << result.out;
  result = shardledger({"whatif", ledger("life/generation"), "--offload-optimizer"});
  EXPECT_TRUE(contains(result.out, "refused: no state of an optimizer is on the device")) << result.out;
}

TEST_F(Whatif, TheOptimizerStepsInBackward) {
  CommandResult result = shardledger({"whatif", ledger("predictions/ranks4"), "--optimizer-in-backward", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  for (const char *figure : {"requested", "allocated", "reserved"})
    EXPECT_TRUE(contains(result.out, row(figure, "predictions/ranks4", "predictions/ranks4-inbackward"))) << result.out;
  EXPECT_FALSE(contains(result.out, "estimate")) << result.out;
  // PyTorch's figures of its first step: it is in there that the optimizer is the highest.
  result = shardledger({"whatif", ledger("predictions/one"), "--optimizer-in-backward", "--by", "period", "--csv"});
  EXPECT_TRUE(contains(result.out, "step,0,requested,823930880,681820360,,-142110520,exact,")) << result.out;
}

TEST_F(Whatif, TheOptimizerStepsInBackwardOfStepsThatAreStoredOnce) {
  const std::string kept = directory / "kept.sqlite";
  EXPECT_EQ(shardledger({"ingest", std::string(SL_TEST_DATA) + "/life/leak-rare", "-o", kept, "--keep", "all"}).status,
            0);
  std::string out[2];
  for (const std::string &path : {kept, ledger("life/leak-rare")}) {
    CommandResult result = shardledger({"whatif", path, "--optimizer-in-backward", "--by", "period", "--csv"});
    EXPECT_TRUE(contains(result.out, ",bound,")) << result.out;
    out[path == kept] = result.out;
  }
  EXPECT_EQ(out[0], out[1]);
}

TEST_F(Whatif, SaysWhyTheOptimizerCannotStepInBackward) {
  const struct {
    const char *run, *why;
  } cases[] = {
      {"predictions/ranks4-micro2", "refused: in step 0 backward does not run once"},
      {"predictions/ranks4-offload", "refused: a unit of FSDP2 has its parameters in the host's memory"},
      {"matrix/tracked-ddp", "refused: no unit of FSDP2 (fully_shard) was recorded with its shapes"},
      {"life/generation", "refused: no step of an optimizer was recorded"},
  };
  for (const auto &one : cases) {
    CommandResult result = shardledger({"whatif", ledger(one.run), "--optimizer-in-backward"});
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_TRUE(contains(result.out, one.why)) << one.run << result.out;
  }
  for (const std::vector<std::string> &other :
       std::vector<std::vector<std::string>>{{"--accumulate", "2"}, {"--offload-optimizer"}, {"--steps", "1-2"}}) {
    std::vector<std::string> words = {"whatif", ledger("predictions/one"), "--optimizer-in-backward"};
    words.insert(words.end(), other.begin(), other.end());
    CommandResult result = shardledger(words);
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(contains(result.error, "--optimizer-in-backward: not with " + other[0])) << result.error;
  }
}

// Its second step has 256 tokens, and its fourth 320.
TEST_F(Whatif, LengthsAreFittedToThreeRuns) {
  CommandResult result = shardledger({"whatif", ledger("predictions/one"), "--sequence", "1.25", "--at",
                                      "2=" + ledger("predictions/one-sequence2"), "--at",
                                      "3=" + ledger("predictions/one-sequence3"), "--by", "period", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "step,1,requested,827871432,904952008,,77080576,estimate,")) << result.out;
  EXPECT_TRUE(contains(result.out, "step,3,requested,904952008,")) << result.out;
  EXPECT_FALSE(contains(result.out, "exact")) << result.out;
}

TEST_F(Whatif, BatchesAreFittedToTwoRuns) {
  std::string path = ledger("predictions/ranks4-batch2"), other = ledger("predictions/ranks4");
  CommandResult result = shardledger({"whatif", path, "--batch", "3/2", "--at", "1/2=" + other});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "With 3/2 times the batch")) << result.out;
  EXPECT_TRUE(contains(result.out, "sizes were fitted to 2 runs")) << result.out;
  result = shardledger({"whatif", path, "--batch", "2", "--at", "1/2=" + ledger("predictions/ranks2")});
  EXPECT_TRUE(contains(result.out, "refused: the other run has another number of ranks")) << result.out;
}

TEST_F(Whatif, InputsTellWhetherTheOtherRunIsAsLargeAsIsSaid) {
  std::string other = ledger("predictions/one-batch2");
  CommandResult result = shardledger({"whatif", ledger("predictions/one"), "--batch", "2", "--at", "3=" + other});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "refused: the largest input of the other run is 2 times as large as this run's, and "
                                   "not 3 times"))
      << result.out;
}

TEST_F(Whatif, SaysHowSizesAreTold) {
  std::string path = ledger("predictions/one"), other = ledger("predictions/one-batch2");
  const std::vector<std::vector<std::string>> wrong = {
      {"--batch", "2"},
      {"--batch", "x", "--at", "2=" + other},
      {"--batch", "0", "--at", "2=" + other},
      {"--sequence", "2", "--at", "2=" + other},
      {"--at", "2=" + other},
      {"--batch", "2", "--sequence", "2", "--at", "2=" + other},
      {"--batch", "3", "--at", other},
      {"--batch", "3", "--at", "1=" + other},
      {"--batch", "3", "--at", "2=/nowhere"},
  };
  for (auto &options : wrong) {
    std::vector<std::string> words = {"whatif", path};
    words.insert(words.end(), options.begin(), options.end());
    CommandResult result = shardledger(words);
    EXPECT_EQ(result.status, 2) << options[0];
    EXPECT_EQ(result.error.find('\n'), result.error.size() - 1) << result.error;
  }
}

TEST_F(Whatif, WrongInputIsOneSentence) {
  std::string path = ledger("fsdp2-2rank");
  for (auto conf : {"expandable_segments", "expandible_segments:True", "backend:cudaMallocAsync"}) {
    CommandResult result = shardledger({"whatif", path, "--alloc-conf", conf});
    EXPECT_EQ(result.status, 2) << conf;
    EXPECT_TRUE(contains(result.error, "--alloc-conf")) << result.error;
    EXPECT_EQ(result.error.find('\n'), result.error.size() - 1) << result.error;
  }
  EXPECT_EQ(shardledger({"whatif", path, "--device-memory", "much"}).status, 2);
  EXPECT_EQ(shardledger({"whatif", path, "--rank", "7"}).status, 2);
  for (auto steps : {"3-", "5-3", "x", "-3", "3,4"})
    EXPECT_EQ(shardledger({"whatif", path, "--optimizer", "sgd", "--steps", steps}).status, 2) << steps;
}

TEST_F(Whatif, EachPeriodHasItsFigures) {
  CommandResult result = shardledger(
      {"whatif", ledger("fsdp2-2rank-long"), "--alloc-conf", "roundup_power2_divisions:4", "--by", "period", "--csv"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, ",step,44,reserved,")) << result.out.substr(0, 400);
}

} // namespace
