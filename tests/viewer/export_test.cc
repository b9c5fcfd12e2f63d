/* What every export promises: a whole file or none, and words when it can't. What is in it: tests/python/export_*.py.
 */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <filesystem>
#include <gtest/gtest.h>

extern "C" {
#include "storage/tables/db.h"
}

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Export : public testing::Test {
protected:
  int64_t number(const std::string &file, const std::string &sql) {
    struct sl_db *db = nullptr;
    struct sl_error error = {};
    int64_t value = -1;
    if (sl_db_open(file.c_str(), SL_DB_READ, &db, &error) < 0 || sl_db_int(db, sql.c_str(), &value, &error) < 0)
      ADD_FAILURE() << error.text;
    db = sl_db_close(db);
    return value;
  }
  void change(const std::string &sql) {
    struct sl_db *db = nullptr;
    struct sl_error error = {};
    if (sl_db_open(path.c_str(), SL_DB_WRITE, &db, &error) < 0 || sl_db_execute(db, sql.c_str(), &error) < 0)
      ADD_FAILURE() << error.text;
    db = sl_db_close(db);
  }
  std::string nsys() {
    CommandResult result = shardledger({"export", path, "--format", "nsys", "-o", output});
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_EQ(result.out, output + "\n");
    return output;
  }
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite", output = directory / "out.sqlite";
};

TEST_F(Export, BadInputIsSaidAndLeavesNothing) {
  build_two_rank_run(path);
  EXPECT_EQ(shardledger({"export", path, "-o", output}).status, 2);
  EXPECT_TRUE(contains(shardledger({"export", path, "--format", "nsys"}).error, "-o FILE is missing"));
  EXPECT_EQ(shardledger({"export", path, "--format", "nsight", "-o", output}).status, 2);
  for (std::string format : {"nsys", "kineto", "perfetto", "snapshot"}) {
    EXPECT_EQ(shardledger({"export", directory / "none", "--format", format, "-o", output}).status, 2);
    CommandResult result = shardledger({"export", path, "--format", format, "-o", directory / "none" + "/x"});
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(contains(result.error, "none/x")) << result.error;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path), {}), 1) << "the ledger alone";
}

TEST_F(Export, StepsThatAreNotInTheTimelineAreSaid) {
  build_two_rank_run(path);
  CommandResult result = shardledger({"export", path, "--format", "perfetto", "-o", output});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.error, "shardledger: export: 2 of 8 steps repeat another one and are not shown; 'shardledger ingest "
                          "--keep all' keeps them\n");
}

TEST_F(Export, WhatIsNoFileIsNotReplacedByOne) {
  build_two_rank_run(path);
  std::filesystem::create_symlink("/dev/null", output);
  for (std::string format : {"nsys", "perfetto"}) {
    CommandResult result = shardledger({"export", path, "--format", format, "-o", output});
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(contains(result.error, output + " is no file; name one with -o")) << result.error;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(output));
}

TEST_F(Export, AFailedExportLeavesWhatWasThere) {
  build_two_rank_run(path);
  write_file(output, "yesterday's");
  std::filesystem::create_directory(directory / "traces");
  write_file(directory / "traces/rank0.pt.trace.json.gz", "yesterday's");
  write_file(directory / "traces/rank0.pickle", "yesterday's");
  change("DROP TABLE kernel; DROP TABLE segment");
  for (std::string format : {"nsys", "kineto", "perfetto", "snapshot"}) {
    bool many = format == "kineto" || format == "snapshot";
    CommandResult result =
        shardledger({"export", path, "--format", format, "-o", many ? directory / "traces" : output});
    EXPECT_EQ(result.status, 2) << format;
    EXPECT_TRUE(contains(result.error, "no such table")) << result.error;
  }
  EXPECT_EQ(read_file(output), "yesterday's");
  EXPECT_EQ(read_file(directory / "traces/rank0.pt.trace.json.gz"), "yesterday's");
  EXPECT_EQ(read_file(directory / "traces/rank0.pickle"), "yesterday's");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory / "traces"), {}), 2);
}

TEST_F(Export, EmptyLedgersAndOddNamesAreExportedToo) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).rank(1, 2);
    int64_t module = ledger.module(0, "a\"b\\c\x01\xff\xf0", "M<'>");
    ledger.phase(0, 0, "forward", module, "\xc3( \n\t\"'); DROP TABLE NVTX_EVENTS; --");
    ledger.allocation(0, 0, mib, "caf\xe9", module);
  }
  for (std::string format : {"nsys", "kineto", "perfetto", "snapshot"}) {
    CommandResult result = shardledger({"export", path, "--format", format, "-o", directory / format});
    EXPECT_EQ(result.status, 0) << format << result.error;
  }
  EXPECT_EQ(number(directory / "nsys", "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59"), 1);
}

TEST_F(Export, TerminalsSeeABar) {
  build_two_rank_run(path);
  change("INSERT INTO kernel SELECT 0, 0, 7, 'k', i, i, i + 1 FROM (WITH RECURSIVE n(i) AS (VALUES(0)"
         " UNION ALL SELECT i + 1 FROM n WHERE i < 99999) SELECT i FROM n)");
  CommandOptions options;
  options.terminal = true;
  std::string out = shardledger({"export", path, "--format", "nsys", "-o", output}, options).out;
  EXPECT_TRUE(contains(out, "exporting [")) << out;
}

TEST_F(Export, RangesThatCrossAreStartAndEndRanges) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    auto range = [&](int start, int end) {
      ledger.sql(
          "INSERT INTO phase(rank, tid, kind, name, start_ns, end_ns) SELECT 0, 4100, 'backward', 'm', start_ns + " +
          std::to_string(start) + ", start_ns + " + std::to_string(end) + " FROM rank");
    };
    range(0, 100);
    range(10, 50);
    range(40, 90); // crosses
    range(45, 50);
    range(50, 100);
  }
  std::string file = nsys();
  EXPECT_EQ(number(file, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59"), 4);
  EXPECT_EQ(number(file, "SELECT start FROM NVTX_EVENTS WHERE eventType = 60"), 40);
  EXPECT_EQ(number(file, "SELECT endGlobalTid = globalTid FROM NVTX_EVENTS WHERE eventType = 60"), 1);
}

TEST_F(Export, ProcessesOfManyHostsAreApartAlsoWithTheSamePid) {
  {
    LedgerBuilder ledger(path);
    for (int rank = 0; rank < 4; rank++)
      ledger.rank(rank, 4).sql(
          "UPDATE rank SET pid = 77, device = 0, device_uuid = 'GPU-' || rank, host = 'h' || (rank / 2)"
          " WHERE rank = " +
          std::to_string(rank));
  }
  std::string file = nsys();
  EXPECT_EQ(number(file, "SELECT count(DISTINCT globalPid) FROM PROCESSES"), 4);
  EXPECT_EQ(number(file, "SELECT min(globalPid) > 0 FROM PROCESSES"), 1);
  EXPECT_EQ(number(file, "SELECT count(*) FROM TARGET_INFO_GPU"), 4);
  EXPECT_EQ(number(file, "SELECT count(DISTINCT pid) FROM PROCESSES"), 4);
  EXPECT_EQ(number(file, "SELECT count(DISTINCT vmId || ' ' || hwId) FROM TARGET_INFO_CUDA_CONTEXT_INFO"), 2)
      << "hosts";
}

TEST_F(Export, SegmentsStandInWhereBlocksWereNotRecorded) {
  {
    LedgerBuilder ledger(path);
    for (int rank = 0; rank < 2; rank++)
      for (std::string owner : {"pytorch", "libnccl.so.2"})
        ledger.rank(rank + 2 * (owner != "pytorch"), 4)
            .sql("INSERT INTO segment(rank, device, address, bytes, owner, api, alloc_ns) VALUES (" +
                 std::to_string(rank) + ", 0, 4096, 4096, '" + owner + "', 'cuMemAlloc_v2', " +
                 std::to_string(ledger.now()) + ")");
    ledger.allocation(0, 0, mib, "temp");
  }
  std::string file = nsys();
  EXPECT_EQ(number(file, "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE name = 'pytorch'"), 1) << "of rank 1";
  EXPECT_EQ(number(file, "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE name = 'libnccl.so.2'"), 2);
  EXPECT_EQ(number(file, "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE name = 'temp'"), 2);
}

} // namespace
