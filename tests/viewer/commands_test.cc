/* Results of the commands other than peaks and run, from built ledgers and logs. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"
#include "fakes/log_builder.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Commands : public testing::Test {
protected:
  void SetUp() override {
    build_two_rank_run(ledger);
  }
  TemporaryDirectory directory;
  std::string ledger = directory / "run.sqlite";
};

TEST_F(Commands, InfoShowsRanksVersionsSourcesAndWhatIsMissing) {
  CommandResult result = shardledger({"info", ledger});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.out.find("0 events lost, 0 gaps; 0 B (0.0%) unattributed at the peak\n"), 0u);
  EXPECT_TRUE(contains(result.out, "4 of 4 steps exact")) << result.out;
  EXPECT_TRUE(contains(result.out, "ranks recorded  2 of 2\n"));
  EXPECT_TRUE(contains(result.out, "PyTorch         2.11.0\n"));
  EXPECT_TRUE(contains(result.out, "all    cupti_activity  off    SHARDLEDGER_CUPTI=off\n"));
  EXPECT_TRUE(contains(result.out, "collectives              no NCCL call is in the record"));
}

TEST_F(Commands, QueriesWriteRanksAsRanges) {
  const auto answer = [&](const std::string &what) {
    return shardledger({"query", "SELECT rank_ranges(" + what, ledger, "--csv"}).out;
  };
  EXPECT_TRUE(
      contains(answer("column1) AS ranks FROM (VALUES (9), (3), (1), (2), (NULL), (3))"), "ranks\n\"1-3,9\"\n"));
  EXPECT_TRUE(contains(answer("column1, column2) AS ranks FROM (VALUES (64, 71), (80, 80), (5, 4))"), "\"64-71,80\""));
  EXPECT_TRUE(contains(answer("rank) AS ranks FROM rank"), "0-1"));
  EXPECT_TRUE(contains(answer("rank) IS NULL AS none FROM rank WHERE rank > 5"), "none\n1\n"));
}

TEST_F(Commands, InfoTellsAKilledRankAndADifferenceFromPyTorchsStatistics) {
  std::string path = directory / "killed.sqlite";
  {
    LedgerBuilder killed(path);
    killed.rank(0).step(0, 0, mib).step(0, 1, mib).gap(0, "nvtx", 3, "ranges were not closed");
    killed.sql("UPDATE rank SET clean_exit = 0").sql("UPDATE period SET checked = 0 WHERE step = 1");
  }
  std::string out = shardledger({"info", path}).out;
  EXPECT_TRUE(contains(out, "cut off  1 of 2 steps differ")) << out;
  EXPECT_TRUE(contains(out, "ranges were not closed"));
}

TEST_F(Commands, AStepThatCouldNotBeCheckedDoesNotLookLikeOneThatDiffers) {
  std::string path = directory / "cut.sqlite";
  {
    LedgerBuilder cut(path);
    cut.rank(0).step(0, 0, mib).step(0, 1, mib).step(0, 2, mib).sql("UPDATE period SET checked = NULL WHERE step = 2");
  }
  std::string out = shardledger({"info", path}).out;
  EXPECT_TRUE(contains(out, "2 steps exact, 1 unchecked")) << out;
}

TEST_F(Commands, InfoOfARunWithoutAllocationsDoesNotPointToItself) {
  std::string path = directory / "none.sqlite";
  { LedgerBuilder(path).rank(0).source(0, "companion", "on", ""); }
  std::string out = shardledger({"info", path}).out;
  EXPECT_TRUE(contains(out, "No allocation was recorded, neither PyTorch's nor the driver's; what follows says why\n"));
  EXPECT_TRUE(contains(out, "the companion package saw no model called, or was not loaded")) << out;
  EXPECT_TRUE(contains(shardledger({"peaks", path}).out, "'shardledger info' says why\n"));
  EXPECT_TRUE(contains(shardledger({"peaks", path, "--step", "1"}).error,
                       "there is no step 1; none was recorded, 'shardledger info' says why\n"));
}

TEST_F(Commands, SentencesGoOnInTheNextLineOfANarrowTerminal) {
  CommandOptions terminal;
  terminal.terminal = true;
  terminal.environment["NO_COLOR"] = "1";
  std::string out = shardledger({"info", ledger}, terminal).out;
  std::string missing = out.substr(out.find("Not recorded"));
  EXPECT_FALSE(contains(missing, "…")) << missing;
  for (size_t start = 0, end = 0; (end = missing.find("\r\n", start)) != std::string::npos; start = end + 2)
    EXPECT_LE(end - start, 100u) << missing;
  std::string words;
  for (char c : missing)
    if (!isspace(static_cast<unsigned char>(c)))
      words += c;
  EXPECT_TRUE(contains(words, "oneGPUalonemakesnone,andNCCL_NVTX_DISABLEhidesthem")) << missing;
}

TEST_F(Commands, PeaksSaysFirstThatTheJobDiedAndWhy) {
  std::string run = directory / "dead";
  std::filesystem::copy(std::string(SL_TEST_DATA) + "/oom-backward-2rank", run,
                        std::filesystem::copy_options::recursive);
  std::string out = shardledger({"peaks", run}).out;
  // Both ranks' clock is the same one.
  const std::string first = shardledger({"query", "SELECT rank FROM oom ORDER BY at_ns LIMIT 1", run, "--csv"}).out;
  const std::string rank = first.substr(first.find('\n') + 1, 1);
  size_t died = out.find("\nOut of memory: rank " + rank + ", in step 2: "), why = out.find("\nWhy: "),
         peak = out.find("\nPeak ");
  EXPECT_LT(died, why) << out;
  EXPECT_LT(why, peak) << out;
  EXPECT_NE(peak, std::string::npos) << out;
  EXPECT_FALSE(contains(shardledger({"peaks", ledger}).out, "Out of memory"));
}

TEST_F(Commands, InfoGivesTheReasonThatApplies) {
  std::string path = directory / "reason.sqlite";
  auto why = [&](const std::string &nccl, const std::string &state, const std::string &reason) {
    std::filesystem::remove(path);
    {
      LedgerBuilder ledger(path);
      ledger.rank(0, 1).sql("UPDATE rank SET nccl_version = '" + nccl + "'");
      ledger.sql("INSERT INTO collective(rank, operation, tid, enqueue_ns, bytes) VALUES(0, 'AllGather', 1, " +
                 std::to_string(ledger.now()) + ", 4096)");
      if (!state.empty())
        ledger.source(0, "nccl_profiler", state, reason);
    }
    std::string out = shardledger({"info", path, "--json"}).out;
    size_t at = out.find("buffers and algorithms of collectives");
    return at == std::string::npos ? out : out.substr(at, out.find('}', at) - at);
  };
  EXPECT_TRUE(contains(why("2.21.5", "", ""), "NCCL 2.21.5 has no profiler plugin: it came with 2.23"));
  EXPECT_TRUE(contains(why("2.28.9", "off", "SHARDLEDGER_NCCL=off"), "\"SHARDLEDGER_NCCL=off\""));
  EXPECT_TRUE(contains(why("2.28.9", "", ""), "NCCL did not load the profiler plugin"));
}

TEST_F(Commands, WhatCannotBeWrittenWholeIsAFailure) {
  std::string command = std::string(SL_BUILD_DIR) + "/bin/shardledger ";
  for (std::string arguments : {"help", "help --man", "peaks --help", "completion bash", "--version"})
    EXPECT_EQ(WEXITSTATUS(system((command + arguments + " > /dev/full 2> " + (directory / "said")).c_str())), 2)
        << arguments;
  EXPECT_EQ(read_file(directory / "said"), "shardledger: the results could not be written: No space left on device\n");
}

TEST_F(Commands, InfoTellsThatRecordingBeganLate) {
  EXPECT_FALSE(contains(shardledger({"info", ledger}).out, "began late"));
  LedgerBuilder late(directory / "late.sqlite");
  late.rank(0).rank(1).rank(2).sql("UPDATE rank SET restored_allocations = 10 * rank");
  late.sql("COMMIT; BEGIN");
  std::string out = shardledger({"info", directory / "late.sqlite"}).out;
  EXPECT_TRUE(contains(out, "recording began late  30 allocations were there before, on ranks 1-2\n")) << out;
}

TEST_F(Commands, InfoAsJsonIsOneObjectAndAsCsvOneTableAfterTheOther) {
  std::string json = shardledger({"info", ledger, "--json"}).out;
  for (std::string key : {"\"ranks\": [", "\"versions\": [", "\"sources\": [", "\"gaps\": [", "\"not_recorded\": ["})
    EXPECT_TRUE(contains(json, key)) << key << json;
  EXPECT_EQ(json.substr(0, 2), "{\n");
  std::string csv = shardledger({"info", ledger, "--csv"}).out;
  EXPECT_EQ(csv.find("rank,host,pid,device,device_name,"), 0u);
  EXPECT_TRUE(contains(csv, "\n\n# versions\nwhat,value\n")) << csv;
  EXPECT_TRUE(contains(csv, "\n\n# gaps\nrank,source,gaps,lost,first_ns,reason\n\n# ")) << csv;
}

TEST_F(Commands, OneTableOfSeveralIsAFileOrAnArray) {
  const std::string csv = shardledger({"info", ledger, "--csv", "--table", "sources"}).out;
  EXPECT_EQ(csv.find("ranks,source,state,reason\n"), 0u) << csv;
  EXPECT_FALSE(contains(csv, "#")) << csv;
  const std::string all = shardledger({"info", ledger, "--csv"}).out;
  EXPECT_TRUE(contains(all, "\n# sources\n" + csv + "\n#")) << all;
  const std::string json = shardledger({"info", ledger, "--json", "--table", "sources"}).out;
  EXPECT_EQ(json.find("[\n {\"ranks\": "), 0u) << json;
  EXPECT_EQ(json.substr(json.size() - 3), "\n]\n");
  const CommandResult wrong = shardledger({"info", ledger, "--csv", "--table", "source"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.error, "there is no table 'source' here, but: ranks, attempts, versions, sources,"))
      << wrong.error;
  EXPECT_EQ(wrong.out, "");
  EXPECT_TRUE(contains(shardledger({"info", ledger, "--table", "gaps"}).error, "--table needs --csv or --json"));
}

TEST_F(Commands, SnapshotsUseTheTrackersWordsAndTotals) {
  std::string csv = shardledger({"snapshots", ledger, "blocks.0", "--step", "0", "--rank", "0", "--csv"}).out;
  EXPECT_EQ(csv.find("rank,step,module,fqn,call,state,"), 0u) << csv;
  for (std::string word : {"Sharded Param", "Unsharded Param", "Buffer", "Sharded Grad", "Unsharded Grad", "Activation",
                           "Temp", "All Gather", "Reduce Scatter", "OptState", "Inputs", "Total"})
    EXPECT_LT(csv.find("," + word), csv.find('\n')) << word;
  /* param counts as Sharded Param, and a category of the user's as Other. */
  EXPECT_TRUE(contains(csv, "0,0,FSDPTransformer.blocks.0,blocks.0,0,After Post-Forward,268435456,0,0,0,0,629145600,0,"
                            "0,0,0,0,5242880,902823936\n"))
      << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
}

TEST_F(Commands, ANarrowTerminalHasAllCategoriesOfASnapshotOneBelowTheOther) {
  std::string path = directory / "narrow.sqlite";
  const LedgerBuilder::Categories categories = {
      {"sharded_param", mib}, {"unsharded_param", mib},  {"buffer", mib}, {"sharded_grad", mib},
      {"gradient", mib},      {"activation", mib},       {"temp", mib},   {"optstate", mib},
      {"input", mib},         {"all_gather_buffer", mib}};
  {
    LedgerBuilder ledger(path);
    int64_t root = ledger.rank(0, 1).module(0, "", "ALongNameOfAModel");
    ledger.step(0, 0, 10 * mib).snapshot(0, 0, root, "before_forward", categories);
    ledger.snapshot(0, 0, root, "before_backward", categories);
  }
  CommandOptions terminal;
  terminal.terminal = true;
  terminal.environment["NO_COLOR"] = "1";
  std::string out = shardledger({"snapshots", path}, terminal).out, wide = shardledger({"snapshots", path}).out;
  for (size_t start = 0, end = 0; (end = out.find("\r\n", start)) != std::string::npos; start = end + 2)
    EXPECT_LE(end - start, 100u) << out;
  EXPECT_TRUE(contains(out, "\r\nRank 0, Step 0, Module ")) << out;
  EXPECT_FALSE(contains(out, "No room for"));
  size_t heading = wide.find("\nRank ") + 1, columns = 0;
  std::istringstream words(wide.substr(heading, wide.find('\n', heading) - heading));
  for (std::string word; words >> word; columns++)
    EXPECT_TRUE(contains(out, word)) << word;
  EXPECT_GT(columns, 12u) << wide;
  EXPECT_NE(out.find("State"), out.rfind("State")) << "in two tables at least";
}

TEST_F(Commands, SnapshotsStandInTheOrderOfModulesAndStates) {
  std::string csv = shardledger({"snapshots", ledger, "--step", "0", "--rank", "0", "--csv"}).out;
  EXPECT_LT(csv.find("FSDPTransformer,"), csv.find("blocks.0"));
  EXPECT_LT(csv.find("Before Pre-Forward"), csv.find("After Post-Forward"));
}

TEST_F(Commands, SnapshotsFindModulesByNameByTrackersNameAndByPattern) {
  for (std::string module : {"blocks.0", "FSDPTransformer.blocks.0", "blocks.*", "*"}) {
    std::string out = shardledger({"snapshots", ledger, module, "--csv"}).out;
    EXPECT_TRUE(contains(out, "FSDPTransformer.blocks.0")) << module;
  }
  EXPECT_TRUE(contains(shardledger({"snapshots", "blocks.0", ledger, "--csv"}).out, "blocks.0")) << "either order";
  CommandResult none = shardledger({"snapshots", ledger, "nowhere"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(contains(none.error, "no module with snapshots there matches 'nowhere'")) << none.error;
}

TEST_F(Commands, SnapshotsOfTheRootGoByTheNameThatOtherCommandsGiveIt) {
  std::string out = shardledger({"snapshots", ledger, "Transformer", "--csv"}).out;
  EXPECT_TRUE(contains(out, "FSDPTransformer,")) << out;
  EXPECT_FALSE(contains(out, "FSDPTransformer.blocks")) << out;
}

TEST_F(Commands, SnapshotsOfAStepThatRepeatsAnotherAreThatSteps) {
  std::string out = shardledger({"snapshots", ledger, "--step", "2", "--rank", "1", "--csv"}).out;
  EXPECT_TRUE(contains(out, "\n1,2,FSDPTransformer.blocks.0,")) << out;
}

TEST_F(Commands, QueryPrintsTextCsvAndJson) {
  std::string sql = "SELECT rank, step, peak_allocated_bytes FROM step WHERE step = 3";
  EXPECT_EQ(shardledger({"query", sql, ledger, "--csv"}).out,
            "rank,step,peak_allocated_bytes\n0,3,1924136960\n1,3,1890582528\n");
  EXPECT_EQ(shardledger({"query", sql, ledger, "--json"}).out,
            "[\n {\"rank\": 0, \"step\": 3, \"peak_allocated_bytes\": 1924136960},\n"
            " {\"rank\": 1, \"step\": 3, \"peak_allocated_bytes\": 1890582528}\n]\n");
  EXPECT_EQ(shardledger({"query", ledger, sql}).out, "rank  step  peak_allocated_bytes\n"
                                                     "0     3                 1.79 GiB\n"
                                                     "1     3                 1.76 GiB\n");
}

TEST_F(Commands, QueryHandlesEveryTypeOfValue) {
  std::string sql = "SELECT NULL AS n, 1.5 AS d, x'00ff' AS b, 'a,\"b\"' AS t, 9e999 AS i";
  EXPECT_EQ(shardledger({"query", sql, ledger, "--csv"}).out, "n,d,b,t,i\n,1.5,x'00ff',\"a,\"\"b\"\"\",inf\n");
  EXPECT_EQ(shardledger({"query", sql, ledger, "--json"}).out,
            "[\n {\"n\": null, \"d\": 1.5, \"b\": \"x'00ff'\", \"t\": \"a,\\\"b\\\"\", \"i\": null}\n]\n");
}

TEST_F(Commands, QueryOfManyRowsStreams) {
  std::string sql = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i FROM n";
  std::string out = shardledger({"query", sql, ledger, "--limit", "all"}).out;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 5001);
  EXPECT_EQ(out.substr(out.size() - 5), "5000\n");
}

TEST_F(Commands, QueryCannotChangeAnythingOrReachOtherFiles) {
  std::string before = read_file(ledger), other = directory / "other.sqlite";
  for (const std::string &sql : std::vector<std::string>{
           "DELETE FROM period", "DROP TABLE period", "UPDATE rank SET host = ''", "CREATE TABLE t(a)",
           "INSERT INTO meta VALUES ('a', 'b')", "ATTACH '" + other + "' AS o", "VACUUM INTO '" + other + "'",
           "PRAGMA user_version = 9", "PRAGMA writable_schema = 1", "SELECT load_extension('x')", "BEGIN"}) {
    CommandResult result = shardledger({"query", sql, ledger});
    EXPECT_EQ(result.status, 2) << sql;
    EXPECT_NE(result.error, "") << sql;
  }
  EXPECT_EQ(read_file(ledger), before);
  EXPECT_EQ(access(other.c_str(), F_OK), -1);
}

TEST_F(Commands, QueryTakesOneStatement) {
  CommandResult two = shardledger({"query", "SELECT 1; SELECT 2", ledger});
  EXPECT_EQ(two.status, 2);
  EXPECT_TRUE(contains(two.error, "one statement at a time")) << two.error;
  EXPECT_EQ(two.out, "");
  EXPECT_EQ(shardledger({"query", "SELECT 1 AS a; -- a comment", ledger, "--csv"}).out, "a\n1\n");
  EXPECT_EQ(shardledger({"query", "-- a comment\nSELECT 1 AS a", ledger, "--csv"}).out, "a\n1\n");
  EXPECT_EQ(shardledger({"query", "-- nothing", ledger}).status, 2);
  EXPECT_TRUE(contains(shardledger({"query", "SELECT nowhere FROM step", ledger}).error, "no such column: nowhere"));
  EXPECT_TRUE(contains(shardledger({"query", "SELECT * FROM stpe", ledger}).error,
                       "; tables and columns: shardledger query \"SELECT sql FROM sqlite_schema\" --csv\n"));
  EXPECT_TRUE(
      contains(shardledger({"query", "PRAGMA table_info(step)", ledger, "--csv"}).out, ",peak_allocated_bytes,"));
}

void write_log(const std::string &path) {
  LogBuilder log(path);
  log.info("rank", "0");
  log.thread(1)
      .at(1764279603000001000)
      .range_push("forward \033[31m", SL_KIND_forward, 1)
      .allocator(SL_ALLOC, 0x7f0000001000, 500)
      .gap("nvtx", "too \"deep\"", 3)
      .range_pop();
  log.finish();
}

TEST_F(Commands, DumpPrintsOneLineARecordWithNamesResolved) {
  write_log(directory / "run/node1-1-1");
  CommandResult result = shardledger({"dump", directory / "run"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.out, " range_push name=\"forward ?[31m\" domain=1 category=2 value=1\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "1764279603.000001000 "));
  EXPECT_EQ(result.out.find('\033'), std::string::npos);
  EXPECT_TRUE(contains(result.out, " allocator address=0x7f0000001000 bytes=500 sequence=0 place=1 action=alloc"));
  EXPECT_TRUE(contains(result.out, " gap source=\"nvtx\" reason=\"too \\\"deep\\\"\" lost=3\n"));
  EXPECT_TRUE(contains(result.out, " info key=\"rank\" value=\"0\"\n"));
  EXPECT_TRUE(contains(result.error, " 3 lost, 0 of ")) << result.error;
}

TEST_F(Commands, DumpFiltersByTypeAndStopsAtALimit) {
  write_log(directory / "run/node1-1-1");
  std::string gaps = shardledger({"dump", directory / "run", "--type", "gap"}).out;
  EXPECT_EQ(std::count(gaps.begin(), gaps.end(), '\n'), 1) << gaps;
  std::string two = shardledger({"dump", directory / "run/node1-1-1", "--limit", "2"}).out;
  EXPECT_EQ(std::count(two.begin(), two.end(), '\n'), 2) << two;
  CommandResult unknown = shardledger({"dump", directory / "run", "--type", "gapp"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(contains(unknown.error, "did you mean 'gap'")) << unknown.error;
}

TEST_F(Commands, ALedgerThatKeptAllStepsKeepsThemWhenItIsMadeAnew) {
  const std::string run = directory / "repeated", kept = "SELECT count(DISTINCT step) FROM phase WHERE kind = 'step'";
  {
    LogBuilder log(run + "/host-1-1", 50);
    for (uint64_t i = 0; i < 14; i++)
      log.thread(1)
          .at(1000 * i + 1000)
          .range_start(i + 1, "step", SL_KIND_step, i)
          .at(1000 * i + 1900)
          .range_end(i + 1);
  }
  EXPECT_TRUE(contains(shardledger({"query", kept, run, "--csv"}).out, "\n11\n"));
  EXPECT_EQ(shardledger({"ingest", run, "--keep", "all"}).status, 0);
  EXPECT_TRUE(contains(shardledger({"query", kept, run, "--csv"}).out, "\n14\n"));
  std::filesystem::last_write_time(run + "/host-1-1/00000000.slog", std::filesystem::file_time_type::clock::now());
  EXPECT_TRUE(contains(shardledger({"query", kept, run, "--csv"}).out, "\n14\n"));
  EXPECT_EQ(shardledger({"ingest", run}).status, 0);
  EXPECT_TRUE(contains(shardledger({"query", kept, run, "--csv"}).out, "\n11\n"));
  EXPECT_EQ(shardledger({"ingest", run, "--keep", "some"}).status, 2);
}

TEST_F(Commands, ARunDirectoryIsIngestedWhenItIsAskedAndAgainWhenItsLogsChange) {
  std::string run = directory / "run";
  write_log(run + "/node1-1-1");
  CommandResult result = shardledger({"info", run});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(result.error, "") << "no progress bar without a terminal";
  ASSERT_EQ(access((run + "/ledger.sqlite").c_str(), F_OK), 0);
  std::string mark = "PRAGMA user_version";
  EXPECT_EQ(shardledger({"ingest", run, "-o", directory / "elsewhere.sqlite"}).out, directory / "elsewhere.sqlite\n");
  EXPECT_EQ(shardledger({"info", directory / "elsewhere.sqlite"}).status, 0);
}

TEST_F(Commands, DoctorSaysALineForEachPartAndWhatToDo) {
  CommandOptions options;
  options.environment["NCCL_NVTX_DISABLE"] = "1";
  options.environment["CUDA_INJECTION64_PATH"] = "/opt/nsys/libToolsInjection64.so";
  CommandResult result = shardledger({"doctor", "-o", directory / "new/deep"}, options);
  EXPECT_LE(result.status, 1);
  EXPECT_EQ(result.error, "");
  for (std::string line : {"plugin", "CUDA driver", "CUPTI", "Python", "run directory"})
    EXPECT_TRUE(contains(result.out, line)) << line;
  EXPECT_TRUE(contains(result.out, "limited  injection      CUDA_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "NCCL_NVTX_DISABLE=1: collectives have no ranges"));
  EXPECT_EQ(access((directory / "new").c_str(), F_OK), -1) << "the doctor makes nothing";
}

TEST_F(Commands, DoctorFailsWhereNothingCanBeRecorded) {
  CommandResult result = shardledger({"doctor", "-o", ledger + "/below-a-file", "--json"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.out, "{\"state\": \"missing\", \"what\": \"run directory\"")) << result.out;
}

TEST_F(Commands, DoctorSurvivesAPythonThatIsNone) {
  CommandResult result = shardledger({"doctor", "--python", "/nonexistent/python"});
  EXPECT_LE(result.status, 1);
  EXPECT_TRUE(contains(result.out, "limited  Python         /nonexistent/python can't be run")) << result.out;
}

} // namespace
