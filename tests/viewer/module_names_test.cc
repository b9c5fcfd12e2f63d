/* Models in one process are told apart by words wherever modules have names. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* A policy and its reference of one class, and a critic of another that has a module of the same name as theirs. */
class SeveralModels : public testing::Test {
protected:
  void build(int rank, LedgerBuilder &ledger) {
    ledger.rank(rank, 2).step(rank, 0, gib);
    for (const char *model : {"GPT", "GPT", "Critic"}) {
      const int64_t root = ledger.module(rank, "", model), head = ledger.module(rank, "head", "Linear", root);
      ledger.peak(rank, 0, root, "forward", {{"param", gib}}, mib)
          .peak(rank, 0, head, "forward", {{"param", gib}}, mib);
      ledger.owner(rank, 0, head, "param", "forward", 300 * mib, 3);
    }
    const int64_t value = ledger.module(rank, "value", "Linear", ledger.module(rank, "", "Reward"));
    ledger.peak(rank, 0, value, "forward", {{"param", gib}}, mib).peak(rank, 0, 0, "step", {{"param", gib}});
    ledger.sql("UPDATE module SET root_id = coalesce(parent_id, id)");
  }
  std::string ask(const std::string &sql) {
    return shardledger({"query", sql, path, "--csv"}).out;
  }

  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";
};

TEST_F(SeveralModels, RootsOfOneClassHaveNumbersInTheirOrderTheSameOnEachRank) {
  {
    LedgerBuilder ledger(path);
    build(0, ledger);
    build(1, ledger);
  }
  for (const char *rank : {"0", "1"})
    EXPECT_EQ(
        ask(std::string("SELECT group_concat(name, ' ') AS names FROM (SELECT name FROM module_name WHERE rank = ") +
            rank + " ORDER BY id)"),
        "names\nGPT (1) GPT (1).head GPT (2) GPT (2).head Critic Critic.head Reward Reward.value\n");
}

TEST_F(SeveralModels, AShortNameHasItsModelWhereAnotherModelHasThatName) {
  {
    LedgerBuilder ledger(path);
    build(0, ledger);
  }
  EXPECT_EQ(ask("SELECT group_concat(label, ' ') AS labels FROM (SELECT label FROM module_name ORDER BY id)"),
            "labels\nGPT (1) GPT (1).head GPT (2) GPT (2).head Critic Critic.head Reward value\n");
}

TEST_F(SeveralModels, TablesShowThemAndDataHaveIds) {
  {
    LedgerBuilder ledger(path);
    build(0, ledger);
  }
  for (const std::vector<std::string> &command :
       {std::vector<std::string>{"peaks", path}, std::vector<std::string>{"peaks", "--by", "module", path}}) {
    std::string text = shardledger(command).out;
    for (const char *name : {" GPT (1) ", " GPT (1).head ", " GPT (2) ", " GPT (2).head ", " Critic.head ", " value "})
      EXPECT_TRUE(contains(text, name)) << name << text;
  }
  std::string csv = shardledger({"peaks", "--by", "module", path, "--csv"}).out;
  EXPECT_TRUE(contains(csv, ",step 0,2\n") && contains(csv, ",step 0,4\n")) << csv;
}

TEST_F(SeveralModels, TheTrackersTableKeepsTheTrackersWords) {
  {
    LedgerBuilder ledger(path);
    build(0, ledger);
    ledger.snapshot(0, 0, 4, "Before Pre-Forward", {{"param", gib}}).sql("UPDATE snapshot SET tracker_bytes = bytes");
  }
  EXPECT_EQ(ask("SELECT DISTINCT fqn FROM fsdp_snapshot"), "fqn\nFSDPGPT.head\n");
}

} // namespace
