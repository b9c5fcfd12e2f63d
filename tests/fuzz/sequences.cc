/*
 * Calls in an order that a program could make or could not, made into a ledger whose rules are asked then. Other than
 * in ingest.cc every event is sound by itself: this is about what ranges, steps and allocations do to each other.
 *
 * The first byte says how: bit 0, legal calls only; bit 1, the rows of all steps. call_sequence.cc reads the rest.
 */
#include "fuzz.h"

#include "call_sequence.h"
#include "commands.h"

extern "C" {
#include "storage/ledger.h"
}

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sqlite3.h>
#include <vector>

struct Rule {
  bool always; /* also where events contradict each other */
  std::string name, query;
};

static std::string directory, ledger;
static std::vector<Rule> rules;

static void rules_read() {
  std::ifstream lines(SL_CONSISTENCY_RULES);
  for (std::string line; std::getline(lines, line);) {
    const bool always = line.compare(0, 11, "-- always: ") == 0, sound = line.compare(0, 10, "-- sound: ") == 0;
    if (always || sound)
      rules.push_back({always, line.substr(always ? 11 : 10), ""});
    else if (!rules.empty())
      rules.back().query += line + "\n";
  }
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  directory = scratch_directory("sequences");
  ledger = directory + "/ledger.sqlite";
  rules_read();
  return rules.size() > 20 ? 0 : 1;
}

/* Where stderr is closed, -close_fd_mask=0 shows it. */
static void fail(const std::string &what, const std::string &why) {
  fprintf(stderr, "%s: %s\n", what.c_str(), why.c_str());
  abort();
}

static void rules_check(bool legal, bool keep_all) {
  sqlite3 *db = nullptr;
  if (sqlite3_open_v2(ledger.c_str(), &db, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK)
    fail("ledger", "can't be opened");
  for (const Rule &rule : rules) {
    if (!rule.always && !(legal && keep_all))
      continue;
    sqlite3_stmt *statement = nullptr;
    if (sqlite3_prepare_v2(db, rule.query.c_str(), -1, &statement, nullptr) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
      fail(rule.name, sqlite3_errmsg(db));
    if (const int count = sqlite3_column_int(statement, 0))
      fail(rule.name, std::to_string(count) + " contradict");
    sqlite3_finalize(statement);
  }
  sqlite3_close(db);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  Input input(data, size);
  const uint8_t how = input.number<uint8_t>();
  const bool legal = how & 1;
  LogBuilder log(directory + "/node-1-1");
  CallSequence(log, legal).play(input);
  log.finish();
  sl_error note = {}, error = {};
  sl_ledger_options options = {};
  options.keep_all = how & 2;
  if (sl_ledger_build(directory.c_str(), ledger.c_str(), &options, &note, &error) < 0)
    fail("the ledger is not built", error.text);
  rules_check(legal, options.keep_all);
  if (how & 4)
    command_run(how / 8, ledger);
  return 0;
}
