/* What a ledger answers, for tests that look into one. An error of SQLite's fails the test. */
#pragma once

#include <string>
#include <vector>

/* The cells as text; NULL is empty. */
std::vector<std::vector<std::string>> ledger_cells(const std::string &path, const std::string &sql);

/* Each row as one text, its cells by '|'. */
std::vector<std::string> ledger_rows(const std::string &path, const std::string &sql);

/* All that a ledger has, as lines: its schema, and every row of every table, in order and with its rowid. */
std::vector<std::string> ledger_dump(const std::string &path);

/* Which of the rules in tests/gpu/checks/consistency.py do not hold, and how often: "rule: times". */
std::vector<std::string> ledger_contradictions(const std::string &path);
