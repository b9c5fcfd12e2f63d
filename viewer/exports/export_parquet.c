/*
 * Parquet is written by the Python package, with DuckDB (nvtx_ranges/python/shardledger/lake.py): there is no good
 * writer of it in C, and ours would be one more. This process becomes that Python, so its words and its exit status are
 * ours.
 */
#include "exports/export.h"
#include "installation.h"
#include "plugin/process/package_place.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Its first argument is where the package is, which takes the place of the working directory among those to look in. */
static char script[] = "import sys; sys.path[0] = sys.argv.pop(1); from shardledger.lake import main; sys.exit(main())";

int sl_export_parquet(struct sl_export *export, struct sl_error *error) {
  char plugin[PATH_MAX], package[PATH_MAX + sizeof("/elsewhere")];
  char python[] = "python3", command[] = "export", end[] = "--", ledger[PATH_MAX];
  char *interpreter = export->python ? (char *)export->python : python;
  char *output = NULL, *run = NULL;
  int r = sl_find_plugin(plugin, sizeof(plugin));
  if (r == 0)
    r = sl_find_package(plugin, package, PATH_MAX);
  if (r < 0)
    return sl_error_set(error, r,
                        "export: %s or its Python package is missing; build or install ShardLedger as a whole", plugin);
  strcat(package, "/elsewhere");
  snprintf(ledger, sizeof(ledger), "%s", sl_db_path(export->db));
  if (asprintf(&output, "--output=%s", export->output) < 0)
    output = NULL;
  if (export->name && asprintf(&run, "--run=%s", export->name) < 0)
    run = NULL;
  if (!output || (export->name && !run)) {
    r = sl_no_memory(error);
    goto finish;
  }
  char *argv[] = {interpreter,         "-c", script, package, command, output, run ? run : end, run ? end : ledger,
                  run ? ledger : NULL, NULL};
  execvp(interpreter, argv);
  r = sl_error_set(error, -errno,
                   "export: %s can't be run: %s; Parquet is written by a Python that has DuckDB: name it with --python",
                   interpreter, strerror(errno));
finish:
  free(output);
  free(run);
  return r;
}
