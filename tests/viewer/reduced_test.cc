/* What a run says of itself first: that it was recorded with less, and that its memory was short before it ran out. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>

#include <string>

namespace {

constexpr int64_t mib = 1 << 20;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Reduced : public testing::Test {
protected:
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";
};

TEST_F(Reduced, TheFirstLineSaysThatAllocationsAreFromTheHistory) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0, 2).step(0, 0, 100 * mib);
    ledger.rank(1, 2).step(1, 0, 100 * mib);
    ledger.sql("UPDATE rank SET fidelity = 'history' WHERE rank = 1");
  }
  for (const char *command : {"info", "peaks"})
    EXPECT_EQ(shardledger({command, path})
                  .out.find("reduced: allocations read from PyTorch's history on 1 of 2 ranks; 0 events lost"),
              0u)
        << command;
  const std::string alone = directory / "alone.sqlite";
  {
    LedgerBuilder ledger(alone);
    ledger.rank(0).step(0, 0, 100 * mib);
    ledger.sql("UPDATE rank SET fidelity = 'history'");
  }
  EXPECT_EQ(
      shardledger({"info", alone}).out.find("reduced: allocations read from PyTorch's history; 0 events lost, 0 gaps"),
      0u);
  EXPECT_TRUE(contains(shardledger({"peaks", alone, "--csv"}).error, "reduced: ")) << "data leaves stdout alone";
}

TEST_F(Reduced, RequestsThatWereServedAtASecondTryAreCountedWithTheirCost) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).step(0, 0, 100 * mib);
    ledger.sql("INSERT INTO retry(rank, device, at_ns, served_ns, bytes, refusals, freed_bytes, step) VALUES"
               "(0, 0, 1000, 40001000, 20971520, 1, 10485760, 0), (0, 0, 2000, 20002000, 20971520, 2, 20971520, 0)");
    ledger.sql("UPDATE rank SET clean_exit = 0");
  }
  std::string info = shardledger({"info", path}).out;
  EXPECT_TRUE(contains(info, "cudaMalloc refused, then served")) << info;
  EXPECT_TRUE(contains(info, "60.0 ms   40.0 MiB          30.0 MiB")) << info;
  std::string oom = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(oom, "cudaMalloc was refused 2 times before and served after PyTorch's cache was freed (30.0 MiB"
                            " given back): that cost 60.0 ms\n"))
      << oom;
}

} // namespace
