/* The story of one allocation, from the job that made it. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"
#include "fakes/log_builder.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace {

constexpr uint64_t ms = 1000000, start = 1'000'000'000'000'000'000;
constexpr uint64_t mib = 1 << 20;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Explain : public testing::Test {
protected:
  // Ids of allocations count in the order of the log: 1 the parameter, 2 the activation, 3 and 4 what takes its memory
  // afterwards, 5 on a stream and in a pool of its own, used by another stream when it is freed.
  void SetUp() override {
    std::filesystem::create_directories(run);
    for (int rank = 0; rank < 2; rank++) {
      LogBuilder log(run + "/host-" + std::to_string(rank), start);
      log.info("rank", std::to_string(rank)).info("world_size", "2");
      log.module(1, 0, "", "Model", SL_MODULE_ROOT).module(2, 1, "head", "Linear", 0, 1);
      auto &main = log.thread(1);
      auto free = [&](uint64_t address, uint64_t bytes) {
        main.allocator(SL_FREE_REQUESTED, address, bytes).allocator(SL_FREE_COMPLETED, address, bytes);
      };
      main.at(start + 1 * ms).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * mib);
      main.allocator(SL_ALLOC, 0x1000000, 1000).tag(0x1000000, "param", 2, "head.weight");
      main.at(start + 10 * ms).range_start(1, "step 0", SL_KIND_step, 0);
      main.at(start + 12 * ms).range_push("Model", SL_KIND_forward, 1).range_push("head", SL_KIND_forward, 2);
      main.range_push("attention", 0, 0, "mine");
      main.at(start + 13 * ms).allocator(SL_ALLOC, 0x1000400, 2048).range_pop("mine").range_pop().range_pop();
      main.at(start + 20 * ms).range_push("backward", SL_KIND_backward, 0);
      main.at(start + 25 * ms);
      free(0x1000400, 2048);
      main.at(start + 26 * ms).allocator(SL_ALLOC, 0x1000400, 512);
      main.at(start + 27 * ms);
      free(0x1000400, 512);
      main.at(start + 30 * ms).range_pop().at(start + 40 * ms).range_end(1);
      main.at(start + 41 * ms).allocator(SL_ALLOC, 0x1000400, 4096);
      main.at(start + 50 * ms).range_start(2, "step 1", SL_KIND_step, 1);
      main.at(start + 51 * ms).allocator(SL_SEGMENT_ALLOC, 0x2000000, 2 * mib, 0, 0x77, 3, 4);
      main.at(start + 52 * ms).allocator(SL_ALLOC, 0x2000000, 512, 0, 0x77, 3, 4);
      main.at(start + 53 * ms).allocator(SL_FREE_REQUESTED, 0x2000000, 512, 0, 0x77, 3, 4);
      main.at(start + 57 * ms).allocator(SL_FREE_COMPLETED, 0x2000000, 512, 0, 0x77, 3, 4);
      main.at(start + 60 * ms).range_end(2).process_end();
    }
  }
  std::string story(const std::string &allocation) {
    CommandResult result = shardledger({"explain", allocation, run});
    EXPECT_EQ(result.status, 0) << result.error;
    return result.out;
  }
  TemporaryDirectory directory;
  std::string run = directory / "run";
};

TEST_F(Explain, TellsWhoWhereAndWhen) {
  std::string out = story("2");
  EXPECT_TRUE(contains(out, "Allocation 2: 2.0 KiB of activation, owned by Model.head\n")) << out;
  EXPECT_TRUE(contains(out, "Made     step 0, 3.0 ms after its start, by thread 1001 of rank 0\n")) << out;
  EXPECT_TRUE(contains(out, "In       step 0 > forward of Model > forward of Model.head > \"attention\"\n")) << out;
  EXPECT_TRUE(contains(out, "Size     2.0 KiB asked for, and a block of just that size given\n")) << out;
  EXPECT_TRUE(contains(out, "Where    0x1000400 on GPU 0, the default stream, the shared pool\n")) << out;
  EXPECT_TRUE(contains(out, "Freed    step 0, 15.0 ms after its start; in step 0 > backward\n")) << out;
  EXPECT_TRUE(contains(out, "Lived    12.0 ms\n")) << out;
}

TEST_F(Explain, TellsWhyTheCategory) {
  EXPECT_TRUE(contains(story("2"), "Why      rule forward_activation: made in a module's forward, alive after it\n"));
  std::string tagged = story("1");
  EXPECT_TRUE(contains(tagged, "Allocation 1: 1.0 KiB of param, head.weight, owned by Model.head\n")) << tagged;
  EXPECT_TRUE(contains(tagged, "Why      rule tag: a tensor in it was tagged")) << tagged;
}

TEST_F(Explain, NamesTheLineOfTheUsersRules) {
  write_file(directory / "my.rules", "# mine\nrange attention category scores\nmodule head category kept\n");
  ASSERT_EQ(shardledger({"ingest", run, "--rules", directory / "my.rules"}).status, 0);
  std::string out = story("2");
  EXPECT_TRUE(contains(out, "2.0 KiB of scores")) << out;
  EXPECT_TRUE(contains(out, "Why      rule user_range: a user rule gives")) << out;
  EXPECT_TRUE(contains(out, "Line 2 of your rules: range attention category scores\n")) << out;
}

TEST_F(Explain, TellsWhatIsRoundedUpAndWhatStaysForGood) {
  std::string out = story("1");
  EXPECT_TRUE(contains(out, "Made     before the first step (")) << out;
  EXPECT_TRUE(contains(out, "Size     1000 B asked for, a block of 1.0 KiB given: 24 B more\n")) << out;
  EXPECT_TRUE(contains(out, "Freed    never: alive when the log ended\n")) << out;
  EXPECT_TRUE(contains(out, "No other allocation had any of this memory")) << out;
}

TEST_F(Explain, TellsWhenItIsNotKnownWhenItWasFreed) {
  const std::string ledger = directory / "dropped.sqlite";
  {
    LedgerBuilder build(ledger);
    build.rank(0).step(0, 0, 4096).allocation(0, 0, 4096, "temp");
    build.gap(0, "log", 0, "steps 1 to 3 dropped to make room for the latest");
    build.sql("UPDATE gap SET at_ns = (SELECT end_ns + 1000000 FROM step)");
    build.sql("UPDATE allocation SET free_ns = (SELECT at_ns FROM gap), complete_ns = (SELECT at_ns FROM gap)");
  }
  const CommandResult result = shardledger({"explain", "1", ledger});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, "Freed    in the part of the log that was dropped: last known alive after step 0, "
                                   "1.0 ms after its end\nLived    at least 38.0 ms\n"))
      << result.out;
}

TEST_F(Explain, TellsStreamsPoolsAndWhoElseUsedTheMemory) {
  std::string out = story("5");
  EXPECT_TRUE(contains(out, "Where    0x2000000 on GPU 0, stream 0x77, pool 3.4\n")) << out;
  EXPECT_TRUE(contains(out, "free for others 4.0 ms later, when another stream was done with it\n")) << out;
}

TEST_F(Explain, TellsWhoHadTheSameMemoryBeforeAndAfter) {
  std::string out = story("3");
  size_t before = out.find("\nbefore        2  "), after = out.find("\nafter         4  ");
  EXPECT_NE(before, std::string::npos) << out;
  EXPECT_NE(after, std::string::npos) << out;
  EXPECT_LT(before, after);
  EXPECT_TRUE(contains(story("4"), "Made     after step 0, 1.0 ms after its end"));
}

TEST_F(Explain, AnAddressWithSeveralAllocationsListsThem) {
  std::string out = story("0x1000400");
  EXPECT_TRUE(contains(out, "6 allocations had 0x1000400: name one by its ID, or an instant with --at\n")) << out;
  out = shardledger({"explain", "0x1000400", run, "--rank", "1"}).out;
  EXPECT_TRUE(contains(out, "3 allocations had 0x1000400")) << out;
}

TEST_F(Explain, AnAddressMayPointInsideAndAnInstantChoosesOne) {
  std::string at = std::to_string(start + 14 * ms);
  for (std::string address : {"0x1000500", "16778496"}) { // decimal, as data_ptr() prints it
    std::string out = shardledger({"explain", address, run, "--rank", "0", "--at", at}).out;
    EXPECT_TRUE(contains(out, "Allocation 2: 2.0 KiB of activation")) << out;
  }
}

TEST_F(Explain, DataHasTheWholeStoryInOneRow) {
  std::string out = shardledger({"explain", "2", run, "--json"}).out;
  EXPECT_TRUE(contains(out, "\"id\": 2, \"rank\": 0, \"device\": 0, \"address\": 16778240, \"bytes\": 2048")) << out;
  EXPECT_TRUE(contains(out, "\"ranges\": \"step 0 > forward of Model > forward of Model.head > \\\"attention\\\"\""))
      << out;
  EXPECT_TRUE(contains(out, "\"alloc_after_ns\": 3000000")) << out;
  EXPECT_TRUE(contains(out, "\"meaning\": \"made in a module's forward, alive after it\"")) << out;
  std::string csv = shardledger({"explain", "0x1000400", run, "--csv"}).out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7) << csv;
}

TEST_F(Explain, TheRunMayComeFirst) {
  EXPECT_EQ(shardledger({"explain", run, "2"}).out, story("2"));
}

TEST_F(Explain, WhatIsNotThereOrNoNumberIsSaid) {
  for (std::vector<std::string> words : {std::vector<std::string>{"999"}, {"0xdead0000"}, {"2", "--rank", "1"}}) {
    std::vector<std::string> arguments = {"explain", run};
    arguments.insert(arguments.end(), words.begin(), words.end());
    CommandResult result = shardledger(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(contains(result.error, "no allocation ")) << result.error;
  }
  EXPECT_EQ(shardledger({"explain"}).status, 2);
  CommandResult result = shardledger({"explain", "blocks.0", run});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "'blocks.0' is neither an allocation's ID nor an address")) << result.error;
}

} // namespace
