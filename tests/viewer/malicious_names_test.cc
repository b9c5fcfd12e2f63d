/* Names in a ledger come from programs that nobody vetted; no output may turn them into more than text. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"

#include <gtest/gtest.h>

namespace {

const std::string escape = "\033]0;title\007\033[2J", formula = "=HYPERLINK(\"http://evil\")", quote = "a\"b,c'd";

class MaliciousNames : public testing::Test {
protected:
  void SetUp() override {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    ledger.sql("UPDATE rank SET host = '@SUM(1)', torch_version = '\x1b[31m2.11', device_name = '-cmd'");
    int64_t root = ledger.module(0, "", escape);
    int64_t module = ledger.module(0, formula, quote, root);
    ledger.module(0, "\xff\xfe",
                  "\xc2\x9b"
                  "31m",
                  root);
    int64_t phase = ledger.phase(0, 0, "user", module, escape);
    LedgerBuilder::Categories categories = {{"'); DROP TABLE step; --", 3 * mib}, {escape, 2 * mib}, {formula, mib}};
    ledger.step(0, 0, 6 * mib, phase, module).peak(0, 0, 0, "step", categories);
    ledger.peak(0, 0, module, "forward", categories, mib).peak(0, 0, root, escape, categories, mib);
    ledger.owner(0, 0, module, escape, formula, mib, 1);
    ledger.snapshot(0, 0, module, escape, categories).snapshot(0, 0, root, "Peak Forward", categories);
    ledger.source(0, escape, "failed", formula).gap(0, formula, 1, escape);
  }
  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite";

  const std::vector<std::vector<std::string>> commands = {
      {"info", path},
      {"peaks", path},
      {"peaks", path, "--by", "module"},
      {"peaks", path, "--by", "category"},
      {"peaks", path, "--by", "rank"},
      {"snapshots", path},
      {"query", "SELECT fqn, class, host, torch_version AS \"" + escape + "\" FROM module, rank", path},
  };
};

/* Control bytes other than line breaks (and those of our own colours, which are off without a terminal). */
bool has_control_bytes(const std::string &text) {
  for (unsigned char c : text)
    if ((c < 0x20 && c != '\n') || c == 0x7f)
      return true;
  return text.find("\xc2\x9b") != std::string::npos;
}

TEST_F(MaliciousNames, NoOutputOfAnyCommandHasControlBytes) {
  for (auto command : commands)
    for (std::string format : {"", "--csv", "--json"}) {
      if (!format.empty())
        command.push_back(format);
      CommandResult result = shardledger(command);
      EXPECT_EQ(result.status, 0) << command[0] << result.error;
      EXPECT_NE(result.out, "");
      EXPECT_FALSE(has_control_bytes(result.out + result.error)) << command[0] << format << result.out;
      if (!format.empty())
        command.pop_back();
    }
}

TEST_F(MaliciousNames, SpreadsheetsSeeTextInsteadOfFormulas) {
  std::string csv = shardledger({"peaks", path, "--by", "module", "--csv"}).out;
  EXPECT_NE(csv.find(",\"'=HYPERLINK(\"\"http://evil\"\")\",\"a\"\"b,c'd\","), std::string::npos) << csv;
  std::string ranks = shardledger({"info", path, "--csv"}).out;
  EXPECT_NE(ranks.find(",\"'@SUM(1)\","), std::string::npos) << ranks;
  EXPECT_NE(ranks.find(",\"'-cmd\","), std::string::npos);
}

TEST_F(MaliciousNames, NumbersKeepTheirSignInCsv) {
  EXPECT_EQ(
      shardledger({"query", "SELECT -5 AS a, '-5' AS b, '+1.5e3' AS c, '-x' AS d, '-inf' AS e", path, "--csv"}).out,
      "a,b,c,d,e\n-5,-5,+1.5e3,\"'-x\",\"'-inf\"\n");
}

TEST_F(MaliciousNames, JsonKeepsTheNamesExactly) {
  std::string json = shardledger({"query", "SELECT class FROM module WHERE fqn = ''", path, "--json"}).out;
  EXPECT_EQ(json, "[\n {\"class\": \"\\u001b]0;title\\u0007\\u001b[2J\"}\n]\n");
  json = shardledger({"query", "SELECT fqn FROM module WHERE id = 3", path, "--json"}).out;
  EXPECT_EQ(json, "[\n {\"fqn\": \"\\ufffd\\ufffd\"}\n]\n");
}

TEST_F(MaliciousNames, NorDoErrorsReachATerminal) {
  for (const std::vector<std::string> &arguments : std::vector<std::vector<std::string>>{{escape},
                                                                                         {"peaks", escape},
                                                                                         {"peaks", "--" + escape},
                                                                                         {"query", escape, path},
                                                                                         {"dump", "--type", escape}}) {
    CommandResult result = shardledger(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_FALSE(has_control_bytes(result.error)) << result.error;
  }
}

TEST_F(MaliciousNames, ColoursAreForTerminalsThatWantThem) {
  CommandOptions terminal;
  terminal.terminal = true;
  EXPECT_NE(shardledger({"peaks", path}, terminal).out.find("\033[1m"), std::string::npos);
  EXPECT_EQ(shardledger({"peaks", path}, terminal).out.find("\033]0;"), std::string::npos);
  terminal.environment["NO_COLOR"] = "1";
  EXPECT_EQ(shardledger({"peaks", path}, terminal).out.find('\033'), std::string::npos);
  EXPECT_EQ(shardledger({"peaks", path}).out.find('\033'), std::string::npos);
}

} // namespace
