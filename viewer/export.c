#include "export.h"
#include "terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void sl_export_progress(struct sl_export *export, uint64_t rows) {
  static const uint64_t between = 1 << 15; /* rows between two looks at the terminal */
  uint64_t before = export->rows_done / between;
  export->rows_done += rows;
  if (export->rows_done / between != before)
    sl_progress_show_count("exporting", export->rows_done, export->rows, "rows");
}

char *sl_export_staged(const char *path) {
  char *staged = NULL;
  return asprintf(&staged, "%s.%ld.part", path, (long)getpid()) < 0 ? NULL : staged;
}

int sl_export_commit(const char *staged, const char *path, int r, struct sl_error *error) {
  if (r == 0 && rename(staged, path) != 0)
    r = sl_error_set(error, -errno, "%s can't be written: %s", path, strerror(errno));
  if (r < 0)
    unlink(staged);
  return r;
}

bool sl_nesting_fits(struct sl_nesting *nesting, int64_t start_ns, int64_t end_ns) {
  while (nesting->depth > 0 && nesting->ends[nesting->depth - 1] <= start_ns)
    nesting->depth--;
  if (nesting->depth > 0 && end_ns > nesting->ends[nesting->depth - 1])
    return false;
  if (nesting->depth == (int)(sizeof(nesting->ends) / sizeof(nesting->ends[0])))
    return false;
  nesting->ends[nesting->depth++] = end_ns;
  return true;
}

const char *const sl_export_phases_sql =
    "SELECT p.id, p.tid, p.kind, p.name, p.start_ns, coalesce(p.end_ns, r.end_ns, p.start_ns) AS until_ns,"
    " nullif(iif(m.fqn = '', m.class, m.fqn), ''), p.step, p.call_index"
    " FROM phase AS p JOIN rank AS r ON r.rank = p.rank LEFT JOIN module AS m ON m.id = p.module_id"
    " WHERE p.rank = :rank ORDER BY p.tid, p.start_ns, until_ns DESC, p.id";
