/* `shardledger export`: a ledger in another tool's format. */
#include "ask_ledger.h"
#include "command.h"
#include "exports/export.h"
#include "open_ledger.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  sl_export_format *write;
  enum { TIMELINE, TIMELINE_WITH_KERNELS, PEAK, TABLES } is_of; /* a peak: what was allocated at one instant */
} formats[] = {
    {"nsys", sl_export_nsys, TIMELINE_WITH_KERNELS},
    {"kineto", sl_export_kineto, TIMELINE_WITH_KERNELS},
    {"perfetto", sl_export_perfetto, TIMELINE_WITH_KERNELS},
    {"snapshot", sl_export_snapshot, TIMELINE},
    {"folded", sl_export_folded, PEAK},
    {"pprof", sl_export_pprof, PEAK},
    {"datasette", sl_export_datasette, TABLES},
    {"parquet", sl_export_parquet, TABLES},
};
#define FORMATS "nsys|kineto|perfetto|snapshot|folded|pprof|datasette|parquet"

/* Rows that an export will go through; near enough for a bar. */
static int count_rows(struct sl_export *export, struct sl_error *error) {
  int64_t rows = 0;
  int r = sl_db_int(export->db, sl_sql_export_rows, &rows, error);
  export->rows = (uint64_t)rows;
  return r;
}

enum { RANKS = 64 }; /* that are written unless it is said which */

/*
 * Without --rank all of a few ranks; of more one that speaks for each group of alike ones, where the ledger knows
 * groups, and else those with the highest peaks. *chosen is the caller's, for export->ranks.
 */
static int choose_ranks(struct sl_export *export, char **chosen, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int64_t ranks = 0, groups = 0;
  int r = sl_db_int(export->db, sl_sql_export_rank_count, &ranks, error);
  if (r < 0 || ranks <= RANKS)
    return r;
  r = sl_db_int(export->db, sl_sql_export_has_groups, &groups, error);
  if (r == 0)
    r = sl_db_ask_first(export->db, groups ? sl_sql_export_representatives : sl_sql_export_highest,
                        SL_WITH(SL_NUMBER(":most", RANKS)), &row, error);
  if (r > 0) {
    *chosen = strdup(sl_column_text(row, 0));
    r = *chosen ? 0 : sl_no_memory(error);
    sl_complain("export: %lld of %lld ranks are written, %s; others with --rank RANKS",
                (long long)sl_column_int(row, 1), (long long)ranks,
                groups ? "one of each group of ranks that behave alike, at most the 64 that differ most"
                       : "those with the highest peaks");
  }
  export->ranks = *chosen;
  row = sl_statement_close(row);
  return r;
}

/* A timeline with holes says so. */
static int tell_left_out(struct sl_db *db, struct sl_error *error) {
  int64_t steps = 0, left_out = 0;
  int r = sl_db_int(db, sl_sql_export_steps, &steps, error);
  if (r == 0)
    r = sl_db_int(db, sl_sql_export_steps_left_out, &left_out, error);
  if (r == 0 && left_out > 0)
    sl_complain(
        "export: %lld of %lld steps repeat another one and are not shown; 'shardledger ingest --keep all' keeps "
        "them",
        (long long)left_out, (long long)steps);
  return r;
}

/* Readers of timelines take a GPU without kernels for idle. */
static int tell_kernels(struct sl_db *db, struct sl_error *error) {
  int64_t only_nccl = 0;
  int r = sl_db_int(db, sl_sql_export_only_nccl, &only_nccl, error);
  if (r == 0 && only_nccl)
    sl_complain(
        "export: only kernels of NCCL were recorded: a GPU without kernels may be busy; SHARDLEDGER_KERNELS=all "
        "records all");
  return r;
}

/* What a peak was made of, for the formats that write it; says when there are no call stacks to write it by. */
static int find_held(struct sl_export *export, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_execute(export->db, sl_sql_code_held, error);
  if (r == 0)
    r = sl_db_ask_first(export->db, sl_sql_code_has_stacks, SL_WITH(SL_WORD(":ranks", export->ranks)), &row, error);
  if (r > 0 && !sl_column_int(row, 0))
    sl_complain("export: no memory of PyTorch's allocator was recorded: the peak has nothing in it");
  else if (r > 0 && !sl_column_int(row, 1))
    sl_complain(
        "export: no call stack was recorded: modules and categories stand in for them; SHARDLEDGER_STACKS=auto and "
        "the torch bridge record them");
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

int sl_cmd_export(const struct sl_command *command, int argc, char **argv) {
  struct sl_export export = {0};
  struct sl_error error = {{0}};
  struct sl_ranks ranks = {.text = NULL};
  const char *path = NULL, *run = NULL;
  char *chosen = NULL;
  int format = -1;
  const struct sl_argument arguments[] = {
      {"format", 'f', FORMATS, "what to write", SL_ARGUMENT_CHOICE, &format},
      {"output", 'o', "FILE",
       "where to write it; replaced when it is there. Of kineto and snapshot a directory, of parquet a lake, "
       "which keeps its other runs and ranks; of datasette the file for its --metadata",
       SL_ARGUMENT_TEXT, &export.output},
      SL_RUN_ARGUMENT(run),
      {"rank", 0, "RANKS",
       "these ranks, such as 7 or 0-3,7 (default: all up to 64; of more, one of each group of alike "
       "ones or the highest)",
       SL_ARGUMENT_RANKS, &ranks.text},
      {"name", 0, "NAME",
       "for parquet: the run's name in the lake, the same on all of its nodes; default: from its communicator",
       SL_ARGUMENT_TEXT, &export.name},
      {"python", 0, "EXE", "for parquet: a Python that has DuckDB; default: python3", SL_ARGUMENT_TEXT, &export.python},
  };
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (format < 0 || !export.output) {
    sl_complain("export: %s is missing; for example: shardledger export --format %s -o %s",
                format < 0 ? "--format" : "-o FILE", format < 0 ? "nsys" : formats[format].name,
                export.output ? export.output : "FILE");
    return SL_EXIT_USAGE;
  }
  const bool tables = formats[format].is_of == TABLES, peak = formats[format].is_of == PEAK;
  if (formats[format].write != sl_export_parquet && (export.name || export.python)) {
    sl_complain("export: --%s needs --format parquet", export.name ? "name" : "python");
    return SL_EXIT_USAGE;
  }
  if (tables && ranks.text) {
    sl_complain("export: %s has all ranks of the ledger; leave --rank out", formats[format].name);
    return SL_EXIT_USAGE;
  }
  r = sl_open_run(sl_chosen_directory(path), run, &export.db, &error);
  export.ranks = ranks.text;
  if (r == 0 && !tables)
    r = ranks.text ? sl_check_selection(export.db, &ranks, -1, &error) : choose_ranks(&export, &chosen, &error);
  if (r == 0 && !tables)
    r = count_rows(&export, &error);
  if (r == 0 && !tables)
    r = peak ? find_held(&export, &error) : tell_left_out(export.db, &error);
  if (r == 0)
    r = formats[format].write(&export, &error);
  if (r == 0 && formats[format].is_of == TIMELINE_WITH_KERNELS)
    r = tell_kernels(export.db, &error);
  sl_progress_clear();
  export.db = sl_db_close(export.db);
  free(chosen);
  if (r < 0)
    sl_complain("%s", error.text);
  else
    r = sl_print_path(export.output);
  return r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
