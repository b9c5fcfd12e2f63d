/* The device line by line, as users see it. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Device : public testing::Test {
protected:
  /* A sample in the middle of a step that was just added; owners to bytes. */
  void sample(LedgerBuilder &ledger, int rank, const LedgerBuilder::Categories &owners, int device = -1) {
    std::string at = std::to_string(ledger.now() + 1000), on = std::to_string(device < 0 ? rank : device);
    int64_t used = 0;
    for (const auto &owner : owners) {
      used += owner.second;
      ledger.sql("INSERT INTO device_owner VALUES(" + std::to_string(rank) + "," + on + "," + at + ",'" + owner.first +
                 "'," + std::to_string(owner.second) + ")");
    }
    ledger.sql("INSERT INTO device_sample VALUES(" + std::to_string(rank) + "," + on + "," + at + "," +
               std::to_string(80 * gib) + "," + std::to_string(used) + ",NULL,NULL,'driver')");
  }
  /* One that is over before the next row. */
  void step(LedgerBuilder &ledger, int rank, int step) {
    ledger.step(rank, step, 100 * mib);
    ledger.sql("UPDATE period SET end_ns = start_ns + 900000");
  }
  void segment(LedgerBuilder &ledger, int rank, int device, int64_t bytes, const std::string &owner) {
    ledger.sql("INSERT INTO segment(rank, device, address, bytes, owner, api, alloc_ns) VALUES(" +
               std::to_string(rank) + "," + std::to_string(device) + ",4096," + std::to_string(bytes) + ",'" + owner +
               "','cuMemAlloc_v2',1)");
  }
  void two_steps(LedgerBuilder &ledger, int rank) {
    ledger.rank(rank, 2);
    step(ledger, rank, 0);
    sample(ledger, rank,
           {{"allocated", 100 * mib}, {"nccl", 50 * mib}, {"libmine.so", 10 * mib}, {"unexplained", 2 * mib}});
    step(ledger, rank, 1);
    sample(ledger, rank, {{"allocated", 90 * mib}, {"nccl", 50 * mib}});
  }
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";
};

TEST_F(Device, TheHighestSampleIsShownLineByLine) {
  {
    LedgerBuilder ledger(path);
    two_steps(ledger, 0);
  }
  std::string text = shardledger({"device", path}).out;
  EXPECT_TRUE(contains(text, "\n162.0 MiB of 80.00 GiB in use on rank 0's GPU 0 in step 0, the highest sample\n"
                             "     100.0 MiB reserved by PyTorch, 62.0 MiB beyond it\n"))
      << text;
  EXPECT_TRUE(contains(text, "libmine.so    10.0 MiB    6.2%  a library, by its file's name\n"
                             "unexplained    2.0 MiB    1.2%  what nobody owns\n"))
      << text;
}

TEST_F(Device, AStepOrTheLastSampleCanBeAskedFor) {
  {
    LedgerBuilder ledger(path);
    two_steps(ledger, 0);
  }
  std::string expected = "rank,device,at_ns,owner,bytes,share,meaning\n";
  for (const char *at : {"1", "last"}) {
    std::string csv = shardledger({"device", path, "--at", at, "--csv"}).out;
    EXPECT_TRUE(contains(csv, ",allocated,94371840,")) << csv;
    EXPECT_TRUE(contains(csv, ",unexplained,0,0,")) << "said also when it is nothing: " << csv;
    EXPECT_FALSE(contains(csv, "libmine"));
  }
  CommandResult wrong = shardledger({"device", path, "--at", "soon"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.error,
                       "--at takes a step's number, peak, last, or seconds after the beginning as 12.5s, not 'soon'"));
  EXPECT_TRUE(contains(shardledger({"device", path, "--at", "9"}).error, "there is no step 9"));
}

TEST_F(Device, OverTimeEachStepHasAColumn) {
  {
    LedgerBuilder ledger(path);
    two_steps(ledger, 0);
  }
  std::string text = shardledger({"device", path, "--by", "step"}).out;
  EXPECT_TRUE(contains(text, "Owner           Step 0     Step 1\n"
                             "used         162.0 MiB  140.0 MiB\n"
                             "allocated    100.0 MiB   90.0 MiB\n"))
      << text;
  std::string csv = shardledger({"device", path, "--by", "step", "--csv"}).out;
  EXPECT_TRUE(contains(csv, "0,1,used,146800640,")) << csv;
}

TEST_F(Device, OfManyStepsTheFirstTheLastAndSomeBetweenAreShown) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    for (int number = 0; number < 100; number++) {
      step(ledger, 0, number);
      sample(ledger, 0, {{"allocated", (number + 1) * mib}});
    }
  }
  std::string text = shardledger({"device", path, "--by", "step"}).out;
  EXPECT_TRUE(contains(text, "   Step 0   Step 1   Step 2   Step 20   Step 40   Step 60   Step 80    Step 99\n"))
      << text;
  EXPECT_TRUE(
      contains(text, "used         1.0 MiB  2.0 MiB  3.0 MiB  21.0 MiB  41.0 MiB  61.0 MiB  81.0 MiB  100.0 MiB\n"));
}

TEST_F(Device, TheRankThatUsesMostIsShownAndDataHasAllRanks) {
  {
    LedgerBuilder ledger(path);
    two_steps(ledger, 0);
    ledger.rank(1, 2).step(1, 0, 100 * mib);
    sample(ledger, 1, {{"allocated", 300 * mib}});
  }
  EXPECT_TRUE(contains(shardledger({"device", path}).out, "300.0 MiB of 80.00 GiB in use on rank 1's GPU 1"));
  EXPECT_TRUE(contains(shardledger({"device", path, "--rank", "0"}).out, "162.0 MiB of 80.00 GiB in use on rank 0's"));
  std::string csv = shardledger({"device", path, "--csv"}).out;
  EXPECT_TRUE(contains(csv, "\n0,0,") && contains(csv, "\n1,1,")) << csv;
}

TEST_F(Device, MemoryOnAnotherRanksGpuIsFlagged) {
  {
    LedgerBuilder ledger(path);
    two_steps(ledger, 0);
    ledger.rank(1, 2).step(1, 0, 100 * mib);
    sample(ledger, 1, {{"allocated", 30 * mib}});
    segment(ledger, 1, 0, 5 * mib, "libmine.so");
    ledger.sql("INSERT INTO context VALUES(1, 1, 1, 5, 1), (1, 0, 2, 6, 1)");
  }
  std::string text = shardledger({"device", path}).out;
  EXPECT_TRUE(contains(text, "On other ranks' GPUs (a context alone takes about half a GiB there)\n")) << text;
  EXPECT_TRUE(contains(text, "   1        1       0  libmine.so    5.0 MiB      1")) << text;
  EXPECT_TRUE(contains(text, "   1        1       0  CUDA context        -      1")) << text;
}

TEST_F(Device, NcclsMemoryCameWithANewCommunicatorOrAnOperationsFirstCall) {
  std::string path = directory / "run.sqlite";
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    step(ledger, 0, 0);
    sample(ledger, 0, {{"nccl", 15 * mib}});
    int64_t block = ledger.module(0, "layers.0", "Block", ledger.module(0, "", "Model"));
    int64_t forward = ledger.phase(0, 0, "forward", block);
    ledger.sql("INSERT INTO communicator VALUES(0, 171, 2, 0, NULL, 0, 100, 200), (0, 172, 2, 0, NULL, 0, 400, 500)");
    for (const char *call : {"'AllGather', 250", "'AllGather', 270", "'ReduceScatter', 300", "'AllGather', 520"})
      ledger.sql(std::string("INSERT INTO collective(rank, comm, operation, enqueue_ns) VALUES(0, 171, ") + call + ")");
    auto came = [&](int64_t at, int64_t megabytes) {
      ledger.sql("INSERT INTO segment(rank, device, address, bytes, owner, api, alloc_ns, phase_id, module_id, step)"
                 " VALUES(0, 0, 1, " +
                 std::to_string(megabytes * mib) + ", 'libnccl.so.2', 'cuMemMap', " + std::to_string(at) + ", " +
                 std::to_string(forward) + ", " + std::to_string(block) + ", 0)");
    };
    came(150, 16), came(200, 16), came(260, 8), came(280, 4), came(310, 2), came(450, 1);
  }
  std::string out = shardledger({"device", path, "--json"}).out;
  auto row = [&](int64_t megabytes, int times, const char *cause) {
    return "\"bytes\": " + std::to_string(megabytes * mib) + ", \"count\": " + std::to_string(times) +
           ", \"step\": 0, \"where\": \"forward of Model.layers.0\", \"module\": \"Model.layers.0\", \"cause\": \"" +
           cause + "\"";
  };
  EXPECT_TRUE(contains(out, row(33, 3, "a new communicator"))) << out;
  EXPECT_TRUE(contains(out, row(12, 2, "the first AllGather"))) << out;
  EXPECT_TRUE(contains(out, row(2, 1, "the first ReduceScatter"))) << out;
}

TEST_F(Device, ASegmentKeptByLittleIsShownWithWhatKeepsIt) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    int64_t head = ledger.module(0, "head", "Linear", ledger.module(0, "", "Model"));
    segment(ledger, 0, 0, 20 * mib, "pytorch");
    ledger.allocation(0, 0, mib, "other", head);
    ledger.sql("UPDATE allocation SET address = 8192, free_ns = NULL, name = 'mask'");
    ledger.step(0, 0, 100 * mib);
    sample(ledger, 0, {{"allocated", mib}});
  }
  std::string text = shardledger({"device", path}).out;
  EXPECT_TRUE(contains(text, "Segments that are kept for less than a tenth of them\n")) << text;
  EXPECT_TRUE(contains(text, "20.0 MiB     1.0 MiB        1  1.0 MiB  other     mask  Model.head             0\n"))
      << text;
}

TEST_F(Device, NcclIsToldByCommunicatorWhereThereAreSeveral) {
  {
    LedgerBuilder ledger(path);
    two_steps(ledger, 0);
    ledger.sql("INSERT INTO communicator VALUES(0, 171, 2, 0, 'world', 31457280, NULL, NULL)");
  }
  EXPECT_FALSE(contains(shardledger({"device", path}).out, "communicator"));
  {
    LedgerBuilder ledger(directory / "two.sqlite");
    two_steps(ledger, 0);
    ledger.sql("INSERT INTO communicator VALUES(0, 171, 2, 0, 'world', 31457280, NULL, NULL), (0, 172, 4, 1, 'shard', "
               "10485760, NULL, NULL)");
  }
  std::string text = shardledger({"device", directory / "two.sqlite"}).out;
  EXPECT_TRUE(
      contains(text, "ab                   world      2  30.0 MiB\nac                   shard      4  10.0 MiB\n"))
      << text;
}

TEST_F(Device, AnyMomentIsToldByTheSamplesBeforeAndAfterIt) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    sample(ledger, 0, {{"pytorch", 10 * mib}});
    for (const char *table : {"device_sample", "device_owner"})
      ledger.sql("UPDATE " + std::string(table) + " SET at_ns = 3000000000");
    ledger.step(0, 0, 100 * mib);
    sample(ledger, 0, {{"pytorch", 30 * mib}, {"libmine.so", 5 * mib}});
    for (const char *table : {"device_sample", "device_owner"})
      ledger.sql("UPDATE " + std::string(table) + " SET at_ns = 4500000000 WHERE at_ns > 3000000000");
    ledger.sql("UPDATE rank SET start_ns = 1000000000");
  }
  std::string text = shardledger({"device", path, "--at", "2.5s"}).out;
  EXPECT_TRUE(contains(text, "2.50 s after its beginning")) << text;
  EXPECT_TRUE(contains(text, "Owner        500.0 ms before  1.00 s after  What it is\n")) << text;
  EXPECT_TRUE(contains(text, "libmine.so                 -       5.0 MiB  a library")) << text;
  text = shardledger({"device", path, "--at", "1s"}).out;
  EXPECT_TRUE(contains(text, "none was taken before")) << text;
  EXPECT_TRUE(contains(shardledger({"device", path, "--at", "100s", "--csv"}).out, ",101000000000,4500000000,,used,"))
      << "data has the distances as instants";
}

TEST_F(Device, PinnedHostMemoryIsToldWithItsPeakAndItsGrowth) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    int64_t address = 4096;
    auto pin = [&](int step, int64_t bytes, const std::string &freed) {
      ledger.sql("INSERT INTO host_segment(rank, address, bytes, owner, api, alloc_ns, free_ns) SELECT 0," +
                 std::to_string(address += 4096) + "," + std::to_string(bytes) + ",'pytorch','cuMemHostAlloc'," +
                 "start_ns + 1," + freed + " FROM step WHERE step = " + std::to_string(step));
    };
    for (int i = 0; i < 10; i++) {
      step(ledger, 0, i);
      if (i == 0)
        pin(i, 100 * mib, "NULL");
      pin(i, 40 * mib, "start_ns + 2"); // comes and goes within the step
      if (i >= 4)
        pin(i, 16 * mib, "NULL");
    }
    sample(ledger, 0, {{"pytorch", mib}});
  }
  std::string text = shardledger({"device", path}).out;
  EXPECT_TRUE(contains(
      text, "\nPinned host memory: peak 236.0 MiB, 196.0 MiB at the end, grows 16.0 MiB a step from step 3 on\n"))
      << text;
  EXPECT_TRUE(contains(shardledger({"device", path, "--json"}).out, "\"growth_bytes\": 16777216"));
}

TEST_F(Device, WithoutSamplesItSaysWhy) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).step(0, 0, 100 * mib);
  }
  for (std::vector<std::string> command :
       {std::vector<std::string>{"device", path, "--json"}, {"device", path, "--by", "step", "--csv"}}) {
    CommandResult result = shardledger(command);
    EXPECT_EQ(result.status, 2) << "a script would take nothing for an answer";
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(contains(result.error, "the device was not sampled")) << result.error;
  }
}

} // namespace
