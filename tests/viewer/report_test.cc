/* What `report` promises as a command: a whole page or none, and words when it can't. The page itself: tests/python. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Report : public testing::Test {
protected:
  std::string write(const std::vector<std::string> &more = {}) {
    std::vector<std::string> arguments = {"report", path, "-o", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CommandResult result = shardledger(arguments);
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_EQ(result.out, output + "\n");
    EXPECT_EQ(result.error, "");
    return read_file(output);
  }
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite", output = directory / "report.html";
};

TEST_F(Report, WritesOnePageWithEverythingInIt) {
  build_two_rank_run(path);
  std::string page = write();
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0u);
  EXPECT_TRUE(contains(page, "</html>"));
  EXPECT_FALSE(contains(page, "{{")) << "a mark of the template was not filled in";
  EXPECT_TRUE(contains(page, "default-src 'none'"));
  for (const char *elsewhere : {"src=\"http", "href=\"http", "@import", "url(http", "<link"})
    EXPECT_FALSE(contains(page, elsewhere)) << elsewhere;
}

TEST_F(Report, IsTheSameFileForTheSameLedger) {
  build_two_rank_run(path);
  std::string first = write();
  EXPECT_EQ(write(), first);
}

TEST_F(Report, GoesToReportHtmlWithoutAnOutput) {
  build_two_rank_run(path);
  CommandOptions here;
  here.directory = directory.path;
  CommandResult result = shardledger({"report", path}, here);
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(result.out, "report.html\n");
  EXPECT_TRUE(std::filesystem::exists(directory / "report.html"));
}

TEST_F(Report, BadInputIsSaidAndLeavesNothing) {
  build_two_rank_run(path);
  EXPECT_EQ(shardledger({"report", directory / "none", "-o", output}).status, 2);
  EXPECT_EQ(shardledger({"report", path, path, path, "-o", output}).status, 2);
  EXPECT_EQ(shardledger({"report", directory / "none", path, "-o", output}).status, 2);
  EXPECT_EQ(shardledger({"report", path, directory / "none", "-o", output}).status, 2);
  EXPECT_EQ(shardledger({"report", path, "--step", "-1", "-o", output}).status, 2);
  CommandResult result = shardledger({"report", path, "--step", "812", "-o", output});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "there is no step 812; steps 0 to 3 were recorded, 'shardledger peaks"))
      << result.error;
  result = shardledger({"report", path, "-o", directory / "none" + "/report.html"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "none/report.html can't be written: No such file")) << result.error;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path), {}), 1) << "the ledger alone";
}

TEST_F(Report, AFailedReportLeavesWhatWasThere) {
  build_two_rank_run(path);
  write_file(output, "yesterday's");
  LedgerBuilder(directory / "broken.sqlite").rank(0).sql("DROP TABLE phase");
  EXPECT_EQ(shardledger({"report", directory / "broken.sqlite", "-o", output}).status, 2);
  EXPECT_EQ(read_file(output), "yesterday's");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path), {}), 3) << "nothing half-written";
}

TEST_F(Report, AFullDiskIsSaidAndADeviceIsWrittenInto) {
  build_two_rank_run(path);
  std::filesystem::create_symlink("/dev/full", directory / "full");
  CommandResult result = shardledger({"report", path, "-o", directory / "full"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "full can't be written: No space left")) << result.error;
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "full")) << "what is no file is not replaced by one";
}

TEST_F(Report, ALedgerWithoutRanksHasNothingToReport) {
  LedgerBuilder ledger(path);
  CommandResult result = shardledger({"report", path, "-o", output});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "nothing to report")) << result.error;
}

TEST_F(Report, RunsOfEveryEmptinessHaveAPage) {
  LedgerBuilder(path).rank(0); /* neither steps nor allocations, modules, samples */
  EXPECT_TRUE(contains(write(), "</html>"));
}

} // namespace
