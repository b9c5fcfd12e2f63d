/* What `shardledger nccl` shows, of a made-up ledger whose numbers can be checked by hand, and of recorded runs. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

extern "C" {
#include "storage/tables/db.h"
}

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <vector>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

int lines(const std::string &text) {
  return (int)std::count(text.begin(), text.end(), '\n');
}

// Lines of a CSV file by their first field, each with its cells by the columns' names; numbers to six digits.
std::map<std::string, std::map<std::string, std::string>> sorted_columns(const std::string &csv) {
  std::map<std::string, std::map<std::string, std::string>> found;
  std::vector<std::string> names;
  std::istringstream text(csv);
  for (std::string line; std::getline(text, line);) {
    std::vector<std::string> cells;
    std::istringstream fields(line);
    for (std::string cell; std::getline(fields, cell, ',');)
      cells.push_back(cell);
    cells.resize(std::max(cells.size(), names.size()));
    if (names.empty()) {
      names = cells;
      continue;
    }
    for (size_t i = 1; i < names.size(); i++) {
      char rounded[64];
      bool whole = cells[i].find('.') == std::string::npos;
      std::snprintf(rounded, sizeof rounded, "%.6g", whole ? 0.0 : std::stod(cells[i]));
      found[cells[0]][names[i]] = whole ? cells[i] : rounded;
    }
  }
  return found;
}

void change_ledger(const std::string &path, const char *sql) {
  struct sl_db *db = nullptr;
  struct sl_error error = {};
  if (sl_db_open(path.c_str(), SL_DB_WRITE, &db, &error) < 0 || sl_db_execute(db, sql, &error) < 0 ||
      sl_db_execute(db, ledger_sums_sql.c_str(), &error) < 0)
    ADD_FAILURE() << error.text;
  sl_db_close(db);
}

/*
 * Two ranks. All-gathers of 1 MB a rank: rank 1 arrives 30 us after rank 0, then both transfer for 10 us. An all-reduce
 * of 4 MB where rank 0 is 5 us late. One send without a communicator's id, and one call without a kernel.
 */
class Nccl : public testing::Test {
protected:
  void SetUp() override {
    LedgerBuilder ledger(path);
    for (int rank = 0; rank < 2; rank++) {
      std::string r = std::to_string(rank);
      ledger.rank(rank, 2).step(rank, 0, mib).step(rank, 1, mib);
      int64_t root = ledger.module(rank, "", "Model");
      int64_t block = ledger.module(rank, "layers.0", "Block", root);
      ledger.sql("INSERT INTO communicator VALUES (" + r + ", -1, 2, " + r + ", 'data', 50331648, NULL, NULL)");
      for (int step = 0; step < 2; step++)
        call(ledger, rank, step, "AllGather", 1000000, block, step * 1000000, rank ? 30000 : 0, 40000);
      call(ledger, rank, 2, "AllReduce", 4000000, 0, 5000000, rank ? 0 : 5000, 25000);
      ledger.sql("INSERT INTO kernel VALUES (" + r + ", 0, 7, 'ncclDevKernel_AllGather_RING_LL(x)', 1, 1, 2)");
    }
    ledger.sql("INSERT INTO collective(rank, operation, bytes, step, enqueue_ns) VALUES (0, 'Send', 64, 1, 1)");
  }

  /* seq is the step. The kernel is enqueued 2 us before the first rank's start, and ends at `end` on both ranks. */
  void call(LedgerBuilder &ledger, int rank, int seq, const char *operation, int bytes, int64_t module, int64_t zero,
            int64_t start, int64_t end) {
    ledger.sql(
        "INSERT INTO collective(rank, comm, seq, operation, bytes, module_id, step, enqueue_ns, start_ns, end_ns,"
        " stream, kernel_calls, joined_by) VALUES (" +
        std::to_string(rank) + ", -1, " + std::to_string(seq) + ", '" + operation + "', " + std::to_string(bytes) +
        ", nullif(" + std::to_string(module) + ", 0), " + std::to_string(seq % 2) + ", " +
        std::to_string(zero + 998000) + ", " + std::to_string(zero + 1000000 + start) + ", " +
        std::to_string(zero + 1000000 + end) + ", 7, 1, 'correlation')");
  }

  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";
};

TEST_F(Nccl, TheFirstLinesSayWhatIsKnown) {
  CommandResult result = shardledger({"nccl", path});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.out.find("0 events lost, 0 gaps; "), 0u) << result.out;
  EXPECT_TRUE(contains(result.out, "\n7 NCCL calls, 6 with their time on the device; 2 kernels of NCCL\n"))
      << result.out;
}

TEST_F(Nccl, CallsWithoutDeviceTimesAreCountedByTheirReason) {
  EXPECT_FALSE(contains(shardledger({"nccl", path}).out, "Without: "));
  change_ledger(path, "UPDATE collective SET untimed = 'captured' WHERE id IN (1, 2);"
                      "UPDATE collective SET untimed = 'no_launch' WHERE operation = 'Send'");
  std::string out = shardledger({"nccl", path}).out;
  EXPECT_TRUE(contains(out, "\nWithout: 2: captured in CUDA graphs, whose replays are kernels without calls\n"
                            "         1: launched no kernel (copy engines, or one rank alone)\n"))
      << out;
}

TEST_F(Nccl, BandwidthsAreNcclTestsDefinitionsOverTheTransfer) {
  CommandResult result = shardledger({"nccl", path, "--by", "operation", "--csv"});
  EXPECT_EQ(
      result.out,
      "operation,ranks,calls,calls_timed,bytes,duration_ns,median_ns,exposed_ns,exposed_share,algorithm_gbs,bus_gbs,"
      "median_delay_ns,median_spread_ns,max_spread_ns\n"
      "AllGather,2,4,4,4000000,100000,10000,,,200,100,2000,30000,30000\n"
      "AllReduce,2,2,2,8000000,45000,20000,,,200,200,2000,5000,5000\n"
      "Send,1,1,0,64,,,,,,,,,\n");
}

TEST_F(Nccl, WhatOneRankWaitedIsNoTransfer) {
  change_ledger(path,
                "UPDATE collective SET start_ns = NULL, end_ns = NULL WHERE rank = 0 AND operation = 'AllReduce'");
  CommandResult result = shardledger({"nccl", path, "--by", "operation", "--csv"});
  EXPECT_TRUE(contains(result.out, "\nAllReduce,2,2,1,8000000,25000,25000,,,,,2000,,\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "\nAllGather,2,4,4,4000000,100000,10000,,,200,100,2000,")) << result.out;
  result = shardledger({"nccl", path, "--slowest", "3", "--csv"});
  EXPECT_TRUE(contains(result.out, ",AllReduce,,4000000,25000,1,,,,,\n")) << result.out;
  result = shardledger(
      {"query", "SELECT rank, transfer_ns FROM collective_cost WHERE operation = 'AllReduce'", path, "--csv"});
  EXPECT_EQ(result.out, "rank,transfer_ns\n0,\n1,\n");
}

TEST_F(Nccl, TextSaysHowManyCallsAreTimedWhereNotAllAre) {
  std::string out = shardledger({"nccl", path, "--by", "operation"}).out;
  EXPECT_TRUE(contains(out, "Operation  Ranks  Calls  Timed    Bytes")) << out;
  EXPECT_TRUE(contains(out, "\nAllGather      2      4      4  3.8 MiB")) << out;
  EXPECT_TRUE(contains(out, "\nSend           1      1      -     64 B")) << out;
  change_ledger(path, "DELETE FROM collective WHERE operation = 'Send'");
  EXPECT_FALSE(contains(shardledger({"nccl", path, "--by", "operation"}).out, "Timed"));
}

TEST_F(Nccl, WhatIsExposedIsOfTheCallsThatWereAskedFor) {
  change_ledger(path, "UPDATE collective SET exposed_ns = (end_ns - start_ns) / 2 WHERE operation = 'AllGather'");
  EXPECT_TRUE(contains(shardledger({"nccl", path}).out, "\n50.0 us of 100.0 us in collectives are exposed (50.0%)"));
  std::string out = shardledger({"nccl", path, "--step", "1", "--rank", "0"}).out;
  EXPECT_TRUE(contains(out, "\nIn the whole run:\n7 NCCL calls, 6 with")) << out;
  EXPECT_TRUE(contains(out, "\n20.0 us of 40.0 us in collectives are exposed (50.0%)")) << out;
}

TEST_F(Nccl, TextHasTheSameTableWithStragglersBelow) {
  std::string out = shardledger({"nccl", path}).out;
  EXPECT_TRUE(contains(out, "\nAllGather      2      4      4  3.8 MiB  100.0 us  10.0 us     200.0     100.0  2.0 us  "
                            "30.0 us     30.0 us\n"))
      << out;
  EXPECT_TRUE(contains(out, "ffffffffffffffff  data     2       48.0 MiB")) << out;
  EXPECT_TRUE(contains(out, "Rank  Host   Met others in  Arrived last  Share  Late, mean  Late, most  Others waited\n"
                            "1     node1              3             2  66.7%     30.0 us     30.0 us        60.0 us\n"
                            "0     node1              3             1  33.3%      5.0 us      5.0 us         5.0 us\n"))
      << out;
}

TEST_F(Nccl, ByModuleNamesThoseServedAndKeepsTheRestLast) {
  CommandResult result = shardledger({"nccl", path, "--by", "module", "--csv"});
  EXPECT_EQ(lines(result.out), 1 + 3) << result.out;
  EXPECT_TRUE(contains(result.out, "\nlayers.0,AllGather,2,4,4,4000000,")) << result.out;
  EXPECT_TRUE(contains(result.out, "\n,AllReduce,2,2,2,8000000,")) << result.out;
}

TEST_F(Nccl, ByCommunicatorCallsThatNameNoneAreUnknown) {
  CommandResult result = shardledger({"nccl", path, "--by", "communicator", "--csv"});
  EXPECT_TRUE(contains(result.out, "\nffffffffffffffff,data,2,50331648,2,6,6,12000000,")) << result.out;
  EXPECT_TRUE(contains(result.out, "\n(unknown),,,,1,1,0,64,")) << result.out;
}

TEST_F(Nccl, SlowestShowsEachCollectiveOnceWithItsLastRank) {
  CommandResult result = shardledger({"nccl", path, "--slowest", "2", "--csv"});
  EXPECT_EQ(result.out, "step,communicator,seq,operation,module,bytes,duration_ns,slowest_rank,exposed_ns,transfer_ns,"
                        "bus_gbs,spread_ns,last_rank\n"
                        "0,ffffffffffffffff,0,AllGather,layers.0,1000000,40000,0,,10000,100,30000,1\n"
                        "1,ffffffffffffffff,1,AllGather,layers.0,1000000,40000,0,,10000,100,30000,1\n");
}

// As after a communicator that was made anew under the same id.
TEST_F(Nccl, CallsThatRepeatACollectivesNumberLeaveRoomForTheOthers) {
  change_ledger(
      path,
      "INSERT INTO collective(rank, comm, seq, operation, bytes, step, enqueue_ns, start_ns, end_ns, kernel_calls)"
      " WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 20)"
      " SELECT 1, -1, 0, 'AllGather', 1000000, 0, n, n, n + 90000, 1 FROM more");
  CommandResult result = shardledger({"nccl", path, "--slowest", "3", "--csv"});
  EXPECT_EQ(lines(result.out), 4) << result.out;
  EXPECT_TRUE(contains(result.out, "\n0,ffffffffffffffff,0,AllGather,,1000000,90000,1,")) << result.out;
  EXPECT_TRUE(contains(result.out, "\n1,ffffffffffffffff,1,AllGather,layers.0,1000000,40000,0,")) << result.out;
  EXPECT_TRUE(contains(result.out, ",2,AllReduce,,4000000,25000,1,")) << result.out;
}

// Of the all-gathers' 100 us, rank 0 tells 80, and that 20 of them were exposed; a kernel of two calls counts once.
TEST_F(Nccl, ExposedTimeIsOfTheCallsThatTellIt) {
  EXPECT_FALSE(contains(shardledger({"nccl", path}).out, "xposed"));
  change_ledger(path, "UPDATE collective SET exposed_ns = 10000 WHERE operation = 'AllGather' AND rank = 0;"
                      "UPDATE collective SET exposed_ns = 20000, kernel_calls = 2 WHERE operation = 'AllReduce'");
  std::string out = shardledger({"nccl", path}).out;
  EXPECT_TRUE(contains(out, "\n40.0 us of 102.5 us in collectives are exposed (39.0%)")) << out;
  EXPECT_TRUE(contains(out, "  20.0 us  25.0%  ")) << out;
  std::string csv = shardledger({"nccl", path, "--by", "module", "--csv"}).out;
  EXPECT_TRUE(contains(csv, "layers.0,AllGather,2,4,4,4000000,100000,10000,20000,0.25,")) << csv;
}

TEST_F(Nccl, StepAndRankNarrowTheCallsButNotWhoWasLate) {
  std::string out = shardledger({"nccl", path, "--step", "1", "--rank", "1", "--by", "operation", "--csv"}).out;
  EXPECT_EQ(lines(out), 1 + 1) << out;
  EXPECT_TRUE(contains(out, "\nAllGather,1,1,1,1000000,10000,10000,,,200,100,32000,30000,30000\n")) << out;
  EXPECT_FALSE(contains(shardledger({"nccl", path, "--step", "1"}).out, "Others waited"));
}

TEST_F(Nccl, CallsOfStepsThatRepeatAnotherCountWithTheirOwnTimes) {
  change_ledger(path,
                "UPDATE period SET same_as = 0 WHERE step = 1;"
                "INSERT INTO collective_total VALUES (0, 1, 0, -1, 'AllGather', 3, 3000000, 2, 70000, 30000, 40000, 5);"
                "INSERT INTO collective_total VALUES (1, 1, 0, -1, 'AllGather', 3, 3000000, 3, 90000, 20000, 40000, 5);"
                "INSERT INTO collective_total VALUES (0, 1, 1, -1, 'AllReduce', 1, 8, 0, 0, NULL, NULL, 0)");
  std::string out = shardledger({"nccl", path, "--by", "operation", "--csv"}).out;
  EXPECT_TRUE(contains(out, "\nAllGather,2,10,9,10000000,260000,10000,,,200,100,2000,30000,30000\n")) << out;
  EXPECT_TRUE(contains(out, "\nAllReduce,2,3,2,8000008,45000,20000,")) << out;
  out = shardledger({"nccl", path, "--by", "communicator", "--csv"}).out;
  EXPECT_TRUE(contains(out, "\nffffffffffffffff,data,2,50331648,2,13,11,18000008,305000,")) << out;
  out = shardledger({"nccl", path, "--step", "1", "--rank", "0", "--by", "operation", "--csv"}).out;
  EXPECT_TRUE(contains(out, "\nAllGather,1,4,3,4000000,110000,")) << out; // the fixture has a call of its own there
  EXPECT_FALSE(contains(out, "AllReduce")) << out;
  out = shardledger({"nccl", path}).out;
  EXPECT_TRUE(
      contains(out, "\n14 NCCL calls, 11 with their time on the device. 7 are of steps that repeat another one"))
      << out;
}

TEST_F(Nccl, JsonIsOneDocumentOfThreeTables) {
  std::string out = shardledger({"nccl", path, "--json"}).out;
  for (const char *table : {"\"operations\": [", "\"communicators\": [", "\"stragglers\": ["})
    EXPECT_TRUE(contains(out, table)) << out;
}

TEST_F(Nccl, SeveralHostsAreSaidToBeAlignedOrNot) {
  std::string hosts = directory / "hosts.sqlite";
  {
    LedgerBuilder ledger(hosts);
    ledger.rank(0, 2).rank(1, 2).sql("UPDATE rank SET host = 'beta' WHERE rank = 1");
    call(ledger, 0, 0, "AllGather", 64, 0, 0, 0, 10);
  }
  EXPECT_TRUE(contains(shardledger({"nccl", hosts}).out, "\n1 of 2 hosts have their clocks aligned"));
}

TEST_F(Nccl, WithoutCallsOrTimesItSaysWhy) {
  std::string empty = directory / "empty.sqlite";
  { LedgerBuilder(empty).rank(0); }
  CommandResult result = shardledger({"nccl", empty, "--by", "operation", "--json"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "[\n]\n");
  EXPECT_TRUE(contains(result.error, "no NCCL call is in the record")) << result.error;
  std::string untimed = directory / "untimed.sqlite";
  {
    LedgerBuilder ledger(untimed);
    ledger.rank(0).sql("INSERT INTO collective(rank, operation, enqueue_ns) VALUES (0, 'AllGather', 1)");
  }
  EXPECT_TRUE(contains(shardledger({"nccl", untimed}).error, "no device times")) << "and where to look";
}

// The command adds up in one pass by itself, since SQLite would sort millions of calls: SQL over the view has to say
// the same.
TEST_F(Nccl, FiguresAreThoseOfTheViewAlsoBetweenHosts) {
  std::string recorded = directory / "recorded.sqlite";
  ASSERT_EQ(shardledger({"ingest", std::string(SL_TEST_DATA) + "/nccl-2rank", "-o", recorded}).status, 0);
  for (const char *change :
       {"UPDATE collective SET exposed_ns = (end_ns - start_ns) / 3 WHERE rank = 0 OR id % 5",
        "UPDATE rank SET host = 'beta' WHERE rank = 1",
        "UPDATE collective SET start_ns = start_ns + 777000, end_ns = end_ns + 777000 WHERE rank = 1",
        "UPDATE rank SET host = 'beta'",
        "UPDATE collective SET start_ns = NULL, end_ns = NULL, exposed_ns = NULL WHERE rank = 1 AND id % 3 = 0"}) {
    change_ledger(recorded, change);
    CommandResult of_view = shardledger(
        {"query", recorded, "--csv",
         "WITH keyed AS (SELECT *, count(duration_ns) OVER (PARTITION BY operation) AS timed,"
         "  row_number() OVER (PARTITION BY operation ORDER BY duration_ns IS NULL, duration_ns) AS time_place,"
         "  row_number() OVER (PARTITION BY operation ORDER BY delay_ns IS NULL, delay_ns) AS delay_place,"
         "  count(spread_ns) OVER (PARTITION BY operation) AS spreads,"
         "  row_number() OVER (PARTITION BY operation ORDER BY spread_ns IS NULL, spread_ns) AS spread_place"
         "  FROM collective_cost)"
         " SELECT operation, count(DISTINCT rank) AS ranks, count(*) AS calls, timed AS calls_timed, sum(bytes) AS "
         "bytes,"
         "  cast(round(sum(share_ns)) AS INTEGER) AS duration_ns,"
         "  cast(round(sum(exposed_share_ns)) AS INTEGER) AS exposed_ns, printf('%.12f', sum(exposed_share_ns) /"
         "   sum(share_ns) FILTER (WHERE exposed_share_ns IS NOT NULL)) AS exposed_share,"
         "  max(duration_ns) FILTER (WHERE time_place = (timed + 1) / 2) AS median_ns,"
         "  max(delay_ns) FILTER (WHERE delay_place = (timed + 1) / 2) AS median_delay_ns,"
         "  max(spread_ns) FILTER (WHERE spread_place = (spreads + 1) / 2) AS median_spread_ns,"
         "  max(spread_ns) AS max_spread_ns, round(sum(algorithm_bytes) FILTER (WHERE transfer_ns > 0) /"
         "   sum(transfer_ns), 6) AS algorithm_gbs,"
         "  round(sum(bus_bytes) FILTER (WHERE transfer_ns > 0) / sum(transfer_ns), 6) AS bus_gbs"
         " FROM keyed GROUP BY operation ORDER BY operation"});
    CommandResult of_report = shardledger({"nccl", recorded, "--by", "operation", "--csv"});
    EXPECT_EQ(sorted_columns(of_report.out), sorted_columns(of_view.out)) << change;
  }
}

TEST_F(Nccl, InstantsThatNoClockHasCostNoOtherCall) {
  change_ledger(path, "UPDATE collective SET start_ns = -9223372036854775807, end_ns = 9223372036854775807"
                      " WHERE operation = 'AllReduce'");
  std::string out = shardledger({"nccl", path, "--by", "operation", "--csv"}).out;
  EXPECT_TRUE(contains(out, "\nAllGather,2,4,4,4000000,100000,10000,,,200,100,2000,30000,30000\n")) << out;
}

TEST_F(Nccl, ARecordedRunIsShownFromItsDirectory) {
  std::string copy = directory / "recorded";
  std::filesystem::copy(std::string(SL_TEST_DATA) + "/nccl-2rank", copy, std::filesystem::copy_options::recursive);
  CommandResult result = shardledger({"nccl", copy});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "120 NCCL calls, 120 with their time on the device; 100 kernels of NCCL"))
      << result.out;
  CommandResult info = shardledger({"info", copy});
  EXPECT_FALSE(contains(info.out, "no NCCL call is in the record")) << info.out;
}

} // namespace
