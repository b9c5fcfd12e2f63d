#include "ledger_rows.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

extern "C" {
#include "storage/tables/db.h"
}

/* Tests read millions of cells, some of them where each string costs as sanitizers make it: so no list of cells a row.
 */
template <typename Function> static void each_row(const std::string &path, const std::string &sql, Function take) {
  sl_error error{};
  sl_db *db = nullptr;
  sl_statement *statement = nullptr;
  if (sl_db_open(path.c_str(), SL_DB_READ, &db, &error) == 0 && sl_db_prepare(db, sql.c_str(), &statement, &error) == 0)
    while (sl_statement_step(statement, &error) > 0)
      take(statement, sl_column_count(statement));
  EXPECT_STREQ(error.text, "") << sql;
  sl_statement_close(statement);
  sl_db_close(db);
}

std::vector<std::vector<std::string>> ledger_cells(const std::string &path, const std::string &sql) {
  std::vector<std::vector<std::string>> found;
  each_row(path, sql, [&](sl_statement *statement, int columns) {
    found.emplace_back();
    for (int i = 0; i < columns; i++)
      found.back().push_back(sl_column_text(statement, i));
  });
  return found;
}

std::vector<std::string> ledger_rows(const std::string &path, const std::string &sql) {
  std::vector<std::string> found;
  std::string row;
  each_row(path, sql, [&](sl_statement *statement, int columns) {
    row.clear();
    for (int i = 0; i < columns; i++) {
      if (i)
        row += '|';
      row += sl_column_text(statement, i);
    }
    found.push_back(row);
  });
  return found;
}

std::vector<std::string> ledger_dump(const std::string &path) {
  std::vector<std::string> found;
  for (const auto &object : ledger_cells(path, "SELECT name, type, sql FROM sqlite_schema ORDER BY name")) {
    found.push_back(object[2]);
    if (object[1] != "table")
      continue;
    const bool has_rowid = object[2].find("WITHOUT ROWID") == std::string::npos;
    for (std::string &row :
         ledger_rows(path, "SELECT '" + object[0] + "', " + (has_rowid ? "rowid, " : "") + "* FROM " + object[0]))
      found.push_back(std::move(row));
  }
  return found;
}

std::vector<std::string> ledger_contradictions(const std::string &path) {
  const std::string told = path + ".contradictions";
  const std::string command = "cd '" SL_TEST_DATA "/../gpu' && python3 -B -c 'import sqlite3, sys; "
                              "from checks.consistency import contradictions; "
                              "found = contradictions(sqlite3.connect(sys.argv[1])); "
                              "[print(what, count, sep=\": \") for what, count in found.items()]' '" +
                              path + "' > '" + told + "'";
  EXPECT_EQ(system(command.c_str()), 0) << command;
  std::vector<std::string> found;
  std::ifstream lines(told);
  for (std::string line; std::getline(lines, line);)
    found.push_back(line);
  remove(told.c_str());
  return found;
}
