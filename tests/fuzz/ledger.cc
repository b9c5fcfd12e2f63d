/*
 * Ledgers that were not made by us, opened by every command. The input is either a file as it is, which starts like
 * every SQLite file, or a list of changes to a sound ledger: values of the wrong type, out of range, missing.
 */
#include "fuzz.h"

#include "commands.h"
#include "fakes/ledger_builder.h"

#include <cstdlib>
#include <filesystem>
#include <sqlite3.h>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;

static std::string sound, ledger;
static std::vector<std::pair<std::string, std::vector<std::string>>> tables; /* with their columns */

static std::vector<std::string> column(sqlite3 *db, const std::string &sql) {
  std::vector<std::string> out;
  sqlite3_stmt *statement = nullptr;
  sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr);
  while (sqlite3_step(statement) == SQLITE_ROW)
    out.push_back((const char *)sqlite3_column_text(statement, 0));
  sqlite3_finalize(statement);
  return out;
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  const std::string directory = scratch_directory("ledger");
  sound = directory + "/sound.sqlite";
  ledger = directory + "/ledger.sqlite";
  build_two_rank_run(sound);
  sqlite3 *db = nullptr;
  if (sqlite3_open(sound.c_str(), &db) != SQLITE_OK)
    abort();
  for (const std::string &name : column(db, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"))
    tables.emplace_back(name, column(db, "SELECT name FROM pragma_table_info('" + name + "')"));
  sqlite3_close(db);
  return 0;
}

static void value_bind(Input &input, sqlite3_stmt *statement, int index) {
  switch (input.number<uint8_t>() % 6) {
  case 0: sqlite3_bind_null(statement, index); break;
  case 1: sqlite3_bind_int64(statement, index, input.number<int64_t>()); break;
  case 2: sqlite3_bind_int64(statement, index, input.number<int8_t>()); break;
  case 3: sqlite3_bind_double(statement, index, input.number<double>()); break;
  case 4: {
    const std::string text = input.bytes(input.number<uint8_t>());
    sqlite3_bind_text(statement, index, text.data(), (int)text.size(), SQLITE_TRANSIENT);
    break;
  }
  default: {
    const std::string blob = input.bytes(input.number<uint8_t>());
    sqlite3_bind_blob(statement, index, blob.data(), (int)blob.size(), SQLITE_TRANSIENT);
  }
  }
}

static void change(Input &input, sqlite3 *db) {
  const auto &table = tables[input.number<uint8_t>() % tables.size()];
  const auto &columns = table.second;
  const uint8_t what = input.number<uint8_t>();
  std::string sql;
  if (what % 4 == 0) { /* a new row; without rowid and with constraints it may be refused */
    sql = "INSERT OR IGNORE INTO \"" + table.first + "\" VALUES(?";
    for (size_t i = 1; i < columns.size(); i++)
      sql += ",?";
    sql += ")";
  } else {
    sql = "UPDATE OR IGNORE \"" + table.first + "\" SET \"" + columns[input.number<uint8_t>() % columns.size()] +
          "\" = ?";
    if (what % 4 != 1)
      sql += " WHERE abs(random()) % 3 = 0";
  }
  sqlite3_stmt *statement = nullptr;
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK)
    for (int i = 1; i <= sqlite3_bind_parameter_count(statement); i++)
      value_bind(input, statement, i);
  sqlite3_step(statement);
  sqlite3_finalize(statement);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  if (size > 15 && memcmp(data, "SQLite format 3", 15) == 0) {
    write_file(ledger, input.rest());
  } else {
    fs::copy_file(sound, ledger, fs::copy_options::overwrite_existing);
    sqlite3 *db = nullptr;
    sqlite3_open(ledger.c_str(), &db);
    sqlite3_exec(db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA foreign_keys=OFF; BEGIN", nullptr,
                 nullptr, nullptr);
    sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, (int)size + 1, db); /* the same input, the same ledger */
    while (!input.empty())
      change(input, db);
    sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr);
    sqlite3_close(db);
  }
  /* A few of the commands, others from input to input: all of them would take most of the time. */
  const size_t first = std::hash<std::string_view>()({(const char *)data, size});
  for (size_t i = 0; i < 3; i++)
    command_run(first + i * 7, ledger);
  return 0;
}
