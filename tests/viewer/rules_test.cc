/* Rules of users on the command line: checked before anything happens, kept for later, shown in order. */
#include "fakes/command.h"
#include "fakes/log_builder.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Rules : public testing::Test {
protected:
  void SetUp() override {
    std::filesystem::create_directories(run);
    LogBuilder log(run + "/host-1-1", 50);
    log.thread(1).at(10).range_push("iteration", 0, 0, "mine").at(20).range_pop("mine");
    write_file(file, "range iteration kind step\nrange \"my gather\" category all_gather\n"
                     "module lora.* category lora_state\n");
  }
  std::string steps() {
    return shardledger({"query", "SELECT count(*) FROM step", run, "--csv"}).out;
  }
  TemporaryDirectory directory;
  std::string run = directory / "run", file = directory / "my.rules";
};

TEST_F(Rules, IngestUsesThemAndLaterIngestsUseTheCopy) {
  EXPECT_EQ(steps(), "count(*)\n0\n");
  CommandResult result = shardledger({"ingest", run, "--rules", file});
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(steps(), "count(*)\n1\n");
  EXPECT_EQ(read_file(run + "/rules"), read_file(file));
  std::filesystem::remove(run + "/ledger.sqlite");
  EXPECT_EQ(steps(), "count(*)\n1\n");
}

TEST_F(Rules, AMistakeEndsIngestBeforeItBegins) {
  write_file(file, "range iteration kind step\nrange x kind foward\n");
  CommandResult result = shardledger({"ingest", run, "--rules", file});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.error.find("shardledger: " + file + ":2: there is no kind 'foward'; did you mean 'forward'?"), 0u)
      << result.error;
  EXPECT_FALSE(std::filesystem::exists(run + "/ledger.sqlite"));
  EXPECT_FALSE(std::filesystem::exists(run + "/rules"));
}

TEST_F(Rules, AMistakeEndsRunBeforeTheJobStarts) {
  write_file(file, "rang x kind step\n");
  std::string mark = directory / "ran";
  CommandResult result = shardledger({"run", "-o", directory / "new", "--rules", file, "--", "touch", mark});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.error, "my.rules:1: ")) << result.error;
  EXPECT_FALSE(std::filesystem::exists(mark));
  EXPECT_FALSE(std::filesystem::exists(directory / "new"));
}

TEST_F(Rules, RunKeepsThemBesideTheLogsFromTheStart) {
  std::string out = directory / "new", seen = directory / "seen";
  shardledger({"run", "-o", out, "--rules", file, "--", "cp", out + "/rules", seen});
  EXPECT_EQ(read_file(seen), read_file(file));
  EXPECT_FALSE(std::filesystem::exists(out)) << "nothing was recorded, so nothing stays";
}

TEST_F(Rules, ARunDirectoryThatCannotBeWrittenStillGivesALedgerElsewhere) {
  std::filesystem::permissions(directory.path, std::filesystem::perms::all);
  std::filesystem::permissions(run + "/host-1-1", std::filesystem::perms::owner_all |
                                                      std::filesystem::perms::others_read |
                                                      std::filesystem::perms::others_exec);
  for (const auto &entry : std::filesystem::directory_iterator(run + "/host-1-1"))
    std::filesystem::permissions(entry.path(), std::filesystem::perms::all);
  std::filesystem::permissions(run, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec |
                                        std::filesystem::perms::others_read | std::filesystem::perms::others_exec);
  std::filesystem::permissions(file, std::filesystem::perms::all);
  CommandOptions nobody;
  nobody.unprivileged = true;
  std::string ledger = directory / "elsewhere.sqlite";
  CommandResult result = shardledger({"ingest", run, "-o", ledger, "--rules", file}, nobody);
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(contains(result.error, "a copy of the rules can't be kept in " + run)) << result.error;
  EXPECT_EQ(shardledger({"query", "SELECT count(*) FROM step", ledger, "--csv"}).out, "count(*)\n1\n");
}

TEST_F(Rules, TheTableInForceStartsWithOnesOwn) {
  ASSERT_EQ(shardledger({"ingest", run, "--rules", file}).status, 0);
  CommandResult result = shardledger({"rules", run, "--limit", "all"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.error, "");
  size_t own = result.out.find("my gather"), table = result.out.find("FSDP::all_gather_copy_out"),
         tag = result.out.find("\ntag "), user = result.out.find("\nuser_range "), none = result.out.find("\nnone ");
  EXPECT_LT(own, table);
  EXPECT_LT(table, tag);
  EXPECT_LT(tag, user);
  EXPECT_LT(user, none);
  EXPECT_NE(none, std::string::npos);
  EXPECT_TRUE(contains(result.out, "made in FSDP::all_gather_copy_out and outlives it")) << "what each rule means";
  EXPECT_TRUE(contains(result.out, "workspace/cublas_workspace")) << result.out;
  EXPECT_TRUE(contains(result.out, "lora_state"));
  EXPECT_FALSE(contains(result.out, "\\x")) << result.out;
  EXPECT_TRUE(contains(result.out, "push/pop")) << "kinds are explained";
  EXPECT_TRUE(contains(shardledger({"rules", run + "/ledger.sqlite"}).out, "my gather")) << "a ledger has them, too";
}

TEST_F(Rules, AFileIsChecked) {
  EXPECT_TRUE(contains(shardledger({"rules", file}).out, "lora.*"));
  write_file(file, "module x category activatoin\n");
  CommandResult result = shardledger({"rules", file});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.error, "my.rules:1: ")) << result.error;
  EXPECT_TRUE(contains(result.error, "did you mean 'activation'?")) << result.error;
  EXPECT_EQ(shardledger({"rules", directory / "nowhere"}).status, 2);
}

TEST_F(Rules, WithoutOnesOwnTheBuiltInOnesAreShown) {
  CommandOptions elsewhere;
  elsewhere.directory = directory.path;
  CommandResult result = shardledger({"rules"}, elsewhere);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.find("No rules of your own"), 0u);
}

TEST_F(Rules, DataHasOneRowARule) {
  std::string csv = shardledger({"rules", file, "--csv"}).out;
  EXPECT_EQ(csv.find("table,rule,pattern,kind,module,category,meaning\n"
                     "range,line 1,iteration,step,,,a range of this name\n"
                     "category,line 2,my gather,,,all_gather,a range of this name\n"
                     "category,line 3,lora.*,,,lora_state,a module of this name\n"
                     "range,built in,"),
            0u)
      << csv;
  EXPECT_TRUE(contains(csv, "\nattribution,none,,,,unattributed,\"made outside of steps and modules")) << csv;
}

} // namespace
