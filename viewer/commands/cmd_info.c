/* `shardledger info`: what was recorded and what was not. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/rehearsal_result.h"
#include "commands/summary.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <string.h>

/* What a run may lack, how to tell, which source records it, and what to do where that says nothing. */
static const struct {
  const char *what;
  const char *present; /* SQL that is 1 when it was recorded */
  const char *source;  /* of the table source: it may say why */
  const char *advice;
} parts[] = {
    {"all ranks", sl_sql_info_has_all_ranks, "",
     "the first line names those whose logs are not in this directory; 'shardledger merge' joins those of several "
     "nodes"},
    {"training steps", sl_sql_info_has_steps, "companion",
     "the companion package saw no optimizer step; mark steps with shardledger.step()"},
    {"modules", sl_sql_info_has_modules, "companion",
     "the companion package saw no model called, or was not loaded; see SHARDLEDGER_PYTHON in 'shardledger run "
     "--help-env'"},
    {"PyTorch's allocations", sl_sql_info_has_allocations, "torch_allocator",
     "neither the torch bridge nor PyTorch's memory history was available; see 'shardledger doctor'"},
    {"a check against PyTorch's own statistics", sl_sql_info_has_checks, "",
     "no step ended with one: the companion package asks there, and PyTorch has them for its caching allocator only"},
    {"driver-level memory", sl_sql_info_has_driver_memory, "cupti_callback", "no call of the driver took memory"},
    {"the device's total", sl_sql_info_has_samples, "nvml", "the device was not sampled"},
    {"collectives", sl_sql_info_has_collectives, "nvtx",
     "no NCCL call is in the record; one GPU alone makes none, and NCCL_NVTX_DISABLE hides them"},
    {"device times of collectives", sl_sql_info_has_collective_times, "cupti_activity",
     "no kernel of NCCL is in the record, as with 'shardledger run --kernels none'"},
    {"buffers and algorithms of collectives", sl_sql_info_has_algorithms, "nccl_profiler",
     "NCCL did not load the profiler plugin"},
    {"device times of kernels", sl_sql_info_has_kernels, "cupti_activity",
     "NCCL's are kept by default, others with 'shardledger run --kernels all'"},
};

static const struct sl_column rank_columns[] = {
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
static const struct sl_column attempt_columns[] = {
    {"attempt", "--run", SL_UNIT_number, 0},
    {"is_this", "", SL_UNIT_text, 0},
    {"name", "Launcher's id", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"began_ns", "Began", SL_UNIT_instant, 0},
    {"ranks", "Ranks", SL_UNIT_number, 0},
    {"world_size", "Of", SL_UNIT_number, SL_COLUMN_HIDE_EMPTY},
    {"recorded", "Recorded", SL_UNIT_text, 0},
    {"told_by", "Told apart by", SL_UNIT_text, 0},
};
static const struct sl_column version_columns[] = {
    {"what", "Run", SL_UNIT_text, 0},
    {"value", "", SL_UNIT_text, 0},
};
static const struct sl_column source_columns[] = {
    {"ranks", "Ranks", SL_UNIT_text, 0},
    {"source", "Source", SL_UNIT_text, 0},
    {"state", "State", SL_UNIT_text, 0},
    {"reason", "Reason", SL_UNIT_text, SL_COLUMN_SENTENCE},
};
static const struct sl_column gap_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},       {"source", "Gaps in", SL_UNIT_text, 0},
    {"gaps", "Gaps", SL_UNIT_number, 0},       {"lost", "Lost", SL_UNIT_number, 0},
    {"first_ns", "First", SL_UNIT_instant, 0}, {"reason", "Reason", SL_UNIT_text, SL_COLUMN_SENTENCE},
};

/* How often memory was so short that a request had to wait until the cache was given back. */
static const struct sl_column retry_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},       {"retries", "cudaMalloc refused, then served", SL_UNIT_number, 0},
    {"steps", "In steps", SL_UNIT_number, 0},  {"cost_ns", "Cost", SL_UNIT_duration, 0},
    {"bytes", "Asked for", SL_UNIT_bytes, 0},  {"freed_bytes", "Cache given back", SL_UNIT_bytes, 0},
    {"first_ns", "First", SL_UNIT_instant, 0},
};

static const struct sl_listing tables[] = {
    {"ranks", SL_COLUMNS(rank_columns), sl_sql_info_ranks, .most = 8},
    {"attempts", SL_COLUMNS(attempt_columns), sl_sql_info_attempts, .only_with_rows = true, .most = 8},
    {"versions", SL_COLUMNS(version_columns), sl_sql_info_versions, .only_with_rows = true},
    {"sources", SL_COLUMNS(source_columns), sl_sql_info_sources, .only_with_rows = true},
    {"gaps", SL_COLUMNS(gap_columns), sl_sql_info_gaps, .only_with_rows = true, .most = 8},
    {"retries", SL_COLUMNS(retry_columns), sl_sql_info_retries, .only_with_rows = true, .most = 8},
};

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
    struct sl_statement *why = NULL;
    r = sl_db_ask_first(db, sl_sql_info_why, SL_WITH(SL_WORD(":source", parts[i].source)), &why, error);
    sl_cell_text(table, parts[i].what);
    sl_cell_text(table, r > 0 ? sl_column_text(why, 0) : parts[i].advice);
    why = sl_statement_close(why);
    r = r < 0 ? r : 0;
  }
  if (!table && r == 0)
    sl_output_line(out, "Everything that this version knows was recorded.");
  table = sl_table_end(table);
  return r;
}

static int print_info(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct sl_ranks *ranks = context;
  int r = sl_check_selection(db, ranks, -1, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_print_summary(db, out, true, error);
  if (r == 0)
    r = sl_print_rehearsal(db, out, error);
  sl_output_document(out);
  sl_output_line(out, "%s", "");
  for (size_t i = 0; i < sizeof tables / sizeof tables[0] && r >= 0; i++)
    r = (int)sl_print_listing(db, out, &tables[i], SL_WITH(SL_RANKS(ranks)), error);
  return r < 0 ? r : print_missing(db, out, error);
}

int sl_cmd_info(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct sl_ranks ranks = {0};
  const struct sl_argument arguments[] = {
      {"rank", 0, "RANKS", "list these ranks alone, and what is said of each, such as 7 or 0-3,7", SL_ARGUMENT_RANKS,
       &ranks.text},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_info, &ranks);
}
