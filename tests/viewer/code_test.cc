/* Lines of code in commands and exports, of a job that was recorded with call stacks (tests/gpu/code/job.py). */
#include "fakes/command.h"
#include "fakes/ledger_rows.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sstream>

namespace {

namespace fs = std::filesystem;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Code : public testing::Test {
protected:
  void SetUp() override {
    const CommandResult result = shardledger({"ingest", std::string(SL_TEST_DATA "/code/fsdp2"), "-o", ledger});
    ASSERT_EQ(result.status, 0) << result.error;
  }
  std::string asked(const std::vector<std::string> &arguments) {
    const CommandResult result = shardledger(arguments);
    EXPECT_EQ(result.status, 0) << result.error;
    return result.out;
  }
  std::string row(const std::string &sql) {
    const auto found = ledger_rows(ledger, sql);
    return found.empty() ? "" : found[0];
  }
  std::string file(const std::string &path) {
    std::ifstream stream(path, std::ios::binary);
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
  }

  TemporaryDirectory directory;
  std::string ledger = directory / "ledger.sqlite";
};

TEST_F(Code, PeaksByLineOperatorAndStackAddUpToThePeak) {
  const std::string peak = row("SELECT peak_allocated_bytes FROM life");
  for (const char *view : {"site_at_peak", "line_at_peak", "operator_at_peak"})
    EXPECT_EQ(row(std::string("SELECT sum(bytes) FROM ") + view + " WHERE period = (SELECT peak_period FROM life)"),
              peak)
        << view;
  for (const char *by : {"line", "operator", "stack"}) {
    const std::string json = asked({"peaks", ledger, "--by", by, "--json"});
    int64_t total = 0;
    for (size_t at = json.find("\"bytes\": "); at != std::string::npos; at = json.find("\"bytes\": ", at + 1))
      total += std::stoll(json.substr(at + 9));
    EXPECT_EQ(std::to_string(total), peak) << by;
  }
  const std::string text = asked({"peaks", ledger, "--by", "line"});
  EXPECT_TRUE(contains(text, "tests/gpu/code/job.py:47")) << text;
  EXPECT_TRUE(contains(text, "torch/distributed/fsdp/")) << text;
  EXPECT_FALSE(contains(text, "/site-packages/")) << "where packages are installed says nothing\n" << text;
  EXPECT_FALSE(contains(text, "have no line")) << text;
  EXPECT_TRUE(contains(asked({"peaks", ledger, "--by", "operator"}), "aten::mm"));
  EXPECT_TRUE(
      contains(asked({"peaks", ledger, "--by", "stack"}), "Model.forward tests/gpu/code/job.py:59 > Block.forward"));
}

TEST_F(Code, AStepThatWasNotFollowedHasTheLinesOfOneThatWas) {
  EXPECT_EQ(row("SELECT count(*) FROM allocation WHERE step IN (0, 1) AND site_step IS NOT NULL"), "0");
  EXPECT_EQ(row("SELECT count(*) FROM allocation WHERE step = 5 AND site_step IS NULL"), "0");
  EXPECT_EQ(row("SELECT min(site_step), max(site_step) FROM allocation WHERE step = 5"), "1|1");
  const auto lines = [&](int step) {
    return row(
        "SELECT group_concat(place, ' ') FROM (SELECT DISTINCT file || ':' || line AS place FROM line_at_peak WHERE step = " +
        std::to_string(step) + " ORDER BY place)");
  };
  EXPECT_EQ(lines(5), lines(1));
}

TEST_F(Code, TheSourceIsShownWhereItsFileCanBeRead) {
  CommandResult refused = shardledger({"peaks", ledger, "--by", "module", "--source"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.error, "--source goes with --by line")) << refused.error;
  EXPECT_EQ(shardledger({"peaks", ledger, "--by", "line", "--source"}).status, 0);
}

TEST_F(Code, ExplainAndOomNameTheLine) {
  const std::string activation =
      row("SELECT a.id FROM allocation a JOIN site_line l ON l.site_id = a.site_id WHERE a.step = 5 AND "
          "l.operator_name = 'aten::gelu' LIMIT 1");
  const std::string text = asked({"explain", activation, ledger});
  EXPECT_TRUE(contains(
      text, "Code     tests/gpu/code/job.py:48 in Block.forward, aten::gelu; recorded in step 1, at the same place"))
      << text;
  const std::string backward =
      row("SELECT a.id FROM allocation a JOIN site_line l ON l.site_id = a.site_id WHERE a.step = 1 AND "
          "l.stack_of = 'forward' AND l.operator_name = 'aten::mm' LIMIT 1");
  EXPECT_TRUE(contains(asked({"explain", backward, ledger}), "in the backward of this line"));
  const std::string oom = asked({"oom", ledger});
  EXPECT_TRUE(contains(oom, "Asked for by tests/gpu/code/job.py:104 in refused")) << oom;
  EXPECT_TRUE(contains(oom, "main tests/gpu/code/job.py:127 > refused tests/gpu/code/job.py:104")) << oom;
  EXPECT_TRUE(contains(asked({"oom", ledger, "--json"}), R"("code_line": "tests/gpu/code/job.py:104")"));
}

TEST_F(Code, FoldedStacksHaveEveryByteOfThePeak) {
  const std::string folded = directory / "stacks.txt";
  asked({"export", ledger, "--format", "folded", "-o", folded});
  std::istringstream lines(file(folded));
  int64_t total = 0, count = 0;
  for (std::string line; std::getline(lines, line); count++) {
    const size_t at = line.rfind(' ');
    ASSERT_NE(at, std::string::npos) << line;
    total += std::stoll(line.substr(at + 1));
  }
  EXPECT_EQ(std::to_string(total), row("SELECT peak_allocated_bytes FROM life"));
  EXPECT_GT(count, 20);
  EXPECT_TRUE(contains(file(folded), "<module> (tests/gpu/code/job.py:134);main (")) << file(folded).substr(0, 300);
}

void change(const std::string &ledger, const std::string &sql) {
  sqlite3 *db = nullptr;
  ASSERT_EQ(sqlite3_open(ledger.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

TEST_F(Code, DiffSaysWhichLineGrew) {
  const std::string grown = directory / "grown.sqlite", without = directory / "without.sqlite";
  fs::copy_file(ledger, grown);
  fs::copy_file(ledger, without);
  change(
      grown,
      "UPDATE peak_site SET bytes = bytes + 5242880 WHERE rowid = (SELECT s.rowid FROM peak_site s "
      "JOIN site_line l ON l.site_id = s.site_id JOIN life f ON f.peak_period = s.period WHERE l.line = 69 LIMIT 1)");
  const std::string csv = asked({"diff", ledger, grown, "--csv"});
  EXPECT_TRUE(contains(csv, "\nline,0,1,1,,,tests/gpu/code/job.py:69 train_step,,,,")) << csv;
  EXPECT_TRUE(contains(csv, ",5242880,,,\n")) << csv;
  EXPECT_EQ(csv.find("\nline,"), csv.rfind("\nline,")) << "no other line has changed\n" << csv;
  const std::string text = asked({"diff", ledger, grown});
  EXPECT_TRUE(contains(text, "Lines of code at the peak\n")) << text;
  EXPECT_TRUE(contains(text, "tests/gpu/code/job.py:69 train_step")) << text;
  change(without, "DELETE FROM site");
  EXPECT_FALSE(contains(asked({"diff", ledger, without}), "Lines of code")) << "of a run without lines nothing is said";
}

TEST_F(Code, WhatIsIdleAtAPeakIsListedByLine) {
  const std::string run = directory / "loop";
  fs::copy(SL_TEST_DATA "/code/idle/loop", run, fs::copy_options::recursive);
  const std::string text = asked({"peaks", run, "--by", "idle"});
  EXPECT_TRUE(contains(text,
                       "tests/gpu/code/idle_job.py:35  Keeper.step  8.0 MiB   5.9%  late   aten::cross_entropy_loss at "
                       "tests/gpu/code/idle_job.py:36"))
      << text;
  EXPECT_TRUE(contains(text, "16.0 MiB (11.9%) of the peak are idle")) << text;
  const std::string csv = asked({"peaks", run, "--by", "idle", "--csv"});
  EXPECT_TRUE(contains(csv, "idle_job.py,32,Keeper.step,4194304,")) << csv;
  EXPECT_TRUE(contains(asked({"peaks", run, "--by", "idle", "--step", "3"}),
                       "What operators use was not followed there, but at the peaks of steps 0, 1: --step N"));
  EXPECT_TRUE(contains(asked({"peaks", ledger, "--by", "idle"}),
                       "What operators use was not recorded (source torch_uses: not there)"));
}

TEST_F(Code, WithoutCuptiAnyUseMayBeHidden) {
  const std::string run = directory / "off";
  fs::copy(SL_TEST_DATA "/code/idle/off", run, fs::copy_options::recursive);
  const std::string text = asked({"peaks", run, "--by", "idle"});
  EXPECT_TRUE(contains(text, "16.0 MiB may be: only operators were followed, not what else launches kernels")) << text;
}

TEST_F(Code, AProfileForPprofIsGzipped) {
  const std::string profile = directory / "profile.pb.gz";
  asked({"export", ledger, "--format", "pprof", "-o", profile});
  EXPECT_EQ(file(profile).substr(0, 2), "\x1f\x8b");
}

TEST_F(Code, ALedgerWithoutThemSaysWhy) {
  const std::string other = directory / "other.sqlite";
  ASSERT_EQ(shardledger({"ingest", SL_TEST_DATA "/versions/1", "-o", other}).status, 0);
  const std::string text = asked({"peaks", other, "--by", "line"});
  EXPECT_TRUE(contains(text, "No line of code was recorded (source torch_sites: not there)")) << text;
}

} // namespace
