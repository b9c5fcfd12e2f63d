/* What commands say of a run that was rehearsed, and the words in which ranks are asked for. */
#include "fakes/command.h"
#include "fakes/ledger_rows.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sqlite3.h>

namespace {

namespace fs = std::filesystem;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* A recorded run of two ranks as if ranks 0 and 63 of 64 had been rehearsed. */
class Rehearsal : public testing::Test {
protected:
  void SetUp() override {
    shardledger({"ingest", SL_TEST_DATA "/fsdp2-2rank", "-o", ledger});
    change("UPDATE rank SET rehearsal = 'rehearsal-1', world_size = 64");
  }
  void change(const std::string &sql) {
    sqlite3 *db = nullptr;
    ASSERT_EQ(sqlite3_open(ledger.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  std::string info() {
    return shardledger({"info", ledger, "--bytes"}).out;
  }
  TemporaryDirectory directory;
  std::string ledger = directory / "run.sqlite";
};

TEST_F(Rehearsal, IsSaidInTheFirstLineAndNoRankIsMissing) {
  for (const std::string command : {"info", "peaks", "oom", "ranks", "device", "survivors", "nccl"}) {
    const std::string out = shardledger({command, ledger}).out;
    EXPECT_EQ(out.find("rehearsal of ranks 0-1 of 64; 0 events lost"), 0u) << command << "\n" << out;
    EXPECT_FALSE(contains(out, "missing: 2")) << out;
  }
  EXPECT_TRUE(contains(info(), "ranks 0-1 of 64 on one GPU, by rehearsal-1"));
}

TEST_F(Rehearsal, DataSaysItBesideTheRows) {
  const CommandResult result = shardledger({"peaks", ledger, "--csv"});
  EXPECT_EQ(result.error.find("shardledger: rehearsal of ranks 0-1 of 64; "), 0u) << result.error;
}

TEST_F(Rehearsal, ARankFitsWhereWhatItReservesAndWhatIsBesideItDo) {
  const std::string needs =
      "SELECT (SELECT max(peak_reserved_bytes) FROM period WHERE rank = 0) + (SELECT max(bytes) FROM (SELECT sum(bytes) AS bytes "
      "FROM device_owner WHERE rank = 0 AND owner IN ('cublas', 'cudnn', 'cuda_context', 'gpu_code') GROUP BY at_ns))";
  const long long need = std::stoll(ledger_rows(ledger, needs)[0]);
  const std::string least = std::to_string(need), less = std::to_string(need - 1);
  change("UPDATE rank SET rehearsal_bytes = 2000000000 WHERE rank = 0");
  EXPECT_TRUE(contains(info(), "Rank 0 fits in 2000000000 with " + std::to_string(2000000000 - need) +
                                   " to spare: it needs " + least))
      << info();
  change("UPDATE rank SET rehearsal_bytes = " + less + " WHERE rank = 0");
  EXPECT_TRUE(contains(info(), "Rank 0 does not fit in " + less + ": it needs " + least + ", 1 too many")) << info();
}

TEST_F(Rehearsal, NeitherNCCLsMemoryNorUnexplainedOneIsCounted) {
  change("UPDATE rank SET rehearsal_bytes = 2000000000");
  const std::string before = info();
  change("UPDATE device_owner SET bytes = bytes + 1000000 WHERE owner IN ('nccl', 'unexplained', 'other_processes')");
  EXPECT_EQ(info(), before);
  EXPECT_TRUE(contains(before, "NCCL's own memory is not in these figures")) << before;
}

/* Two groups: what the communicators of fsdp2-2rank and of nccl-2rank took, which were put to the same uses. */
TEST_F(Rehearsal, NCCLsMemoryIsEstimatedBesideTheFigures) {
  EXPECT_FALSE(contains(info(), "estimate")) << info();
  change("INSERT INTO rehearsed_group VALUES(0, 1, 64, 1, 0, 0), (0, 2, 8, 1, 1, 1), (0, 3, 1, 1, 0, 0)");
  const std::string bytes = std::to_string((484LL + 868) << 20);
  EXPECT_TRUE(contains(info(), "Rank 0, estimate: " + bytes + ", for 2 communicators as NCCL 2.28.9")) << info();
  change("UPDATE rank SET nccl_version = '2.27.5'");
  EXPECT_TRUE(contains(info(), "; here it is 2.27.5\n")) << info();
}

TEST_F(Rehearsal, WithoutASampleOfTheDeviceNothingIsSaidToFit) {
  change("DELETE FROM device_owner");
  const std::string reserved = ledger_rows(ledger, "SELECT max(peak_reserved_bytes) FROM period WHERE rank = 0")[0];
  EXPECT_TRUE(
      contains(info(), "Rank 0: " + reserved + " of 150109880320 reserved by PyTorch; the device was not sampled"))
      << info();
}

TEST_F(Rehearsal, OutOfMemoryIsNoFit) {
  change("UPDATE rank SET rehearsal_bytes = 2000000000 WHERE rank = 1;"
         "INSERT INTO oom(rank, at_ns, requested_bytes, device, source) VALUES(1, 1, 5, 0, 'allocator')");
  EXPECT_TRUE(contains(info(), "Rank 1 does not fit in 2000000000: out of memory")) << info();
  change("UPDATE rank SET rehearsal_bytes = 200000000000 WHERE rank = 1");
  EXPECT_TRUE(contains(info(), "that says nothing of 200000000000")) << info();
}

TEST_F(Rehearsal, ARealRunSaysNothingOfIt) {
  change("UPDATE rank SET rehearsal = NULL");
  EXPECT_FALSE(contains(info(), "ehearsal of") || contains(info(), "Rank 0 fits"));
  EXPECT_TRUE(contains(info(), "2 of 64 ranks, missing: 2-63; "));
}

} // namespace
