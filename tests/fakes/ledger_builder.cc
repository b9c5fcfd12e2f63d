#include "ledger_builder.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

extern "C" {
#include "storage/ledger.h"
#include "storage/tables/db.h"
#include "storage/tables/schema.h"
#include "storage/tables/sql_text.h"
}

namespace {

std::string quoted(const std::string &text) {
  char *literal = sqlite3_mprintf("%Q", text.c_str());
  std::string result = literal;
  sqlite3_free(literal);
  return result;
}

std::string number(int64_t value) {
  return std::to_string(value);
}

std::string id_or_null(int64_t id) {
  return id > 0 ? std::to_string(id) : "NULL";
}

/* As ingest numbers them: the setup, step 0, what is between, step 1, … */
int64_t period_of(int step) {
  return 2 * step + 1;
}

int64_t period_after(int step) {
  return 2 * (step + 1);
}

int64_t sum(const LedgerBuilder::Categories &categories) {
  int64_t bytes = 0;
  for (const auto &category : categories)
    bytes += category.second;
  return bytes;
}

} // namespace

const std::string ledger_sums_sql =
    std::string(sl_meetings_sql) +
    "DELETE FROM rank_steps; DELETE FROM rank_collectives; DELETE FROM life;"
    "INSERT INTO life SELECT p.rank, count(*), (SELECT h.period FROM period h WHERE h.rank = p.rank"
    " AND h.peak_allocated_bytes IS NOT NULL ORDER BY h.peak_allocated_bytes DESC, h.period LIMIT 1),"
    " (SELECT h.period FROM period h WHERE h.rank = p.rank AND h.kind = 'step' AND h.peak_allocated_bytes IS NOT NULL"
    " ORDER BY h.peak_allocated_bytes DESC, h.period LIMIT 1), max(peak_requested_bytes), max(peak_allocated_bytes),"
    " max(peak_active_bytes), max(peak_reserved_bytes), max(peak_device_bytes) FROM period p GROUP BY p.rank;"
    "INSERT INTO rank_steps SELECT rank, count(*), count(*) - count(same_as), sum(checked IS 1), sum(checked IS 0),"
    " min(step), max(step) FROM step GROUP BY rank;"
    "INSERT INTO rank_collectives SELECT rank, comm, operation, sum(calls), sum(bytes), sum(timed), sum(duration_ns)"
    " FROM collective_total GROUP BY rank, comm, operation";

LedgerBuilder::LedgerBuilder(const std::string &path) {
  struct sl_error error = {};
  if (sl_db_open(path.c_str(), SL_DB_WRITE, &db, &error) < 0)
    ADD_FAILURE() << error.text;
  sql("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF");
  if (sl_schema_create(db, &error) < 0 || sl_schema_finish(db, &error) < 0)
    ADD_FAILURE() << error.text;
  sql("PRAGMA user_version = " + number(SL_LEDGER_VERSION));
  sql("BEGIN");
}

LedgerBuilder::~LedgerBuilder() {
  sql(ledger_sums_sql);
  sql("COMMIT");
  db = sl_db_close(db);
}

LedgerBuilder &LedgerBuilder::sql(const std::string &text) {
  struct sl_error error = {};
  if (sl_db_execute(db, text.c_str(), &error) < 0)
    ADD_FAILURE() << error.text;
  return *this;
}

int64_t LedgerBuilder::tick() {
  clock += 1000000;
  return clock;
}

int64_t LedgerBuilder::last_id() {
  return sqlite3_last_insert_rowid(sl_db_handle(db));
}

void LedgerBuilder::insert(const std::string &table, const std::vector<std::string> &columns,
                           const std::vector<std::string> &literals) {
  std::string names, values;
  for (size_t i = 0; i < columns.size(); i++) {
    names += (i ? ", " : "") + columns[i];
    values += (i ? ", " : "") + literals[i];
  }
  sql("INSERT INTO " + table + "(" + names + ") VALUES (" + values + ")");
}

LedgerBuilder &LedgerBuilder::rank(int rank, int world_size, int64_t events_lost) {
  insert("rank",
         {"rank", "world_size", "local_rank", "host", "pid", "device", "device_name", "device_bytes", "start_ns",
          "end_ns", "clean_exit", "events", "events_lost", "torch_version", "nccl_version", "cuda_version",
          "allocator_backend", "fidelity"},
         {number(rank), number(world_size), number(rank), "'node1'", number(4000 + rank), number(rank),
          "'NVIDIA H100 80GB HBM3'", number(79 * gib), number(tick()), number(clock + 12000000000), "1", "120000",
          number(events_lost), "'2.11.0'", "'2.28.9'", "'13.0'", "'native'", "'bridge'"});
  return *this;
}

int64_t LedgerBuilder::module(int rank, const std::string &fqn, const std::string &class_name, int64_t parent) {
  insert("module", {"rank", "fqn", "class", "parent_id", "depth", "is_fsdp", "param_bytes", "buffer_bytes"},
         {number(rank), quoted(fqn), quoted(class_name), id_or_null(parent), parent ? "1" : "0", "1", number(64 * mib),
          "0"});
  int64_t id = last_id();
  sql("UPDATE module SET root_id = coalesce(parent_id, id) WHERE id = " + number(id));
  return id;
}

int64_t LedgerBuilder::phase(int rank, int step, const std::string &kind, int64_t module, const std::string &name) {
  insert("phase", {"rank", "tid", "kind", "name", "module_id", "step", "call_index", "start_ns", "end_ns"},
         {number(rank), "4100", quoted(kind), quoted(name.empty() ? kind : name), id_or_null(module), number(step), "0",
          number(tick()), number(clock + 1000000000)});
  return last_id();
}

LedgerBuilder &LedgerBuilder::step(int rank, int step, int64_t allocated_bytes, int64_t peak_phase, int64_t peak_module,
                                   int same_as) {
  insert("period",
         {"rank",
          "period",
          "kind",
          "step",
          "same_as",
          "start_ns",
          "end_ns",
          "peak_ns",
          "peak_phase_id",
          "peak_module_id",
          "peak_requested_bytes",
          "peak_allocated_bytes",
          "peak_active_bytes",
          "peak_reserved_bytes",
          "peak_device_bytes",
          "end_requested_bytes",
          "end_allocated_bytes",
          "end_active_bytes",
          "end_reserved_bytes",
          "checked"},
         {number(rank),
          number(period_of(step)),
          "'step'",
          number(step),
          same_as < 0 ? "NULL" : number(period_of(same_as)),
          number(tick()),
          number(clock + 38000000),
          number(clock + 20000000),
          id_or_null(peak_phase),
          id_or_null(peak_module),
          number(allocated_bytes - 4 * kib),
          number(allocated_bytes),
          number(allocated_bytes + 2 * mib),
          number(allocated_bytes + 512 * mib),
          number(allocated_bytes + 2 * gib),
          number(allocated_bytes / 2),
          number(allocated_bytes / 2),
          number(allocated_bytes / 2),
          number(allocated_bytes + 512 * mib),
          "1"});
  return *this;
}

LedgerBuilder &LedgerBuilder::between(int rank, int after_step, const std::string &name, const Categories &categories,
                                      int64_t peak_phase, const std::string &kind) {
  const std::string period = number(period_after(after_step)), bytes = number(sum(categories)),
                    word = quoted(!kind.empty()    ? kind
                                  : after_step < 0 ? "setup"
                                                   : "between");
  insert(
      "period",
      {"rank", "period", "kind", "step", "name", "start_ns", "end_ns", "peak_ns", "peak_phase_id",
       "peak_requested_bytes", "peak_allocated_bytes", "peak_active_bytes", "peak_reserved_bytes", "peak_device_bytes"},
      {number(rank), period, word, after_step < 0 ? "NULL" : number(after_step), name.empty() ? "NULL" : quoted(name),
       number(tick()), number(clock + 38000000), number(clock + 20000000), id_or_null(peak_phase), bytes, bytes, bytes,
       number(sum(categories) + gib), number(sum(categories) + 3 * gib)});
  insert("peak", {"rank", "period", "phase", "at_ns", "allocated_bytes", "own_bytes"},
         {number(rank), period, word, number(tick()), bytes, "0"});
  for (const auto &category : categories)
    insert("peak_category", {"rank", "period", "phase", "category", "bytes"},
           {number(rank), period, word, quoted(category.first), number(category.second)});
  return *this;
}

LedgerBuilder &LedgerBuilder::owner_between(int rank, int after_step, int64_t module, const std::string &category,
                                            const std::string &phase, int64_t bytes, int64_t allocations) {
  insert("peak_owner", {"rank", "period", "category", "module_id", "phase", "bytes", "allocations"},
         {number(rank), number(period_after(after_step)), quoted(category), id_or_null(module),
          phase.empty() ? "NULL" : quoted(phase), number(bytes), number(allocations)});
  return *this;
}

LedgerBuilder &LedgerBuilder::peak(int rank, int step, int64_t module, const std::string &phase,
                                   const Categories &categories, int64_t own_bytes) {
  insert("peak", {"rank", "period", "step", "module_id", "phase", "at_ns", "allocated_bytes", "own_bytes"},
         {number(rank), number(period_of(step)), number(step), id_or_null(module), quoted(phase), number(tick()),
          number(sum(categories)), number(own_bytes)});
  for (const auto &category : categories)
    insert("peak_category", {"rank", "period", "step", "module_id", "phase", "category", "bytes"},
           {number(rank), number(period_of(step)), number(step), id_or_null(module), quoted(phase),
            quoted(category.first), number(category.second)});
  return *this;
}

LedgerBuilder &LedgerBuilder::owner(int rank, int step, int64_t module, const std::string &category,
                                    const std::string &phase, int64_t bytes, int64_t allocations) {
  insert("peak_owner", {"rank", "period", "step", "category", "module_id", "phase", "bytes", "allocations"},
         {number(rank), number(period_of(step)), number(step), quoted(category), id_or_null(module), quoted(phase),
          number(bytes), number(allocations)});
  return *this;
}

LedgerBuilder &LedgerBuilder::snapshot(int rank, int step, int64_t module, const std::string &state,
                                       const Categories &categories, int call) {
  tick();
  for (const auto &category : categories)
    insert("snapshot",
           {"rank", "step", "module_id", "call_index", "state", "at_ns", "category", "bytes", "tracker_bytes"},
           {number(rank), number(step), number(module), number(call), quoted(state), number(clock),
            quoted(category.first), number(category.second), number(category.second)});
  return *this;
}

LedgerBuilder &LedgerBuilder::source(int rank, const std::string &source, const std::string &state,
                                     const std::string &reason) {
  insert("source", {"rank", "source", "state", "reason", "at_ns"},
         {number(rank), quoted(source), quoted(state), quoted(reason), number(tick())});
  return *this;
}

LedgerBuilder &LedgerBuilder::gap(int rank, const std::string &source, int64_t lost, const std::string &reason) {
  insert("gap", {"rank", "at_ns", "source", "lost", "reason"},
         {number(rank), number(tick()), quoted(source), number(lost), quoted(reason)});
  return *this;
}

LedgerBuilder &LedgerBuilder::allocation(int rank, int step, int64_t bytes, const std::string &category,
                                         int64_t module) {
  insert("allocation",
         {"rank", "device", "address", "bytes", "requested_bytes", "stream", "category", "module_id", "period", "step",
          "tid", "alloc_ns", "free_ns", "decided_by"},
         {number(rank), number(rank), number(0x7f0000000000 + clock % mib), number(bytes), number(bytes), "0",
          quoted(category), id_or_null(module), number(period_of(step)), number(step), "4100", number(tick()),
          number(clock + 500), "'tag'"});
  return *this;
}

void build_two_rank_run(const std::string &path) {
  LedgerBuilder ledger(path);
  for (int rank = 0; rank < 2; rank++) {
    ledger.rank(rank, 2);
    ledger.source(rank, "nvtx", "on", "").source(rank, "cupti_activity", "off", "SHARDLEDGER_CUPTI=off");
    int64_t root = ledger.module(rank, "", "Transformer");
    int64_t first = ledger.module(rank, "blocks.0", "Block", root);
    int64_t second = ledger.module(rank, "blocks.1", "Block", root);
    for (int step = 0; step < 4; step++) {
      int64_t forward = ledger.phase(rank, step, "forward", first);
      int64_t backward = ledger.phase(rank, step, "backward", second);
      /* Step 0 has no optimizer state yet; step 3 holds 16 MiB more activations, rank 1 always 32 MiB fewer. */
      int64_t activation = 600 * mib + (step == 3 ? 16 * mib : 0) - (rank == 1 ? 32 * mib : 0);
      LedgerBuilder::Categories at_peak = {{"sharded_param", 256 * mib},      {"unsharded_param", 128 * mib},
                                           {"sharded_grad", 256 * mib},       {"unsharded_grad", 64 * mib},
                                           {"activation", activation},        {"temp", 3 * mib},
                                           {"optstate", step ? 512 * mib : 0}};
      LedgerBuilder::Categories in_forward = {{"sharded_param", 256 * mib},
                                              {"unsharded_param", 64 * mib},
                                              {"activation", activation / 2},
                                              {"optstate", step ? 512 * mib : 0}};
      int64_t total = sum(at_peak);
      ledger.step(rank, step, total, backward, second, step == 2 ? 1 : -1);
      if (step == 2)
        continue; /* its rows are those of step 1 */
      ledger.peak(rank, step, 0, "step", at_peak);
      ledger.peak(rank, step, root, "forward", in_forward, 4 * mib);
      ledger.peak(rank, step, first, "forward", in_forward, 200 * mib);
      ledger.peak(rank, step, first, "backward", at_peak, 300 * mib);
      ledger.peak(rank, step, second, "forward", in_forward, 250 * mib);
      ledger.peak(rank, step, second, "backward", at_peak, 350 * mib);
      ledger.owner(rank, step, first, "activation", "forward", activation / 2, 40);
      ledger.owner(rank, step, second, "activation", "forward", activation - activation / 2, 41);
      ledger.owner(rank, step, root, "sharded_param", "", 256 * mib, 12);
      ledger.owner(rank, step, 0, "optstate", "optimizer_step", step ? 512 * mib : 0, 24);
      ledger.snapshot(rank, step, first, "Before Pre-Forward", {{"sharded_param", 256 * mib}});
      ledger.snapshot(
          rank, step, first, "After Post-Forward",
          {{"sharded_param", 250 * mib}, {"param", 6 * mib}, {"activation", activation}, {"mine", 5 * mib}});
      ledger.snapshot(rank, step, root, "Peak Forward", in_forward);
      ledger.allocation(rank, step, activation / 2, "activation", first);
      (void)forward;
    }
  }
}
