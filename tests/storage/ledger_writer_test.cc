// Rows on their way into a ledger: many go in by one statement, as if each went by itself.
#include "fakes/ledger_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#define class class_name // a column of `module`
extern "C" {
#include "storage/tables/ledger_tables.h"
#include "storage/tables/ledger_writer.h"
}
#undef class

namespace {

class LedgerWriter : public testing::Test {
protected:
  void SetUp() override {
    std::filesystem::remove(path);
    ASSERT_EQ(sl_ledger_writer_open(path.c_str(), &writer, &error), 0) << error.text;
    ASSERT_EQ(sl_ledger_writer_begin(writer, 0, &error), 0) << error.text;
  }
  void TearDown() override {
    sl_ledger_writer_close(writer);
    sl_rows_free(&rows);
    std::filesystem::remove(path);
  }

  // A gap that lost so many; its rowid says when it went in.
  int gap_put(sl_rows *to, int64_t lost) {
    sl_gap_cells cells = {};
    cells.lost = lost;
    cells.source = cells.reason = "";
    return to ? sl_put_gap_to(writer, to, &cells, &error) : sl_put_gap(writer, &cells, &error);
  }

  int snapshot_put(uint64_t module, const char *state, const char *category, int64_t bytes) {
    sl_snapshot_cells cells = {};
    cells.module_id = module;
    cells.state = state;
    cells.category = category;
    cells.bytes = bytes;
    return sl_put_snapshot_to(writer, sl_ledger_writer_rows(writer), &cells, &error);
  }

  std::vector<std::string> ask(const std::string &sql) {
    EXPECT_EQ(sl_ledger_writer_commit(writer, &error), 0) << error.text;
    return ledger_rows(path, sql);
  }

  const std::string path =
      std::filesystem::temp_directory_path() / ("ledger_writer_test." + std::to_string(getpid()) + ".sqlite");
  sl_ledger_writer *writer = nullptr;
  sl_rows rows = {};
  sl_error error = {};
};

TEST_F(LedgerWriter, RowsGoInInTheOrderInWhichTheyWerePut) {
  const int64_t count = 10000; // more than go together
  for (int64_t i = 0; i < count; i++) {
    const bool at_once = i % 997 == 0;
    ASSERT_EQ(gap_put(at_once ? nullptr : sl_ledger_writer_rows(writer), i), 0) << error.text;
  }
  ASSERT_EQ(gap_put(&rows, count + 1), 0) << error.text;
  ASSERT_EQ(gap_put(sl_ledger_writer_rows(writer), count), 0) << error.text;
  ASSERT_EQ(sl_ledger_writer_put(writer, &rows, &error), 0) << error.text;
  ASSERT_EQ(sl_ledger_writer_put(writer, &rows, &error), 0) << error.text; // they are in already
  EXPECT_EQ(ask("SELECT count(*), max(lost), sum(lost <> rowid - 1) FROM gap"),
            std::vector<std::string>{std::to_string(count + 2) + "|" + std::to_string(count + 1) + "|0"});
}

TEST_F(LedgerWriter, OfRowsWithOneKeyTheLastCounts) {
  for (int64_t i = 0; i < 1000; i++) // many go together, and by number a key is not where it is by its letters
    ASSERT_EQ(snapshot_put(1000 - i % 300, i % 2 ? "b" : "a", "other", i), 0) << error.text;
  ASSERT_EQ(snapshot_put(7, "a", "other", 3), 0) << error.text;
  ASSERT_EQ(snapshot_put(7, "a", "activation", 2), 0) << error.text;
  ASSERT_EQ(snapshot_put(7, "a", "other", 1), 0) << error.text;
  EXPECT_EQ(ask("SELECT count(*), sum(bytes) FROM snapshot"),
            std::vector<std::string>{"302|" + std::to_string((700 + 999) * 300 / 2 + 3)});
}

TEST_F(LedgerWriter, ARowThatATableRefusesFailsWithItsStatement) {
  ASSERT_EQ(gap_put(sl_ledger_writer_rows(writer), 1), 0) << error.text;
  sl_gap_cells cells = {};
  cells.source = "";
  cells.reason = nullptr;
  EXPECT_LT(sl_put_gap(writer, &cells, &error), 0);
  EXPECT_NE(std::string(error.text).find("INTO gap("), std::string::npos) << error.text;
}

} // namespace
