/* One question to the ledger, which has the evidence in its tables once all ranks are in it. */
#include "one_job.h"

#include <errno.h>

/* origin(rank, directory): temporary, on this connection only. */
static int origin_fill(struct sl_db *db, const struct sl_run *run, struct sl_error *error) {
  struct sl_statement *insert = NULL;
  int r = sl_db_execute(db, "CREATE TEMP TABLE origin(rank INTEGER PRIMARY KEY, directory INTEGER)", error);
  if (r == 0)
    r = sl_db_prepare(db, "INSERT INTO temp.origin VALUES(?, ?)", &insert, error);
  for (size_t i = 0; i < run->count && r == 0; i++) {
    sl_bind_int(insert, 1, run->processes[i].rank);
    sl_bind_int(insert, 2, (int64_t)run->processes[i].directory);
    r = sl_statement_run(insert, error);
  }
  insert = sl_statement_close(insert);
  return r;
}

/* Pairs of directories that contradict each other; one kind of evidence a row, the surer one first. */
static const char *const pairs_sql =
    "WITH whole AS (SELECT DISTINCT o.directory, c.comm FROM communicator c JOIN temp.origin o ON o.rank = c.rank"
    "   WHERE c.nranks > 1 AND c.nranks = (SELECT max(world_size) FROM rank)),"
    " part AS (SELECT o.directory, min(r.start_ns) AS start_ns, max(r.end_ns) AS end_ns,"
    "   EXISTS (SELECT 1 FROM whole w WHERE w.directory = o.directory) AS knows"
    "   FROM temp.origin o JOIN rank r ON r.rank = o.rank GROUP BY o.directory)"
    " SELECT a.directory, b.directory, a.knows AND b.knows AS by_communicator"
    " FROM part a JOIN part b ON a.directory < b.directory"
    " WHERE iif(a.knows AND b.knows,"
    "   NOT EXISTS (SELECT 1 FROM whole x JOIN whole y ON y.comm = x.comm"
    "     WHERE x.directory = a.directory AND y.directory = b.directory),"
    "   a.end_ns < b.start_ns OR b.end_ns < a.start_ns)"
    " ORDER BY by_communicator DESC, a.directory, b.directory LIMIT 1";

int sl_check_one_job(struct sl_db *db, const struct sl_run *run, const char *const *directories,
                     struct sl_error *error) {
  struct sl_statement *pairs = NULL;
  int r = origin_fill(db, run, error);
  if (r == 0)
    r = sl_db_prepare(db, pairs_sql, &pairs, error);
  if (r == 0)
    r = sl_statement_step(pairs, error);
  if (r > 0) {
    const char *one = directories[sl_column_int(pairs, 0)];
    const char *other = directories[sl_column_int(pairs, 1)];
    r = sl_error_set(error, -EINVAL,
                     sl_column_int(pairs, 2) ? "%s and %s have no communicator in common: these are different runs"
                                             : "%s and %s were recorded at different times: these are different runs",
                     one, other);
  }
  pairs = sl_statement_close(pairs);
  return r < 0 ? r : sl_db_execute(db, "DROP TABLE temp.origin", error);
}
