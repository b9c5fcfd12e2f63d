// No command prints more than a screen unless it is asked to: of 256 ranks, and of a run of 500 steps. A sanitizer,
// which multiplies the time, looks at what a command does with more of them than a screen has lines.
#include "fakes/command.h"
#include "fakes/fleet.h"
#include "fakes/ledger_rows.h"
#include "fakes/repeated_run.h"
#include "fakes/sanitizers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
constexpr int kScreen = 60; // lines; 40 to 50 are aimed at

int lines(const std::string &text) {
  return (int)std::count(text.begin(), text.end(), '\n');
}

// How each command is asked; RUN is the run, BASE another one of the same job, HELD an address that many allocations
// had.
const std::map<std::string, std::vector<Arguments>> kQuestions = {
    {"info", {{"RUN"}}},
    {"peaks",
     {{"RUN"},
      {"RUN", "--by", "module"},
      {"RUN", "--by", "category"},
      {"RUN", "--by", "step"},
      {"RUN", "--by", "rank"},
      {"RUN", "--by", "line"},
      {"RUN", "--by", "operator"},
      {"RUN", "--by", "stack"},
      {"RUN", "--by", "idle"}}},
    {"snapshots", {{"RUN"}}},
    {"nccl",
     {{"RUN"},
      {"RUN", "--by", "operation"},
      {"RUN", "--by", "module"},
      {"RUN", "--by", "communicator"},
      {"RUN", "--slowest", "10"}}},
    {"device",
     {{"RUN"},
      {"RUN", "--by", "step"},
      {"RUN", "--at", "last"},
      {"RUN", "--segments"},
      {"RUN", "--segments", "--by", "step"}}},
    {"oom", {{"RUN"}}},
    {"survivors", {{"RUN"}}},
    {"ranks", {{"RUN"}, {"RUN", "--by", "host"}, {"RUN", "--by", "communicator"}, {"RUN", "--by", "mesh"}}},
    {"explain", {{"HELD", "RUN"}}},
    {"diff", {{"RUN", "BASE"}, {"RUN", "--rank", "0", "--other-rank", "1"}}},
    {"check", {{"RUN", "--max-peak", "1MiB"}, {"RUN", "--max-growth", "1KiB/step"}, {"RUN", "--against", "BASE"}}},
    {"watch", {{"RUN", "--once"}}},
    {"advise", {{"RUN"}, {"RUN", "--budget", "20GiB"}}},
    {"whatif",
     {{"RUN", "--alloc-conf", "expandable_segments:True"},
      {"RUN", "--no-workspaces", "--by", "period"},
      {"RUN", "--recompute", "none"},
      {"RUN", "--optimizer-in-backward"},
      {"RUN", "--loss-chunks", "8", "--mixed-precision", "bf16"}}},
    {"rules", {{"RUN"}}},
    {"query", {{"SELECT * FROM period", "RUN"}}},
    {"dump", {{"RUN"}}},
    {"doctor", {{}}},
    {"help", {{}, {"peaks"}}},
};
// They write files, start a job, or answer a program.
const std::set<std::string> kSilent = {"run",    "rehearse", "ingest", "merge",     "report",
                                       "export", "trim",     "mcp",    "completion"};

std::vector<std::string> commands() {
  std::vector<std::string> names;
  std::istringstream help(shardledger({"help"}).out);
  for (std::string line; std::getline(help, line);)
    if (line.rfind("  ", 0) == 0 && line[2] != ' ')
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

void expect_screens(const std::string &run, const std::string &base) {
  const std::string held =
      ledger_cells(run + "/ledger.sqlite", "SELECT printf('0x%x', address) FROM allocation GROUP BY address"
                                           " ORDER BY count(*) DESC LIMIT 1")[0][0];
  const std::map<std::string, std::string> stands_for = {{"RUN", run}, {"BASE", base}, {"HELD", held}};
  for (const std::string &name : commands()) {
    if (kSilent.count(name))
      continue;
    ASSERT_TRUE(kQuestions.count(name)) << "say above how '" << name << "' is asked";
    for (const Arguments &question : kQuestions.at(name)) {
      Arguments arguments = {name};
      for (const std::string &word : question)
        arguments.push_back(stands_for.count(word) ? stands_for.at(word) : word);
      const CommandResult result = shardledger(arguments);
      EXPECT_LE(lines(result.out), kScreen) << testing::PrintToString(arguments) << "\n" << result.out;
      EXPECT_LT(lines(result.error), 4) << result.error;
    }
  }
}

class Screen : public ::testing::Test {
protected:
  TemporaryDirectory directory;
  std::string run = directory / "run", base = directory / "base";
};

TEST_F(Screen, HoldsWhatEveryCommandSaysOfHundredsOfRanks) {
  Fleet fleet;
  fleet.ranks = SANITIZED ? 72 : 256;
  fleet.steps = 12;
  write_fleet(base, fleet);
  for (uint32_t rank = 0; rank < fleet.ranks / 2 - 8; rank++) // each differs in its own way
    fleet.more.push_back({{2 * rank}, (rank + 1ull) << 20, 1, 2});
  fleet.leaks.push_back({{20}, 4 << 20, 2});
  fleet.deaths.push_back({{40, 41}, Fleet::End::refused, 11, 0});
  write_fleet(run, fleet);
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  expect_screens(run, base);
}

TEST_F(Screen, HoldsWhatEveryCommandSaysOfHundredsOfSteps) {
  for (const std::string &to : {run, base}) {
    std::string error;
    fs::create_directories(to);
    for (const auto &process : fs::directory_iterator(SL_TEST_DATA "/fsdp2-2rank-recompute"))
      if (process.is_directory()) {
        RepeatedRun repeated;
        repeated.from = process.path();
        repeated.to = fs::path(to) / process.path().filename();
        repeated.first = 2;
        repeated.last = 4;
        repeated.times = SANITIZED ? 30 : 166; // of three steps
        ASSERT_GT(repeat_steps(repeated, error), 0u) << error;
      }
  }
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  expect_screens(run, base);
}

// ---- what is left out, and how to get it ----

class Long : public Screen {
protected:
  void SetUp() override {
    Fleet fleet;
    fleet.ranks = 12;
    fleet.steps = 30;
    fleet.more.push_back({{7}, 64 << 20, 1, 25});
    write_fleet(run, fleet);
  }
};

TEST_F(Long, TheLastLineSaysWhatWasLeftOutAndTheOptionsGetIt) {
  const std::string out = shardledger({"peaks", run, "--by", "step"}).out;
  EXPECT_NE(
      out.find("40 of 360 rows, those with the largest Allocated; the others with --limit all, --csv or --json\n"),
      std::string::npos)
      << out;
  EXPECT_NE(out.find("\n   7    29 "), std::string::npos) << out << "the highest are among them";
  EXPECT_EQ(lines(shardledger({"peaks", run, "--by", "step", "--limit", "3"}).out), 7);
  EXPECT_EQ(lines(shardledger({"peaks", run, "--by", "step", "--limit", "all"}).out), 2 + 1 + 360);
  EXPECT_EQ(lines(shardledger({"peaks", run, "--by", "step", "--csv"}).out), 1 + 360);
}

TEST_F(Long, RowsAreSortedByAnyColumn) {
  const std::string by_header = shardledger({"peaks", run, "--by", "step", "--sort", "Rank", "--limit", "2"}).out;
  EXPECT_NE(by_header.find("\n  11     0 "), std::string::npos) << by_header;
  const std::string by_name = shardledger({"peaks", run, "--by", "step", "--sort", "allocated_bytes"}).out;
  EXPECT_NE(by_name.find("Same as\n   7    25 "), std::string::npos) << by_name;
  const CommandResult unknown = shardledger({"peaks", run, "--by", "step", "--sort", "size"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.error.find("no table here has a column 'size'"), std::string::npos);
  EXPECT_EQ(shardledger({"peaks", run, "--sort", "Rank", "--csv"}).status, 2);
}

TEST_F(Long, RanksAreChosenByRangesInEveryCommandThatTakesOne) {
  const std::string csv = shardledger({"peaks", run, "--by", "rank", "--rank", "0-1,7", "--csv"}).out;
  EXPECT_EQ(lines(csv), 1 + 3) << csv;
  EXPECT_EQ(csv, shardledger({"peaks", run, "--by", "rank", "--ranks", "0-1,7", "--csv"}).out);
  const CommandResult none = shardledger({"peaks", run, "--rank", "0-1,12-14"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.error.find("there is no rank 12-14; ranks 0 to 11 were recorded"), std::string::npos) << none.error;
  for (const char *command : {"peaks", "snapshots", "nccl", "device", "oom", "survivors", "diff"})
    for (const char *bad : {"", "3-", "5-3", "1,,2", "one", "1-2-3", "-1", "99999999999999999999"}) {
      const CommandResult result = shardledger({command, run, "--rank=" + std::string(bad)});
      EXPECT_EQ(result.status, 2) << command << bad;
      EXPECT_NE(result.error.find("--rank takes ranks such as 7 or 0-3,7, not"), std::string::npos) << result.error;
      EXPECT_EQ(lines(result.error), 1);
    }
  for (const char *command : {"snapshots", "nccl", "survivors", "oom"})
    EXPECT_EQ(shardledger({command, run, "--rank", "2-3,7"}).status, 0) << command;
}

TEST_F(Long, RanksThatFailACheckInTheSameWayShareASentence) {
  Fleet fleet;
  fleet.ranks = 12;
  fleet.steps = 30;
  fleet.more.push_back({fleet_ranks("0-5,9"), 8 << 20, 1, 3});
  write_fleet(base, fleet);
  const CommandResult result = shardledger({"check", base, "--against", run});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("against ranks 0-5,9: the peak of each is "), std::string::npos) << result.out;
  EXPECT_EQ(lines(shardledger({"check", base, "--against", run, "--csv"}).out), 1 + 12);
}

TEST_F(Long, ExportsTakeRanges) {
  EXPECT_EQ(shardledger({"export", run, "--format", "kineto", "-o", directory / "traces", "--rank", "2-3,7"}).status,
            0);
  std::set<std::string> files;
  for (const auto &file : fs::directory_iterator(directory / "traces"))
    files.insert(file.path().filename());
  EXPECT_EQ(files,
            (std::set<std::string>{"rank2.pt.trace.json.gz", "rank3.pt.trace.json.gz", "rank7.pt.trace.json.gz"}));
  const std::string nsys = directory / "few.sqlite";
  EXPECT_EQ(shardledger({"export", run, "--format", "nsys", "-o", nsys, "--rank", "2-3,7"}).status, 0);
  EXPECT_EQ(ledger_cells(nsys, "SELECT count(*) FROM PROCESSES")[0][0], "3");
  const CommandResult none = shardledger({"export", run, "--format", "nsys", "-o", nsys, "--rank", "70"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.error.find("there is no rank 70"), std::string::npos) << none.error;
}

TEST_F(Screen, AnExportOfManyRanksSaysWhichAreWritten) {
  Fleet fleet;
  fleet.ranks = 80;
  fleet.steps = 3;
  fleet.blocks = 2;
  fleet.more.push_back({{77}, 64 << 20, 1, 1});
  write_fleet(run, fleet);
  const CommandResult result = shardledger({"export", run, "--format", "snapshot", "-o", directory / "few"});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_NE(result.error.find(" of 80 ranks are written, "), std::string::npos) << result.error;
  EXPECT_TRUE(fs::exists(directory / "few/rank77.pickle"));
  EXPECT_FALSE(fs::exists(directory / "few/rank76.pickle"));
  EXPECT_EQ(shardledger({"export", run, "--format", "snapshot", "-o", directory / "all", "--rank", "0-79"}).error, "");
  EXPECT_TRUE(fs::exists(directory / "all/rank76.pickle"));
}

// ---- watch ----

TEST_F(Screen, WatchOnceOf1024RanksTakesLittleTimeAndMemory) {
  if (SANITIZED)
    GTEST_SKIP() << "a sanitizer takes time and memory of its own";
  Fleet fleet;
  fleet.ranks = 1024;
  write_fleet(run, fleet);
  double best = 1e9;
  for (int attempt = 0; attempt < 6 && best > 2; attempt++) {
    const CommandResult result = shardledger({"watch", run, "--once"});
    ASSERT_EQ(result.status, 0) << result.error;
    EXPECT_NE(result.out.find("\n0-1023 "), std::string::npos) << result.out;
    EXPECT_LT(lines(result.out), 25);
    best = std::min(best, result.seconds);
  }
  struct rusage children;
  getrusage(RUSAGE_CHILDREN, &children);
  EXPECT_LT(children.ru_maxrss, 200 << 10) << "KiB, the most of any of them";
  EXPECT_LT(best, 4) << "seconds of processor: two on each of two";
}

} // namespace
