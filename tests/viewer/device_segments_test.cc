/* The map of PyTorch's segments, of a made-up ledger in which every byte has its place. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines(const std::string &text) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    found.push_back(line);
  return found;
}

/* One rank, two steps: step 0 ends at 1000, step 1 at 2000 and has the peak, at 1500. A cell of 32 MiB is 1 MiB. */
class DeviceSegments : public testing::Test {
protected:
  void SetUp() override {
    ledger.rank(0).step(0, 0, mib).step(0, 1, 2 * mib);
    ledger.sql("UPDATE period SET start_ns = step * 1000 + 1, end_ns = step * 1000 + 1000, peak_ns = step * 1000 + 500,"
               " end_largest_free_bytes = 7");
    ledger.sql("UPDATE rank SET device = 0");
  }
  void segment(int64_t address, int64_t bytes, int64_t from = 1, const std::string &until = "NULL",
               const std::string &api = "cuMemAlloc_v2", int64_t stream = 0) {
    ledger.sql(
        "INSERT INTO segment(rank, device, address, bytes, owner, api, stream, alloc_ns, free_ns) VALUES(0, 0, " +
        std::to_string(address) + ", " + std::to_string(bytes) + ", 'pytorch', '" + api + "', " +
        std::to_string(stream) + ", " + std::to_string(from) + ", " + until + ")");
  }
  void block(int id, int64_t address, int64_t bytes, const std::string &category, int64_t from = 1,
             const std::string &freed = "NULL", const std::string &complete = "", const std::string &pool = "NULL") {
    ledger.sql("INSERT INTO allocation(id, rank, device, address, bytes, requested_bytes, stream, pool, category, step,"
               " tid, alloc_ns, free_ns, complete_ns, decided_by) VALUES(" +
               std::to_string(id) + ", 0, 0, " + std::to_string(address) + ", " + std::to_string(bytes) + ", " +
               std::to_string(bytes) + ", 0, " + pool + ", '" + category + "', 0, 1, " + std::to_string(from) + ", " +
               freed + ", " + (complete.empty() ? freed : complete) + ", 'tag')");
  }
  std::vector<std::string> rows(std::vector<std::string> options) {
    ledger.sql("COMMIT; BEGIN");
    options.insert(options.begin(), {"device", path, "--segments", "--csv"});
    CommandResult result = shardledger(options);
    EXPECT_EQ(result.status, 0) << result.error;
    std::vector<std::string> found = lines(result.out);
    if (!found.empty())
      found.erase(found.begin());
    return found;
  }
  std::string text(std::vector<std::string> options = {}) {
    ledger.sql("COMMIT; BEGIN");
    options.insert(options.begin(), {"device", path, "--segments"});
    return shardledger(options).out;
  }

  static constexpr int64_t A = 0x10000000, B = 0x20000000, C = 0x30000000;
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";
  LedgerBuilder ledger{path};
};

TEST_F(DeviceSegments, DrawsWhatIsLiveFreeAndPendingAndNamesTheBlockThatGoesLast) {
  segment(A, 32 * mib);
  block(1, A, 4 * mib, "sharded_param");
  block(2, A + 4 * mib, mib / 4, "activation", 1, "1500");
  block(3, A + 16 * mib, 2 * mib, "temp", 1, "900", "1100");
  block(4, A + 20 * mib, mib, "temp", 1, "999"); // gone
  block(5, A + 21 * mib, mib, "temp", 1001);     // not there yet
  EXPECT_EQ(rows({"--at", "0"}),
            (std::vector<std::string>{"0,1000,10000000,33554432,default,large,0,PPPPa...........~~..............,3,"
                                      "4456448,2097152,14680064,0,27000832,1,4194304,sharded_param,,,,0"}));
}

TEST_F(DeviceSegments, ShowsTheInstantThatWasAskedFor) {
  segment(A, 32 * mib, 1, "1700");
  segment(B, 32 * mib, 1400);
  block(1, A, 32 * mib, "temp", 1, "1600");
  block(2, B, 16 * mib, "optstate", 1450);
  ledger.sql("INSERT INTO oom(rank, at_ns, requested_bytes, reserved_bytes, device, source, step) VALUES"
             "(0, 1650, 64, 67108864, 0, 'allocator', 1)");
  auto count = [&](const char *at) { return rows({"--at", at}).size(); };
  EXPECT_EQ(count("0"), 1u);
  EXPECT_EQ(count("peak"), 2u);
  EXPECT_EQ(count("last"), 1u);
  EXPECT_TRUE(contains(rows({"--at", "oom"}).back(), "0,1650,10000000")) << "what is wholly free comes last";
  EXPECT_TRUE(contains(text(), "where memory ran out, in step 1")) << "without --at";
  EXPECT_TRUE(contains(text({"--at", "last"}), "at the end of step 1\n")) << text();
  EXPECT_TRUE(contains(text({"--at", "peak"}), "at the peak of allocated memory, in step 1\n"));
}

TEST_F(DeviceSegments, PiecesOfAnExpandableSegmentAreOneAndGoBackOneByOne) {
  for (int i : {0, 1, 2, 4})
    segment(A + i * 20 * mib, 20 * mib, 1, "NULL", "cuMemMap");
  segment(A + 60 * mib, 20 * mib, 1, "NULL", "cuMemMap", 7); // another stream's
  block(1, A + 15 * mib, 10 * mib, "activation");            // in two of them
  std::vector<std::string> found = rows({});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(contains(found[0], ",10000000,62914560,default,large,1,")) << found[0];
  EXPECT_TRUE(contains(found[0], ",1,10485760,0,36700160,20971520,31457280,1,")) << found[0];
  EXPECT_TRUE(contains(found[1], "0,2000,13c00000,20971520,7,large,1,")) << found[1];
  EXPECT_TRUE(contains(found[2], "0,2000,15000000,20971520,default,large,1,")) << found[2];
}

TEST_F(DeviceSegments, WhatKeepsMostComesFirstAndWhatIsFullLast) {
  segment(A, 2 * mib);
  segment(B, 20 * mib);
  segment(C, 20 * mib);
  block(1, B, 20 * mib, "activation");
  block(2, C + 8 * mib, mib, "buffer");
  std::vector<std::string> found = rows({});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(contains(found[0], ",30000000,20971520,default,large,0,")) << found[0];
  EXPECT_TRUE(contains(found[1], ",10000000,2097152,default,small,0,................................,0,0,0,2097152,"
                                 "2097152,0,,,,,,,"))
      << found[1];
  EXPECT_TRUE(contains(found[2], ",20000000,")) << found[2];
}

TEST_F(DeviceSegments, APrivatePoolKeepsItsFreeSegments) {
  segment(A, 32 * mib);
  segment(B, 32 * mib);
  block(1, A, 4 * mib, "temp", 10, "20", "20", "'1.2'");
  std::vector<std::string> found = rows({});
  EXPECT_TRUE(contains(found[0], ",10000000,33554432,default,1.2,0,")) << found[0];
  EXPECT_TRUE(contains(found[0], ",33554432,0,33554432,,,,,,,")) << found[0];
  EXPECT_TRUE(contains(found[1], ",33554432,33554432,0,,,,,,,")) << found[1];
}

TEST_F(DeviceSegments, TheHeadlineAddsUpAndTheLegendNamesWhatIsDrawn) {
  segment(A, 32 * mib);
  segment(B, 2 * mib);
  block(1, A, 4 * mib, "sharded_param");
  block(2, A + 8 * mib, 4 * mib, "experts");
  block(3, C, mib, "temp"); // in no segment
  std::string out = text();
  EXPECT_TRUE(contains(out, "2 segments, 34.0 MiB reserved: 8.0 MiB allocated, 0 B pending, 26.0 MiB free, the largest "
                            "block 20.0 MiB\n"))
      << out;
  EXPECT_TRUE(contains(out, "empty_cache() would return 2.0 MiB; 24.0 MiB in 1 segment stay, for 8.0 MiB")) << out;
  EXPECT_TRUE(contains(out, "1.0 MiB more are in no segment")) << out;
  EXPECT_TRUE(contains(out, "X experts 4.0 MiB, P sharded_param 4.0 MiB\n")) << out;
  EXPECT_TRUE(contains(out, "PPPP....XXXX....................")) << out;
}

TEST_F(DeviceSegments, OverTheStepsThereIsALineEach) {
  segment(A, 32 * mib);
  segment(B, 32 * mib, 1400);
  block(1, A, mib, "buffer");
  // Reserved, allocated and cached are the step's columns: LedgerBuilder's 512 MiB more, and half, of its size.
  EXPECT_EQ(rows({"--by", "step"}),
            (std::vector<std::string>{"0,0,537919488,524288,537395200,7,1,0,32505856,32505856",
                                      "0,1,538968064,1048576,537919488,7,2,33554432,32505856,32505856"}));
  for (int step = 2; step < 60; step++)
    ledger.step(0, step, mib);
  EXPECT_EQ(rows({"--by", "step"}).size(), 60u);
  EXPECT_LE(lines(text({"--by", "step"})).size(), 30u) << "text shows some of many";
}

TEST_F(DeviceSegments, AStepThatRepeatsAnotherIsShownByThatOnesRows) {
  ledger.step(0, 2, mib, 0, 0, 0);
  segment(A, 32 * mib);
  block(1, A, mib, "temp", 1, "1500");
  EXPECT_TRUE(contains(rows({"--at", "2"}).at(0), "0,1000,10000000,")) << "step 0's end";
  EXPECT_TRUE(contains(text({"--at", "2"}), "Step 2 repeats it")) << text({"--at", "2"});
}

TEST_F(DeviceSegments, WhatCannotBeShownIsSaid) {
  ledger.sql("COMMIT; BEGIN");
  EXPECT_TRUE(contains(shardledger({"device", path, "--segments", "--at", "9"}).error, "there is no step 9"));
  EXPECT_TRUE(contains(shardledger({"device", path, "--segments", "--at", "oom"}).error, "no request was refused"));
  EXPECT_EQ(shardledger({"device", path, "--segments", "--at", "oom", "--json"}).status, 2);
  CommandResult alone = shardledger({"device", path, "--at", "oom"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_TRUE(contains(alone.error, "--at oom goes with --segments")) << alone.error;
  ledger.sql("UPDATE period SET end_reserved_bytes = NULL, peak_reserved_bytes = NULL;"
             "UPDATE rank SET allocator_backend = 'cudaMallocAsync'; COMMIT; BEGIN");
  EXPECT_TRUE(contains(shardledger({"device", path, "--segments"}).error, "caching allocator was not in use"));
}

} // namespace
