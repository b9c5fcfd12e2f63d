#include "command.h"
#include "exports/export.h"
#include "open_ledger.h"
#include "viewer_sql.h"

#include <errno.h>
#include <string.h>

static const struct {
  const char *name;
  sl_export_format *write;
} formats[] = {
    {"nsys", sl_export_nsys},
    {"kineto", sl_export_kineto},
    {"perfetto", sl_export_perfetto},
    {"snapshot", sl_export_snapshot},
};
#define FORMATS "nsys|kineto|perfetto|snapshot"

/* Rows that an export will go through; near enough for a bar. */
static int count_rows(struct sl_export *export, struct sl_error *error) {
  int64_t rows = 0;
  int r = sl_db_int(export->db, sl_sql_export_rows, &rows, error);
  export->rows = (uint64_t)rows;
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

int sl_cmd_export(const struct sl_command *command, int argc, char **argv) {
  struct sl_export export = {0};
  struct sl_error error = {{0}};
  const char *path = NULL, *run = NULL;
  int format = -1;
  const struct sl_argument arguments[] = {
      {"format", 'f', FORMATS, "what to write", SL_ARGUMENT_CHOICE, &format},
      {"output", 'o', "FILE", "where to write it; replaced when it is there. Of kineto and snapshot a directory",
       SL_ARGUMENT_TEXT, &export.output},
      SL_RUN_ARGUMENT(run),
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
  r = sl_open_run(path ? path : sl_default_directory(), run, &export.db, &error);
  if (r == 0)
    r = count_rows(&export, &error);
  if (r == 0)
    r = tell_left_out(export.db, &error);
  if (r == 0)
    r = formats[format].write(&export, &error);
  sl_progress_clear();
  export.db = sl_db_close(export.db);
  if (r < 0)
    sl_complain("%s", error.text);
  else
    r = sl_print_path(export.output);
  return r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
