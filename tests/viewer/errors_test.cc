/* What goes wrong is one sentence with the next step, on stderr, and exit status 2. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"
#include "fakes/log_builder.h"

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <sqlite3.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* Runs peaks on path, and expects one line that contains all parts. */
void expect_refusal(const std::string &path, const std::vector<std::string> &parts) {
  CommandResult result = shardledger({"peaks", path});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.error.find("shardledger: "), 0u);
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  for (const std::string &part : parts)
    EXPECT_TRUE(contains(result.error, part)) << result.error;
}

class Errors : public testing::Test {
protected:
  TemporaryDirectory directory;
};

TEST_F(Errors, AnEmptyDirectoryHasNeitherLedgerNorLogs) {
  expect_refusal(directory.path, {directory.path, "no ledger and no logs here; record a run with 'shardledger run --"});
  EXPECT_TRUE(std::filesystem::is_empty(directory.path)) << "asking leaves nothing behind";
  EXPECT_EQ(shardledger({"ingest", directory.path}).status, 2);
  EXPECT_EQ(shardledger({"dump", directory.path}).status, 2);
}

TEST_F(Errors, APathThatIsNotThere) {
  expect_refusal(directory / "nowhere", {"nowhere: no such file or directory", "shardledger run --"});
  EXPECT_EQ(shardledger({"ingest", directory / "nowhere"}).status, 2);
  EXPECT_EQ(shardledger({"dump", directory / "nowhere"}).status, 2);
}

TEST_F(Errors, AForeignFile) {
  write_file(directory / "notes.txt", std::string(5000, 'x'));
  expect_refusal(directory / "notes.txt", {"notes.txt is not a ledger"});
}

TEST_F(Errors, AForeignDatabase) {
  std::string path = directory / "places.sqlite";
  build_two_rank_run(path);
  shardledger({"query", "SELECT 1", path});
  { LedgerBuilder(path + "2").sql("DROP TABLE meta"); }
  expect_refusal(path + "2", {"is an SQLite database, but no ledger"});
}

TEST_F(Errors, ALedgerThatWasCutShort) {
  std::string path = directory / "run.sqlite";
  build_two_rank_run(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  CommandResult result = shardledger({"peaks", path});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "malformed")) << result.error;
  EXPECT_TRUE(contains(result.error, "run.sqlite")) << result.error;
}

TEST_F(Errors, AnEmptyFile) {
  write_file(directory / "run.sqlite", "");
  expect_refusal(directory / "run.sqlite", {"no ledger"});
}

TEST_F(Errors, ALedgerOfANewerVersion) {
  std::string path = directory / "run.sqlite";
  build_two_rank_run(path);
  { LedgerBuilder(directory / "new.sqlite").sql("PRAGMA user_version = 99"); }
  expect_refusal(directory / "new.sqlite", {"is of ledger version 99", "use a newer shardledger"});
}

TEST_F(Errors, ALedgerOfAnOlderVersion) {
  { LedgerBuilder(directory / "old.sqlite").sql("PRAGMA user_version = 0"); }
  expect_refusal(directory / "old.sqlite", {"is of ledger version 0", "shardledger ingest DIR"});
}

TEST_F(Errors, ALedgerOfAnOlderVersionIsMadeAnewWhereTheLogsAre) {
  std::string run = directory / "run", ledger = run + "/ledger.sqlite";
  LogBuilder log(run + "/node1-1-1");
  log.info("rank", "0");
  log.thread(1).at(1764279603000001000).range_push("forward", SL_KIND_forward, 1).range_pop();
  log.finish();
  ASSERT_EQ(shardledger({"info", run}).status, 0);
  sqlite3 *db = nullptr;
  ASSERT_EQ(sqlite3_open(ledger.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version = 1; DROP TABLE collective_total", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  CommandResult result = shardledger({"nccl", run});
  EXPECT_EQ(result.status, 0) << result.error;
}

class ReadOnly : public Errors {
protected:
  void SetUp() override {
    LogBuilder log(run + "/node1-1-1");
    log.info("rank", "0");
    log.thread(1).at(1764279603000001000).range_push("forward", SL_KIND_forward, 1).range_pop();
    log.finish();
    nobody.unprivileged = true;
  }
  void protect() {
    using std::filesystem::perms;
    std::filesystem::permissions(directory.path, perms::owner_all | perms::others_read | perms::others_exec);
    for (const auto &entry : std::filesystem::recursive_directory_iterator(run))
      std::filesystem::permissions(entry.path(), entry.is_directory() ? perms(0555) : perms(0444));
    std::filesystem::permissions(run, perms(0555));
  }
  void TearDown() override {
    std::filesystem::permissions(run, std::filesystem::perms::owner_all);
    for (const auto &entry : std::filesystem::recursive_directory_iterator(run))
      std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
  }
  std::string run = directory / "run";
  CommandOptions nobody;
};

TEST_F(ReadOnly, AnUningestedRunNamesThePlaceToPutItsLedger) {
  protect();
  CommandResult result = shardledger({"peaks", run}, nobody);
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, run + "/ledger.sqlite can't be written (Permission denied)")) << result.error;
  EXPECT_TRUE(contains(result.error, "shardledger ingest " + run + " -o FILE.sqlite"));
}

TEST_F(ReadOnly, TheLedgerOfADirectoryOfSomebodyElseIsInOnesOwnCache) {
  protect();
  std::string cache = directory / "cache";
  std::filesystem::create_directory(cache);
  std::filesystem::permissions(cache, std::filesystem::perms::all);
  nobody.environment = {{"XDG_CACHE_HOME", cache}};
  CommandResult first = shardledger({"info", run}, nobody);
  EXPECT_EQ(first.status, 0) << first.error;
  std::string ledger = cache + "/shardledger/ledgers" + run + "/ledger.sqlite";
  EXPECT_TRUE(contains(first.error, run + " can't be written; its ledger is " + ledger)) << first.error;
  EXPECT_TRUE(std::filesystem::exists(ledger));
  CommandResult second = shardledger({"info", run}, nobody);
  EXPECT_EQ(second.status, 0) << second.error;
  EXPECT_EQ(second.error, "") << "it is there, and no note is needed";
  EXPECT_EQ(second.out, first.out);
}

TEST_F(ReadOnly, ANewerRunBesideTheDefaultOneIsNamed) {
  CommandOptions here;
  for (std::string name : {"shardledger-out", "shardledger-out-2", "shardledger-out-3"})
    std::filesystem::copy(run, directory / name, std::filesystem::copy_options::recursive);
  here.directory = directory.path;
  CommandResult result = shardledger({"peaks"}, here);
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(result.error, "shardledger: reading shardledger-out; shardledger-out-3 is newer\n");
  EXPECT_EQ(shardledger({"peaks", "shardledger-out"}, here).error, "") << "it was named";
}

TEST_F(ReadOnly, AnIngestedRunIsReadAsItIs) {
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  protect();
  CommandResult result = shardledger({"peaks", run}, nobody);
  EXPECT_EQ(result.status, 0) << result.error;
}

TEST_F(ReadOnly, AnOlderLedgerIsBetterThanNone) {
  ASSERT_EQ(shardledger({"ingest", run}).status, 0);
  std::filesystem::last_write_time(run + "/ledger.sqlite",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
  protect();
  CommandResult result = shardledger({"info", run}, nobody);
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.error, "using the older ledger")) << result.error;
}

TEST_F(ReadOnly, RunRefusesADirectoryThatItCannotWrite) {
  protect();
  CommandResult result = shardledger({"run", "-o", run + "/out", "--", "true"}, nobody);
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "can't be used for the logs: Permission denied")) << result.error;
}

TEST_F(ReadOnly, ALedgerThatNobodyMayRead) {
  std::string path = directory / "run.sqlite";
  build_two_rank_run(path);
  protect();
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  CommandResult result = shardledger({"peaks", path}, nobody);
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "run.sqlite: Permission denied")) << result.error;
}

TEST_F(Errors, ADirectoryOnWhichNothingCanBeMade) {
  CommandResult result = shardledger({"run", "-o", "/proc/shardledger", "--", "true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "can't be used for the logs")) << result.error;
}

TEST_F(Errors, AStepOrARankThatIsNotThereIsRefusedByEveryCommand) {
  std::string path = directory / "run.sqlite", page = directory / "page.html";
  build_two_rank_run(path);
  const std::vector<std::vector<std::string>> steps = {{"peaks", path},
                                                       {"peaks", path, "--by", "category", "--csv"},
                                                       {"snapshots", path},
                                                       {"snapshots", path, "blocks.0", "--json"},
                                                       {"nccl", path},
                                                       {"survivors", path},
                                                       {"report", path, "-o", page},
                                                       {"diff", path, "--rank", "0", "--other-rank", "1"}};
  for (std::vector<std::string> command : steps) {
    command.insert(command.end(), {"--step", "99"});
    CommandResult result = shardledger(command);
    EXPECT_EQ(result.status, 2) << command[0];
    EXPECT_EQ(result.out, "") << command[0];
    EXPECT_TRUE(contains(result.error, "there is no step 99")) << result.error;
    EXPECT_TRUE(contains(result.error, "; steps 0 to 3 were recorded, 'shardledger peaks --by step' lists them\n"))
        << result.error;
    EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  }
  for (std::string at : {"--at", "--segments"}) {
    CommandResult result = shardledger(at == "--at" ? std::vector<std::string>{"device", path, "--at", "99"}
                                                    : std::vector<std::string>{"device", path, at, "--at", "99"});
    EXPECT_EQ(result.status, 2) << result.error;
    EXPECT_TRUE(contains(result.error, "there is no step 99; steps 0 to 3")) << result.error;
  }
  for (std::vector<std::string> command : {std::vector<std::string>{"peaks", path},
                                           {"peaks", path, "--by", "step"},
                                           {"snapshots", path},
                                           {"nccl", path},
                                           {"device", path},
                                           {"oom", path, "--json"},
                                           {"survivors", path},
                                           {"explain", "1", path},
                                           {"whatif", path},
                                           {"advise", path},
                                           {"diff", path, path}}) {
    command.insert(command.end(), {"--rank", "7"});
    CommandResult result = shardledger(command);
    EXPECT_EQ(result.status, 2) << command[0];
    EXPECT_EQ(result.out, "") << command[0];
    EXPECT_TRUE(contains(result.error, "there is no rank 7; ranks 0 to 1 were recorded, 'shardledger info' lists them"))
        << result.error;
  }
}

TEST_F(Errors, WhatIsWrongWithAnotherFileIsSaidOfThatFile) {
  std::string path = directory / "run.sqlite", other = directory / "other.sqlite", none = directory / "none";
  build_two_rank_run(path);
  { LedgerBuilder(other).rank(0).step(0, 0, 1024); }
  EXPECT_EQ(shardledger({"diff", path, none}).error.find("shardledger: " + none + ": no such file"), 0u);
  EXPECT_EQ(shardledger({"check", path, "--against", none}).error.find("shardledger: " + none + ": no such file"), 0u);
  CommandResult step = shardledger({"diff", path, other, "--step", "2"});
  EXPECT_EQ(step.status, 2);
  EXPECT_EQ(step.error.find("shardledger: " + other + ": there is no step 2; step 0 was recorded"), 0u) << step.error;
  CommandResult full = shardledger({"check", path, "--max-peak", "1TiB", "--junit", "/dev/full"});
  EXPECT_EQ(full.status, 2);
  EXPECT_EQ(full.error, "shardledger: /dev/full can't be written: No space left on device\n");
}

TEST_F(Errors, UnknownCommandsAndOptionsGetASuggestion) {
  EXPECT_EQ(shardledger({"peeks"}).status, 2);
  EXPECT_EQ(shardledger({"peeks"}).error, "shardledger: there is no command 'peeks'; did you mean 'peaks'?\n");
  EXPECT_EQ(shardledger({"frobnicate"}).error,
            "shardledger: there is no command 'frobnicate'; 'shardledger help' lists them\n");
  EXPECT_TRUE(contains(shardledger({"foo"}).error, "'shardledger help' lists them")) << "oom is another word";
  EXPECT_EQ(shardledger({"peaks", "--stpe", "1"}).error,
            "shardledger: peaks: there is no option --stpe; did you mean --step?\n");
  EXPECT_EQ(shardledger({"peaks", "-z"}).status, 2);
}

TEST_F(Errors, MissingAndWrongArgumentsAreNamed) {
  EXPECT_TRUE(contains(shardledger({}).error, "Usage: shardledger COMMAND"));
  EXPECT_EQ(shardledger({}).status, 2);
  EXPECT_TRUE(contains(shardledger({"query"}).error, "SQL is missing"));
  EXPECT_TRUE(contains(shardledger({"nccl", "--slowest", "3", "--by", "module"}).error, "name one of the two"));
  EXPECT_TRUE(contains(shardledger({"device", "--by", "step", "--at", "3"}).error, "name one of the two"));
  EXPECT_TRUE(contains(shardledger({"run"}).error, "the command to run is missing"));
  EXPECT_TRUE(contains(shardledger({"run", "--"}).error, "the command to run is missing"));
  EXPECT_TRUE(contains(shardledger({"peaks", "--step"}).error, "--step needs a value"));
  EXPECT_TRUE(contains(shardledger({"peaks", "--step", "-1"}).error, "takes a number from 0, not '-1'"));
  EXPECT_TRUE(contains(shardledger({"peaks", "--step=1x"}).error, "takes a number from 0, not '1x'"));
  EXPECT_TRUE(contains(shardledger({"peaks", "--by", "color"}).error, "takes one of module|category|step|rank"));
  EXPECT_TRUE(contains(shardledger({"peaks", "--csv=yes"}).error, "--csv takes no value"));
  EXPECT_TRUE(contains(shardledger({"peaks", "--csv", "--json"}).error, "exclude each other"));
  EXPECT_TRUE(contains(shardledger({"info", "a", "b"}).error, "'b' is one argument too many"));
  for (std::vector<std::string> arguments :
       std::vector<std::vector<std::string>>{{"query"}, {"run"}, {"peaks", "--step"}, {"info", "a", "b"}})
    EXPECT_EQ(shardledger(arguments).status, 2);
}

TEST_F(Errors, ResultsThatCannotBeWrittenFailTheCommand) {
  std::string path = directory / "run.sqlite";
  build_two_rank_run(path);
  std::string command = std::string(SL_BUILD_DIR) + "/bin/shardledger query 'SELECT 1' " + path + " >/dev/full 2>&1";
  int status = system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(Errors, WithoutADirectoryTheUsualOneIsAsked) {
  CommandOptions options;
  options.directory = directory.path;
  EXPECT_TRUE(contains(shardledger({"peaks"}, options).error, "shardledger-out: no such file or directory"));
  options.environment["SHARDLEDGER_DIR"] = "elsewhere";
  EXPECT_TRUE(contains(shardledger({"peaks"}, options).error, "elsewhere: no such file or directory"));
}

} // namespace
