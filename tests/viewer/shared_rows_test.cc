/* Ranks that did the same store their rows once: every table and view has the rows that it would have otherwise. */
#include "fakes/command.h"
#include "fakes/fleet.h"
#include "fakes/ledger_rows.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;
constexpr uint64_t MiB = 1 << 20;

void change(const std::string &path, const std::string &sql) {
  sqlite3 *db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

/* 24 ranks, of which some are like others; and the same logs in two directories of ranks too few to share anything. */
class SharedRows : public testing::Test {
protected:
  static void SetUpTestSuite() {
    directory = new TemporaryDirectory;
    Fleet fleet;
    fleet.ranks = 24;
    fleet.steps = 13;
    fleet.stages = 2;
    fleet.more = {{{5}, 32 * MiB, 1, 3}};
    fleet.leaks = {{{13, 14}, 4 * MiB, 2}};
    fleet.late = {{{7}, 300'000}};
    fleet.clocks_ns = {{1, 60'000'000'000}, {2, -3'000'000}};
    fleet.deaths = {{{9}, Fleet::End::refused, 11, 0}};
    write_fleet(path("run"), fleet);
    ingest("run", "shared", "2");
    for (const auto &process : fs::directory_iterator(path("run"))) {
      if (!process.is_directory())
        continue;
      const std::string name = process.path().filename();
      const int rank = std::stoi(name.substr(name.find("-1") + 1)) - 1000;
      const fs::path half = path(rank < 12 ? "first" : "second");
      fs::create_directories(half);
      fs::copy(process.path(), half / name, fs::copy_options::recursive);
    }
    ingest("first", "first", "2");
    ingest("second", "second", "2");
  }
  static void TearDownTestSuite() {
    delete directory;
  }
  static std::string path(const std::string &name) {
    return directory->path + "/" + name;
  }
  static std::string ledger(const std::string &name) {
    return path(name + ".sqlite");
  }
  static void ingest(const std::string &run, const std::string &name, const std::string &jobs) {
    CommandResult done = shardledger({"ingest", path(run), "-o", ledger(name), "--jobs", jobs});
    ASSERT_EQ(done.status, 0) << done.error;
  }
  static Lines shared_tables() {
    return ledger_rows(ledger("shared"), "SELECT substr(name, 5) FROM sqlite_schema WHERE name GLOB 'own_*'");
  }
  /* What the command answers, which reads such tables in a way of its own. */
  static std::string answer(const std::string &sql) {
    CommandResult result = shardledger({"query", sql, ledger("shared"), "--csv"});
    EXPECT_EQ(result.status, 0) << sql << ": " << result.error;
    return result.out;
  }
  static TemporaryDirectory *directory;
};
TemporaryDirectory *SharedRows::directory;

TEST_F(SharedRows, AreStoredOnce) {
  EXPECT_EQ(shared_tables().size(), 23u);
  /* Those with their own: 0, the late one, the larger one, the leaking one and the one that died; a stage has its own
   * communicator. */
  EXPECT_EQ(ledger_rows(ledger("shared"), "SELECT DISTINCT rank FROM own_phase ORDER BY rank"),
            ledger_rows(ledger("shared"),
                        "SELECT rank FROM rank_rows WHERE tables = 'timed' AND same_as = rank ORDER BY rank"));
  EXPECT_EQ(ledger_rows(ledger("shared"),
                        "SELECT rank FROM rank_rows WHERE tables = 'timed' AND same_as = rank ORDER BY rank"),
            (Lines{"0", "5", "7", "9", "12", "13"}));
  EXPECT_EQ(ledger_rows(ledger("shared"),
                        "SELECT rank, same_as, later_ns FROM rank_rows WHERE tables = 'timed' AND rank IN (8, 14, 17)"),
            (Lines{"8|0|60000000000", "14|13|0", "17|12|-60003000000"}));
}

TEST_F(SharedRows, AreThoseOfLedgersThatShareNone) {
  for (const std::string &table : shared_tables()) {
    const std::string sql = "SELECT * FROM " + table;
    std::multiset<std::string> found, wanted;
    for (const std::string &row : ledger_rows(ledger("shared"), sql))
      found.insert(row);
    for (const char *half : {"first", "second"})
      for (const std::string &row : ledger_rows(ledger(half), sql))
        wanted.insert(row);
    EXPECT_EQ(found, wanted) << table;
  }
}

TEST_F(SharedRows, AreSeenByTheCommandAsByAnyOtherReader) {
  for (const std::string &name :
       ledger_rows(ledger("shared"), "SELECT name FROM sqlite_schema WHERE type = 'view' AND name <> 'fsdp_snapshot'"))
    EXPECT_EQ(answer("SELECT (SELECT count(*) FROM (SELECT * FROM temp." + name + " EXCEPT SELECT * FROM main." + name +
                     ")) AS more, (SELECT count(*) FROM (SELECT * FROM main." + name + " EXCEPT SELECT * FROM temp." +
                     name + ")) AS fewer, (SELECT count(*) FROM main." + name + ") = (SELECT count(*) FROM temp." +
                     name + ") AS same"),
              "more,fewer,same\n0,0,1\n")
        << name;
}

TEST_F(SharedRows, AreFoundByAnyCondition) {
  const std::string some_id = ledger_rows(ledger("shared"), "SELECT max(id) FROM phase WHERE rank = 17")[0];
  const std::string some_ns =
      ledger_rows(ledger("shared"), "SELECT max(start_ns) - 400000000 FROM phase WHERE rank = 17")[0];
  for (const std::string &condition : Lines{
           "id = " + some_id,
           "id IN (" + some_id + ", " + some_id + " - 1, 5, NULL)",
           "id > " + some_id,
           "id < " + some_id + " AND rank >= 16",
           "parent_id = " + some_id + " - 3",
           "parent_id IS NULL",
           "parent_id IS NOT NULL AND rank = 3",
           "id IS NOT " + some_id,
           "id = '" + some_id + "'",
           "parent_id IN ('" + some_id + "', '5')",
           "start_ns < '" + some_ns + "' AND end_ns > '5'",
           "rank = 17",
           "rank = '17'",
           "rank = 17.0",
           "rank = 17.5",
           "rank = NULL",
           "rank BETWEEN 7 AND 9 AND kind = 'forward'",
           "kind COLLATE NOCASE = 'FORWARD'",
           "kind > 'g' AND kind <> 'step'",
           "kind = 5",
           "start_ns < " + some_ns,
           "start_ns < " + some_ns + ".5 AND end_ns >= " + some_ns,
           "start_ns <= 9223372036854775807 AND start_ns > -9223372036854775807 - 1",
           "end_ns IS NULL",
           "id = " + some_id + " OR start_ns = " + some_ns + " OR rank = 2",
           "step = 4 AND module_id = " + some_id + " / 1099511627776 * 1099511627776 + 3",
       }) {
    const std::string where = " FROM phase WHERE " + condition;
    const std::string columns =
        "SELECT count(*), sum(rank), sum(id % 1000003), min(start_ns), max(end_ns), sum(parent_id % 1009)";
    std::string main = columns + where;
    main.replace(main.find("phase"), 5, "main.phase");
    EXPECT_EQ(answer(columns + where), answer(main)) << condition;
    std::string as_numbers = condition; /* a text that is a number is compared as one */
    as_numbers.erase(std::remove(as_numbers.begin(), as_numbers.end(), '\''), as_numbers.end());
    if (condition.find("kind") == std::string::npos && as_numbers != condition) {
      EXPECT_EQ(answer(columns + where), answer(columns + " FROM phase WHERE " + as_numbers)) << condition;
    }
  }
  EXPECT_EQ(
      answer("SELECT count(*) AS n, sum(f.rank = s.rank) AS ranks FROM step s JOIN phase f ON f.id = s.peak_phase_id"),
      answer(
          "SELECT count(*) AS n, sum(f.rank = s.rank) AS ranks FROM main.step s JOIN main.phase f ON f.id = s.peak_phase_id"));
}

TEST_F(SharedRows, AreTheSameForAnyNumberOfJobs) {
  ingest("run", "one", "1");
  EXPECT_EQ(ledger_dump(ledger("one")), ledger_dump(ledger("shared")));
}

TEST_F(SharedRows, ArePlainTablesInAJobOfFewRanks) {
  EXPECT_TRUE(ledger_rows(ledger("first"), "SELECT name FROM sqlite_schema WHERE name GLOB 'own_*'").empty());
  EXPECT_EQ(ledger_rows(ledger("first"), "SELECT count(*) FROM rank_rows"), Lines{"0"});
  EXPECT_EQ(ledger_rows(ledger("first"), "SELECT type FROM sqlite_schema WHERE name = 'phase'"), Lines{"table"});
}

TEST_F(SharedRows, AreReadThroughNobodyElsesView) {
  for (const char *sql : {"DROP VIEW phase; CREATE VIEW phase AS SELECT * FROM own_phase",
                          "DROP TABLE own_phase; CREATE VIEW own_phase AS SELECT 1 AS id, 1 AS rank"}) {
    fs::copy_file(ledger("shared"), ledger("changed"), fs::copy_options::overwrite_existing);
    change(ledger("changed"), sql);
    CommandResult result = shardledger({"peaks", ledger("changed")});
    EXPECT_EQ(result.status, 2) << sql;
    EXPECT_NE(result.error.find("phase' is no table in it"), std::string::npos) << result.error;
  }
}

} // namespace
