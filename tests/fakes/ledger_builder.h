/*
 * Ledgers for tests of whatever reads them: the real schema and views, with rows that a test can name. Every method
 * fills what it is not told with something plausible, and fails the test when SQLite refuses a row.
 */
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

struct sl_db;

constexpr int64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

class LedgerBuilder {
public:
  explicit LedgerBuilder(const std::string &path);
  ~LedgerBuilder();
  LedgerBuilder(const LedgerBuilder &) = delete;
  LedgerBuilder &operator=(const LedgerBuilder &) = delete;

  /* Category to bytes. */
  using Categories = std::map<std::string, int64_t>;

  LedgerBuilder &rank(int rank, int world_size = 1, int64_t events_lost = 0);
  /* Returns its id. parent 0: a root. */
  int64_t module(int rank, const std::string &fqn, const std::string &class_name, int64_t parent = 0);
  /* A phase of one second; returns its id. */
  int64_t phase(int rank, int step, const std::string &kind, int64_t module, const std::string &name = "");
  /* peak_phase and peak_module 0: none. same_as -1: own rows. */
  LedgerBuilder &step(int rank, int step, int64_t allocated_bytes, int64_t peak_phase = 0, int64_t peak_module = 0,
                      int same_as = -1);
  /*
   * A period outside of steps, after a step; after_step -1: the setup, and with kind "whole" that of a job without
   * steps. name: what ran in it the longest, "": nothing. Its highest point is the sum of the categories. */
  LedgerBuilder &between(int rank, int after_step, const std::string &name, const Categories &categories,
                         int64_t peak_phase = 0, const std::string &kind = "");
  /* Whom a part of a period's peak belongs to; period as between's after_step has it. */
  LedgerBuilder &owner_between(int rank, int after_step, int64_t module, const std::string &category,
                               const std::string &phase, int64_t bytes, int64_t allocations);
  /* module 0: the whole step. allocated_bytes is the sum of the categories. */
  LedgerBuilder &peak(int rank, int step, int64_t module, const std::string &phase, const Categories &categories,
                      int64_t own_bytes = 0);
  LedgerBuilder &owner(int rank, int step, int64_t module, const std::string &category, const std::string &phase,
                       int64_t bytes, int64_t allocations);
  LedgerBuilder &snapshot(int rank, int step, int64_t module, const std::string &state, const Categories &categories,
                          int call = 0);
  LedgerBuilder &source(int rank, const std::string &source, const std::string &state, const std::string &reason);
  LedgerBuilder &gap(int rank, const std::string &source, int64_t lost, const std::string &reason);
  LedgerBuilder &allocation(int rank, int step, int64_t bytes, const std::string &category, int64_t module = 0);
  /* Anything else. */
  LedgerBuilder &sql(const std::string &text);

  int64_t now() const {
    return clock;
  }

private:
  struct sl_db *db = nullptr;
  int64_t clock = 1764279603000000000; /* each row is a millisecond later than the one before */
  int64_t tick();
  int64_t last_id();
  void insert(const std::string &table, const std::vector<std::string> &columns,
              const std::vector<std::string> &literals);
};

/* Sums a ledger up again whose steps or collectives were changed. A LedgerBuilder does so at its end. */
extern const std::string ledger_sums_sql;

/*
 * Two ranks, four steps, a root and two blocks: step 3's peak is the highest, 1.78 GiB on rank 0 in the backward of
 * blocks.1; step 2 repeats step 1. Nothing is lost and nothing is unattributed.
 */
void build_two_rank_run(const std::string &path);
