#include "ask_ledger.h"
#include "command.h"
#include "commands/range_queries.h"
#include "commands/summary.h"
#include "output/units.h"

#include <errno.h>
#include <string.h>

/* What a run may lack, how to tell, and what to do about it. */
static const struct {
  const char *what;
  const char *present; /* SQL that is 1 when it was recorded */
  const char *advice;
} parts[] = {
    {"training steps", "SELECT EXISTS(SELECT 1 FROM step)",
     "the companion package saw no optimizer step; mark steps with shardledger.step()"},
    {"modules", "SELECT EXISTS(SELECT 1 FROM module)",
     "the companion package saw no model called, or was not loaded; see SHARDLEDGER_PYTHON in 'shardledger run "
     "--help-env'"},
    {"PyTorch's allocations", "SELECT EXISTS(SELECT 1 FROM allocation)",
     "neither the torch bridge nor PyTorch's memory history was there; see 'shardledger doctor'"},
    {"a check against PyTorch's own statistics", "SELECT EXISTS(SELECT 1 FROM step WHERE checked IS NOT NULL)",
     "no step ended with one: the companion package asks there, and PyTorch has them for its caching allocator only"},
    {"driver-level memory", "SELECT EXISTS(SELECT 1 FROM segment WHERE owner <> 'pytorch')",
     "CUPTI was off or taken by another tool"},
    {"the device's total", "SELECT EXISTS(SELECT 1 FROM device_sample)", "the device was not sampled"},
    {"collectives", "SELECT EXISTS(SELECT 1 FROM collective)",
     "no NCCL call is in the record; one GPU alone makes none, and NCCL_NVTX_DISABLE hides them"},
    {"device times of collectives",
     "SELECT NOT EXISTS(SELECT 1 FROM collective) OR EXISTS(SELECT 1 FROM collective WHERE joined_by IS NOT NULL)",
     "CUPTI was off or taken by another tool, or 'shardledger run --kernels none'"},
    {"buffers and algorithms of collectives",
     "SELECT NOT EXISTS(SELECT 1 FROM collective) OR EXISTS(SELECT 1 FROM collective WHERE algorithm IS NOT NULL)",
     "NCCL before 2.23, SHARDLEDGER_NCCL=off, or another NCCL_PROFILER_PLUGIN"},
    {"device times of kernels", "SELECT EXISTS(SELECT 1 FROM kernel)",
     "NCCL's are kept by default, others with 'shardledger run --kernels all'"},
};

static int print_ranks(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"host", "Host", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"pid", "PID", SL_UNIT_number, 0},
      {"device", "GPU", SL_UNIT_number, 0},
      {"device_name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"device_uuid", "UUID", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"device_bytes", "Memory", SL_UNIT_bytes, 0},
      {"start_ns", "Start", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"end_ns", "End", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"duration_ns", "Time", SL_UNIT_duration, 0},
      {"steps", "Steps", SL_UNIT_number, 0},
      {"steps_kept", "In full", SL_UNIT_number, 0},
      {"events", "Events", SL_UNIT_number, 0},
      {"events_lost", "Lost", SL_UNIT_number, 0},
      {"clean_exit", "Clean exit", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"ended", "Ended", SL_UNIT_text, 0},
      {"steps_agreed", "Agreed", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"steps_differed", "Differed", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"check", "Self-check", SL_UNIT_text, SL_COLUMN_TEXT_ONLY},
      {"fidelity", "Allocations", SL_UNIT_text, 0},
      {"torch_version", "PyTorch", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"nccl_version", "NCCL", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"cuda_version", "CUDA", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"allocator_backend", "Allocator", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"allocator_config", "Configuration", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"world_size", "Of", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"local_rank", "Local rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
  };
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sl_db_prepare(
      db,
      "SELECT r.rank, host, pid, device, device_name, device_uuid, device_bytes, r.start_ns, r.end_ns,"
      " r.end_ns - r.start_ns, coalesce(steps, 0), coalesce(steps_in_full, 0), events, events_lost, clean_exit,"
      " " SL_SQL_ENDED ", coalesce(steps_agreed, 0), coalesce(steps_differed, 0),"
      " CASE WHEN coalesce(steps_agreed + steps_differed, 0) = 0 THEN 'not possible'"
      "  WHEN steps_differed > 0 THEN steps_differed || ' of ' || (steps_agreed + steps_differed) || ' steps differ'"
      "  WHEN steps_agreed < steps THEN steps_agreed || ' steps exact, ' || (steps - steps_agreed) || ' unchecked'"
      "  ELSE steps_agreed || ' of ' || steps || ' steps exact' END,"
      " fidelity, torch_version, nccl_version, cuda_version, allocator_backend, allocator_config, world_size,"
      " local_rank FROM rank AS r LEFT JOIN rank_steps AS k ON k.rank = r.rank ORDER BY r.rank",
      &statement, error);
  if (r < 0)
    return r;
  table = sl_table_begin(out, "ranks", columns, sizeof(columns) / sizeof(columns[0]));
  rows = sl_table_rows(table, statement, error);
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return rows < 0 ? (int)rows : 0;
}

/* One table from SQL, with a blank line and nothing else when it has no rows in text. */
static int print_table(struct sl_db *db, struct sl_output *out, const char *name, const struct sl_column *columns,
                       int count, const char *sql, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int r = sl_db_prepare(db, sql, &statement, error);
  if (r < 0)
    return r;
  r = sl_statement_step(statement, error);
  if (r > 0 || (r == 0 && out->format != SL_FORMAT_text)) {
    sl_output_line(out, "%s", "");
    table = sl_table_begin(out, name, columns, count);
    for (; r > 0; r = sl_statement_step(statement, error))
      for (int i = 0; i < count; i++)
        sl_cell_column(table, statement, i);
    table = sl_table_end(table);
  }
  statement = sl_statement_close(statement);
  return r;
}

static int print_versions(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"what", "Run", SL_UNIT_text, 0},
      {"value", "", SL_UNIT_text, 0},
  };
  return print_table(
      db, out, "versions", columns, 2,
      "SELECT 'ranks recorded', count(*) || coalesce(' of ' || max(world_size), '') FROM rank"
      " UNION ALL SELECT 'PyTorch', group_concat(DISTINCT torch_version) FROM rank HAVING count(torch_version) > 0"
      " UNION ALL SELECT 'NCCL', group_concat(DISTINCT nccl_version) FROM rank HAVING count(nccl_version) > 0"
      " UNION ALL SELECT 'CUDA', group_concat(DISTINCT cuda_version) FROM rank HAVING count(cuda_version) > 0"
      " UNION ALL SELECT 'allocator', group_concat(DISTINCT allocator_backend ||"
      "  iif(coalesce(allocator_config, '') = '', '', ' (' || allocator_config || ')'))"
      "  FROM rank HAVING count(allocator_backend) > 0"
      " UNION ALL SELECT 'recording began late', sum(restored_allocations) ||"
      "  ' allocations were there before, on rank' || iif(count(*) > 1, 's ', ' ') || group_concat(rank, ', ')"
      "  FROM rank WHERE restored_allocations > 0 HAVING count(*) > 0"
      " UNION ALL SELECT 'steps renumbered', count(*) || ' on rank' || iif(count(DISTINCT rank) > 1, 's ', ' ') ||"
      "  group_concat(DISTINCT rank) || ': their number, or a higher one, was used before'"
      "  FROM renumbered_step HAVING count(*) > 0"
      " UNION ALL SELECT replace(key, '_', ' '), iif(key = 'keep', CASE value WHEN 'changes' THEN"
      "  'rows of steps that differ' WHEN 'all' THEN 'rows of all steps' ELSE value END, value) FROM meta",
      error);
}

static int print_sources(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"ranks", "Ranks", SL_UNIT_text, 0},
      {"source", "Source", SL_UNIT_text, 0},
      {"state", "State", SL_UNIT_text, 0},
      {"reason", "Reason", SL_UNIT_text, SL_COLUMN_SENTENCE},
  };
  return print_table(db, out, "sources", columns, 4,
                     "SELECT iif(count(DISTINCT rank) = (SELECT count(*) FROM rank), 'all',"
                     " group_concat(DISTINCT rank)), source, state, reason FROM source"
                     " GROUP BY source, state, reason ORDER BY source, min(at_ns)",
                     error);
}

/* How often memory was so short that a request had to wait until the cache was given back. */
static int print_retries(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},       {"retries", "cudaMalloc refused, then served", SL_UNIT_number, 0},
      {"steps", "In steps", SL_UNIT_number, 0},  {"cost_ns", "Cost", SL_UNIT_duration, 0},
      {"bytes", "Asked for", SL_UNIT_bytes, 0},  {"freed_bytes", "Cache given back", SL_UNIT_bytes, 0},
      {"first_ns", "First", SL_UNIT_instant, 0},
  };
  return print_table(db, out, "retries", columns, sizeof(columns) / sizeof(columns[0]),
                     "SELECT rank, count(*), count(DISTINCT step), sum(served_ns - at_ns), sum(bytes),"
                     " sum(freed_bytes), min(at_ns) FROM retry GROUP BY rank ORDER BY rank",
                     error);
}

static int print_gaps(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},       {"source", "Gaps in", SL_UNIT_text, 0},
      {"gaps", "Gaps", SL_UNIT_number, 0},       {"lost", "Lost", SL_UNIT_number, 0},
      {"first_ns", "First", SL_UNIT_instant, 0}, {"reason", "Reason", SL_UNIT_text, SL_COLUMN_SENTENCE},
  };
  return print_table(db, out, "gaps", columns, 6,
                     "SELECT rank, source, count(*), sum(lost), min(at_ns), reason FROM gap"
                     " GROUP BY rank, source, reason ORDER BY rank, min(at_ns)",
                     error);
}

static int print_missing(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"what", "Not recorded", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY | SL_COLUMN_SENTENCE},
      {"advice", "", SL_UNIT_text, SL_COLUMN_SENTENCE},
  };
  struct sl_table *table = NULL;
  int r = 0;

  sl_output_line(out, "%s", "");
  if (out->format != SL_FORMAT_text)
    table = sl_table_begin(out, "not_recorded", columns, 2);
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && r == 0; i++) {
    int64_t present = 0;
    r = sl_db_int(db, parts[i].present, &present, error);
    if (r < 0 || present)
      continue;
    if (!table)
      table = sl_table_begin(out, "not_recorded", columns, 2);
    sl_cell_text(table, parts[i].what);
    sl_cell_text(table, parts[i].advice);
  }
  if (!table && r == 0)
    sl_output_line(out, "Everything that this version knows was recorded.");
  table = sl_table_end(table);
  return r;
}

static int print_info(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  int r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_print_summary(db, out, true, error);
  sl_output_document(out);
  sl_output_line(out, "%s", "");
  if (r == 0)
    r = print_ranks(db, out, error);
  if (r == 0)
    r = print_versions(db, out, error);
  if (r == 0)
    r = print_sources(db, out, error);
  if (r == 0)
    r = print_gaps(db, out, error);
  if (r == 0)
    r = print_retries(db, out, error);
  if (r == 0)
    r = print_missing(db, out, error);
  return r;
}

int sl_cmd_info(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  const struct sl_argument arguments[] = {SL_OUTPUT_ARGUMENTS(format)};
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_info, NULL);
}
