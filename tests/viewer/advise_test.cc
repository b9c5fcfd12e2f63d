// What would make a run fit: what users read, and what is refused. docs/advice.md has what came of the advice on a GPU.
#include "fakes/command.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace {

namespace fs = std::filesystem;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Advise : public testing::Test {
protected:
  std::string ledger(const std::string &run) {
    return recorded_ledger(directory, run);
  }
  // What is said, which must be without an error.
  std::string advise(const std::string &run, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"advise", ledger(run)});
    CommandResult result = shardledger(options);
    EXPECT_EQ(result.status, 0) << result.error;
    return result.out;
  }
  TemporaryDirectory directory;
};

TEST_F(Advise, ADeadStepGoesOnAsAnEarlierOneThatAskedForTheSame) {
  std::string text = advise("oom-forward-2rank");
  EXPECT_TRUE(contains(text, "Rank 0 was refused 24.0 MiB in step 2\n")) << text;
  // What the whole step took a step before, though the limit was drawn in the middle of this one.
  EXPECT_TRUE(contains(text, "It needs up to 1.73 GiB allocated, if step 2 goes on as step 1 did (estimate)\n"))
      << text;
  EXPECT_FALSE(contains(text, "  yes  ")) << text;
  EXPECT_FALSE(contains(text, "To paste")) << "nothing is enough: " << text;
}

TEST_F(Advise, AdamWsFirstStepGoesOnWithTheStatesOfTheOtherParameters) {
  std::string json = advise("life/first-adamw-oom", {"--json"});
  // 24 parameters of 134,332,416 bytes, their gradients, two states and foreach's temporaries; 65 MiB of cuBLAS's.
  EXPECT_TRUE(contains(json, "\"rest\": \"optimizer\"")) << json;
  EXPECT_TRUE(contains(json, "\"needs_allocated_bytes\": " + std::to_string(5 * 134332416 + 65 * (1 << 20)) + ","))
      << json;
  // Fused has no temporaries, and four bytes a parameter more, in blocks of 512.
  EXPECT_TRUE(
      contains(json, "\"advice\": \"adamw_fused\", \"what\": \"the optimizer with fused=True\", \"fits\": \"no\""))
      << json;
  EXPECT_TRUE(contains(json, "\"after_bytes\": " + std::to_string(4 * 134332416 + 65 * (1 << 20) + 24 * 512) + ","))
      << json;
}

TEST_F(Advise, WhereTheRestIsNotKnownItNeverClaimsThatAnythingFits) {
  for (const char *run :
       {"predictions/plain-limit-85", "oom-backward-2rank", "life/evaluation-oom", "life/setup-oom"}) {
    std::string json = advise(run, {"--json"});
    EXPECT_TRUE(contains(json, "\"rest\": \"unknown\"")) << json;
    EXPECT_FALSE(contains(json, "\"fits\": \"yes\"")) << json;
    EXPECT_FALSE(contains(json, "\"standing\": \"exact\"")) << json;
  }
}

TEST_F(Advise, WhereTheRestIsNotKnownWhatIsAboutTheMostComesFirst) {
  std::string text = advise("predictions/plain-limit-85");
  EXPECT_TRUE(contains(text, "is not known: no earlier step asked for the same\n")) << text;
  EXPECT_LT(text.find("activation checkpointing of 4 modules of class Block  "), text.find("the loss in 8 chunks"))
      << text;
}

TEST_F(Advise, ALeakThatIsEnoughComesFirst) {
  std::string text = advise("oom-leak-2rank");
  const size_t leak = text.find("keeping nothing of a step: see 'shardledger survivors'  ");
  EXPECT_LT(leak, text.find("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  ")) << text;
  EXPECT_TRUE(contains(text, "To paste, of the first:\n    loss.item()")) << text;
}

TEST_F(Advise, SeveralChangesAreTriedTogetherWhereOneIsNotEnough) {
  std::string json = advise("predictions/one", {"--budget", "1550MiB", "--json"});
  EXPECT_TRUE(contains(json, "{\"advice\": \"recompute+offload_optimizer\"")) << json;
  EXPECT_TRUE(contains(json, "\"whatif\": \"--recompute all --optimizer host\"")) << json;
}

// Parameters, as they were allocated, and gradients as large are more than the budget leaves.
TEST_F(Advise, SaysThatNothingIsEnoughWhereTheLeastIsMoreThanTheLimit) {
  CommandResult query = shardledger(
      {"query", "--csv", "SELECT sum(bytes) FROM allocation WHERE category = 'param'", ledger("predictions/one")});
  const long long bytes = std::stoll(query.out.substr(query.out.find('\n') + 1));
  std::string json = advise("predictions/one", {"--budget", "1200MiB", "--json"});
  EXPECT_TRUE(contains(json, "\"suffices\": \"nothing\", \"least_bytes\": " + std::to_string(2 * bytes) + ",")) << json;
  std::string text = advise("predictions/one", {"--budget", "1200MiB"});
  EXPECT_TRUE(contains(text, "     Nothing that is known of is enough\n     Whatever is changed, it needs ")) << text;
  EXPECT_FALSE(contains(text, "To paste")) << text;
  EXPECT_FALSE(contains(text, "perhaps")) << text;
}

TEST_F(Advise, ASetupThatLeavesNoRoomHasNothingThatIsKnownToBeEnough) {
  std::string text = advise("advice/setup");
  EXPECT_TRUE(contains(
      text, "     Nothing is known to be enough\n     Whatever is changed, it needs 190.3 MiB at least (bound): "
            "186.3 MiB that the setup has made, and 4.0 MiB for the refused request\n"
            "     That leaves 23.7 MiB at most"))
      << text;
  EXPECT_FALSE(contains(text, "To paste")) << text;
}

// What is played to its end is no lower than what whatever is changed needs.
TEST_F(Advise, TheLeastIsNoMoreThanWhatAnyChangeComesTo) {
  for (const char *run : {"predictions/one", "predictions/ranks4", "predictions/mixed4", "predictions/one-sgd"}) {
    std::string json = advise(run, {"--json"});
    const auto figure = [&](size_t at, const std::string &word) {
      const size_t found = json.find("\"" + word + "\": ", at);
      return std::stoll(json.substr(found + word.size() + 4));
    };
    const long long least = figure(0, "least_bytes");
    size_t items = 0;
    for (size_t at = json.find("\"after_bytes\": "); at != std::string::npos;
         at = json.find("\"after_bytes\": ", at + 1))
      if (json.compare(at + 15, 4, "null") != 0) {
        EXPECT_LE(least, figure(at, "after_bytes")) << run;
        items++;
      }
    EXPECT_GT(items, 3u) << run;
    EXPECT_GT(least, 0) << run;
  }
}

TEST_F(Advise, AnotherOptimizerComesAfterAllThatTrainsTheSame) {
  std::string text = advise("oom-limit-2rank");
  EXPECT_LT(text.find("the loss in 8 chunks"), text.find("SGD with momentum")) << text;
}

TEST_F(Advise, AHealthyRunFitsAsItIsAndHasFiguresWithTheirStanding) {
  std::string text = advise("predictions/plain");
  EXPECT_TRUE(contains(text, "Rank 0 has the highest peak: 1.07 GiB allocated, in step 2\n")) << text;
  EXPECT_TRUE(contains(text, "     It needs 1.07 GiB allocated (exact)\n     So it fits as it is\n")) << text;
  EXPECT_TRUE(contains(
      text, "Fragmentation: 1.24 GiB were reserved at the most; any placement of what was asked for needs 1.07 GiB"))
      << text;
  EXPECT_TRUE(contains(text, "it saves next to nothing where memory is highest")) << text;
}

TEST_F(Advise, ABudgetIsOfTheDeviceAndWhatCudaTakesIsNotPyTorchs) {
  std::string text = advise("predictions/plain", {"--budget", "1900MiB"});
  EXPECT_TRUE(contains(
      text, "PyTorch may take 844.3 MiB of the budget; 1.03 GiB are the CUDA context's, NCCL's and other libraries'"))
      << text;
  EXPECT_TRUE(contains(text, "At least 253.0 MiB are missing")) << text;
  CommandResult result = shardledger({"advise", ledger("predictions/plain"), "--budget", "1GiB"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "leaves nothing for PyTorch's allocator")) << result.error;
}

TEST_F(Advise, TheSamePastesThatWhatifPredicts) {
  std::string json = advise("life/leak-varied", {"--json"});
  EXPECT_TRUE(contains(json, "\"whatif\": \"--alloc-conf expandable_segments:True\", \"code\": \"export "
                             "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\""))
      << json;
}

TEST_F(Advise, TheLossInChunksIsPredictedWhereOneIsRecognised) {
  std::string json = advise("predictions/one", {"--json"});
  EXPECT_TRUE(contains(json, "\"whatif\": \"--loss-chunks 8\"")) << json;
  json = advise("oom-limit-fixed-2rank", {"--json"}); // it has none that is recognised: it's in chunks already
  EXPECT_FALSE(contains(json, "\"advice\": \"loss\"")) << json;
}

TEST_F(Advise, RecomputationAndReshardingArePredicted) {
  std::string json = advise("predictions/ranks4-keep", {"--json"});
  EXPECT_TRUE(contains(json, "\"advice\": \"recompute\", \"what\": \"activation checkpointing of each module of the "
                             "outermost lists, as layers.0\""))
      << json;
  EXPECT_TRUE(contains(json, "\"standing\": \"bound\"")) << json;
  // As much as the same job took that resharded: 834.3 MiB.
  std::string same = advise("predictions/ranks4", {"--json"}), needs = "\"needs_allocated_bytes\": ";
  const size_t at = same.find(needs) + needs.size();
  const std::string bytes = same.substr(at, same.find(',', at) - at);
  const size_t reshard = json.find("\"advice\": \"reshard\"");
  ASSERT_NE(reshard, std::string::npos) << json;
  const std::string item = json.substr(reshard, json.find('}', reshard) - reshard);
  EXPECT_TRUE(contains(item, "\"after_bytes\": " + bytes + ",")) << item;
  EXPECT_TRUE(contains(item, "\"standing\": \"exact\"")) << item;
  EXPECT_TRUE(contains(item, "\"whatif\": \"--reshard on\"")) << item;
}

TEST_F(Advise, ADeadStepIsRecomputedToTheEndOfTheOneThatItGoesOnAs) {
  std::string json = advise("advice/fragmented", {"--json"});
  const size_t at = json.find("\"advice\": \"recompute\"");
  ASSERT_NE(at, std::string::npos) << json;
  const std::string item = json.substr(at, json.find('}', at) - at);
  EXPECT_TRUE(contains(item, "\"fits\": \"yes\"")) << item;
  EXPECT_TRUE(contains(item, "\"requested_after_bytes\": 824979460,")) << item; // as PyTorch said
}

// Whichever order they are named in, they are made in the same one.
TEST_F(Advise, SeveralChangesTogetherComeOutAsWhatifHasThem) {
  std::string json = advise("predictions/ranks4", {"--budget", "1400MiB", "--json"});
  const size_t at = json.find("\"advice\": \"no_workspaces+recompute+sgd\"");
  ASSERT_NE(at, std::string::npos) << json;
  const std::string item = json.substr(at, json.find('}', at) - at), word = "\"requested_after_bytes\": ";
  EXPECT_TRUE(contains(item, "\"whatif\": \"--no-workspaces --recompute all --optimizer sgd\"")) << item;
  const size_t figure = item.find(word) + word.size();
  const std::string bytes = item.substr(figure, item.find(',', figure) - figure);
  CommandResult result = shardledger(
      {"whatif", ledger("predictions/ranks4"), "--no-workspaces", "--recompute", "all", "--optimizer", "sgd", "--csv"});
  const size_t row = result.out.find("0,requested,");
  ASSERT_NE(row, std::string::npos) << result.out << result.error;
  EXPECT_TRUE(contains(result.out.substr(row, 60), "," + bytes + ",")) << bytes << result.out;
}

TEST_F(Advise, WhatCantBePredictedIsStillToldAsAFactWithTheReason) {
  std::string json = advise("advice/leak", {"--json"});
  const size_t at = json.find("\"advice\": \"recompute\"");
  ASSERT_NE(at, std::string::npos) << json;
  const std::string item = json.substr(at, json.find('}', at) - at);
  EXPECT_TRUE(contains(item, "activation checkpointing of 4 modules of class Block")) << item;
  EXPECT_TRUE(contains(item, "\"fits\": \"perhaps\"")) << item;
  EXPECT_TRUE(contains(item, "\"standing\": \"not predicted\"")) << item;
  EXPECT_TRUE(contains(item, "ran forward 2 times before a backward: which one's that is can't be told")) << item;
  // It is no advice that can't help.
  std::string text = advise("predictions/plain-limit-85");
  EXPECT_LT(text.find("activation checkpointing of 4 modules of class Block  "), text.find("What can't help")) << text;
}

TEST_F(Advise, SaysWhyNothingIsPredictedOfARecordThatCantBePlayed) {
  std::string text = advise("matrix/cuda-malloc-async");
  EXPECT_TRUE(contains(text, "Nothing is predicted: its allocator was cudaMallocAsync, whose choices are the driver's"))
      << text;
}

TEST_F(Advise, RefusesWhatThereIsNothingToAdviseOn) {
  CommandResult result = shardledger({"advise", ledger("life/server")});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "it has no steps, and nothing was refused: there is nothing to advise on"))
      << result.error;
  result = shardledger({"advise", ledger("fsdp2-2rank"), "--budget", "much"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "much")) << result.error;
}

TEST_F(Advise, OomSaysTheSame) {
  std::string path = ledger("oom-leak-2rank");
  std::string json = shardledger({"advise", path, "--json"}).out, oom = shardledger({"oom", path, "--json"}).out;
  const size_t begin = json.find("\"advice\": ["), end = json.find("\n]", begin);
  EXPECT_TRUE(contains(oom, json.substr(begin, end - begin))) << oom;
}

TEST_F(Advise, TheLargestBatchIsFittedToRunsWithOthers) {
  std::string other = "8=" + ledger("predictions/one-batch2");
  std::string text = advise("predictions/one", {"--batch", "4", "--at", other, "--budget", "4GiB"});
  EXPECT_TRUE(contains(text, "(estimate, fitted to batches 4 and 8")) << text;
  EXPECT_TRUE(contains(text, " that PyTorch may take, in ")) << text; // tests/gpu/batches_test.py has the figures
  // Less than one takes; and what no run tells.
  text = advise("predictions/one", {"--batch", "4", "--at", other, "--budget", "1500MiB"});
  EXPECT_TRUE(contains(text, "Largest batch: none, not even 1 (estimate")) << text;
  text = advise("predictions/one", {"--batch", "4", "--at", "8=" + ledger("predictions/ranks4-batch2")});
  EXPECT_TRUE(contains(text, "Largest batch: not known: the other run has another number of ranks")) << text;
  text = advise("life/first-adamw-oom", {"--batch", "4", "--at", other});
  EXPECT_TRUE(contains(text, "Largest batch: not known: a request was refused")) << text;
}

TEST_F(Advise, ABatchNeedsARunWithAnotherOne) {
  std::string path = ledger("predictions/one");
  struct {
    std::vector<std::string> options;
    std::string said;
  } wrong[] = {
      {{"--batch", "4"}, "--batch: one run does not tell how sizes grow with it"},
      {{"--at", "8=" + path}, "--batch: the run has at least one sample"},
      {{"--batch", "4", "--at", "4=" + path}, "--at: '4=" + path + "' is not as 8=DIR"},
      {{"--batch", "4", "--at", path}, "is not as 8=DIR"},
  };
  for (auto &one : wrong) {
    one.options.insert(one.options.begin(), {"advise", path});
    CommandResult result = shardledger(one.options);
    EXPECT_EQ(result.status, 2) << result.error;
    EXPECT_TRUE(contains(result.error, one.said)) << result.error;
  }
}

} // namespace
