/* The small tables of the report's page: each is a query, its columns named by the query itself. */
#include "commands/device_queries.h"
#include "commands/oom_death.h"
#include "commands/peak_queries.h"
#include "commands/range_queries.h"
#include "output/text.h"
#include "report/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a kind that the page holds for all steps; of more, those of the steps in held alone. */
#define ROWS_MOST "60000"

/* Steps whose phases, collectives and module peaks are always there. Parameters :rank and :step (asked for, or -1). */
#define SQL_HELD                                                                                                       \
  "held(step) AS (SELECT step FROM step WHERE rank = :rank AND (step = :step"                                          \
  "  OR step IN (SELECT step FROM step WHERE rank = :rank ORDER BY step LIMIT 3)"                                      \
  "  OR step IN (SELECT same_as FROM step WHERE rank = :rank GROUP BY same_as ORDER BY count(*) DESC LIMIT 20)"        \
  "  OR step = (SELECT max(step) FROM step WHERE rank = :rank)"                                                        \
  "  OR step IN (SELECT coalesce(same_as, step) FROM step WHERE rank = :rank"                                          \
  "   ORDER BY peak_allocated_bytes DESC, step LIMIT 1)"                                                               \
  "  OR step = (SELECT step FROM step WHERE rank = :rank ORDER BY peak_allocated_bytes DESC, step LIMIT 1)))"

static const struct page_table {
  const char *name, *sql;
  bool once;         /* for the run, not for each rank */
  const char *needs; /* a table without which there are no rows; NULL: it is always there */
} tables[] = {
    {"meta", "SELECT key, value FROM meta WHERE key IN ('shardledger_version', 'source_directory') ORDER BY key", true,
     NULL},
    {"categories", "SELECT name, colour FROM category ORDER BY layer", true, NULL},
    {"ranks",
     "SELECT r.rank, r.world_size, r.host, r.pid, r.device, r.device_name, r.device_bytes, r.start_ns - :zero AS start,"
     " r.end_ns - :zero AS \"end\", " SL_SQL_ENDED " AS ended, coalesce(r.events_lost, 0) AS lost, r.torch_version,"
     " r.nccl_version, r.cuda_version, r.allocator_backend, r.allocator_config, r.fidelity, r.restored_allocations,"
     " (SELECT count(*) FROM allocation AS a WHERE a.rank = r.rank AND a.device IS NOT coalesce(r.device, 0))"
     "  AS elsewhere FROM rank AS r WHERE r.rank = :rank",
     false, NULL},
    {"steps",
     "SELECT c.rank, c.step, c.same_as, c.start_ns - :zero AS start, c.end_ns - :zero AS \"end\","
     " c.peak_ns - :zero AS peak_at, c.peak_allocated_bytes AS allocated, c.peak_active_bytes AS active,"
     " c.peak_reserved_bytes AS reserved, c.peak_device_bytes AS device, c.before_allocated_bytes AS before,"
     " c.end_allocated_bytes AS end_allocated, c.checked, " SL_SQL_WHERE_PEAK
     " AS place FROM (SELECT *, coalesce(same_as, step) AS rows_step FROM step) AS c WHERE c.rank = :rank"
     " ORDER BY c.step",
     false, NULL},
    {"peak_category",
     "SELECT c.rank, c.step, c.category, c.bytes FROM peak_category AS c WHERE c.rank = :rank AND c.module_id IS NULL"
     " AND c.phase = 'step' AND c.bytes <> 0 ORDER BY c.step, c.category",
     false, NULL},
    {"modules",
     "SELECT m.id, m.rank, m.fqn, n.name, m.class, m.parent_id AS parent, m.depth, m.is_fsdp, m.param_bytes AS params,"
     " m.buffer_bytes AS buffers FROM module AS m JOIN module_name AS n ON n.id = m.id WHERE m.rank = :rank"
     " ORDER BY m.id",
     false, NULL},
    {"module_peaks",
     "WITH " SQL_HELD " SELECT p.rank, p.step, p.module_id AS module, p.phase, p.allocated_bytes AS allocated,"
     " p.own_bytes AS own, p.own_with_children_bytes AS whole FROM peak AS p WHERE p.rank = :rank"
     " AND p.module_id IS NOT NULL AND ((SELECT count(*) FROM peak) <= " ROWS_MOST
     "  OR p.step IN (SELECT step FROM held)) ORDER BY p.step, p.module_id, p.phase",
     false, NULL},
    {"phases",
     "WITH " SQL_HELD
     " SELECT p.rank, p.tid, p.kind, p.name, p.module_id AS module, p.step, p.start_ns - :zero AS start,"
     " coalesce(p.end_ns, r.end_ns, p.start_ns) - :zero AS \"end\", p.end_ns IS NULL AS open,"
     " coalesce(u.kind = 'step', 1) AS outer FROM phase AS p JOIN rank AS r ON r.rank = p.rank"
     " LEFT JOIN phase AS u ON u.id = p.parent_id WHERE p.rank = :rank AND p.kind <> 'step'"
     " AND ((SELECT count(*) FROM phase) <= " ROWS_MOST " OR coalesce(u.kind = 'step', 1)"
     "  OR p.step IN (SELECT step FROM held)) ORDER BY p.start_ns, \"end\" DESC, p.id",
     false, NULL},
    {"collectives",
     "WITH " SQL_HELD
     " SELECT c.rank, c.operation, c.bytes, printf('%x', c.comm) AS comm, c.seq, c.module_id AS module,"
     " c.step, c.enqueue_ns - :zero AS enqueued, c.start_ns - :zero AS start, c.end_ns - :zero AS \"end\", c.stream,"
     " c.reduction FROM collective AS c WHERE c.rank = :rank AND ((SELECT count(*) FROM collective) <= " ROWS_MOST
     " OR c.step IN (SELECT step FROM held)) ORDER BY coalesce(c.start_ns, c.enqueue_ns), c.id",
     false, NULL},
    {"collective_totals",
     "SELECT rank, operation, count(*) AS calls, sum(bytes) AS bytes, sum((end_ns - start_ns) / kernel_calls) AS busy,"
     " count(start_ns) AS timed FROM collective WHERE rank = :rank GROUP BY operation ORDER BY operation",
     false, NULL},
    {"collective_repeats", /* those of steps that left their rows to another one */
     "SELECT rank, operation, sum(calls) AS calls, sum(bytes) AS bytes, sum(duration_ns) AS busy, sum(timed) AS timed"
     " FROM collective_total WHERE rank = :rank GROUP BY operation ORDER BY operation",
     false, "collective_total"},
    {"device_samples",
     "WITH kept AS (SELECT d.*, row_number() OVER (ORDER BY d.at_ns) AS place, count(*) OVER () AS samples,"
     "  max(d.used_bytes) OVER () AS most FROM device_sample AS d JOIN rank AS r ON r.rank = d.rank"
     "  AND r.device IS d.device WHERE d.rank = :rank)"
     " SELECT rank, at_ns - :zero AS at, total_bytes AS total, used_bytes AS used, samples FROM kept"
     " WHERE place IN (1, samples) OR used_bytes = most OR place % (1 + samples / 1000) = 0 ORDER BY at_ns",
     false, NULL},
    {"device_balance",
     "SELECT b.rank, b.at_ns - :zero AS at, b.owner, b.bytes FROM device_balance AS b JOIN rank AS r ON r.rank = b.rank"
     " AND r.device IS b.device WHERE b.rank = :rank AND b.owner <> 'used' ORDER BY b.at_ns",
     false, NULL},
    {"device_meaning",
     "WITH " SL_SQL_KNOWN " SELECT o.owner, " SL_SQL_MEANING " AS meaning FROM (SELECT owner FROM device_owner UNION"
     " SELECT 'unexplained') AS o LEFT JOIN known AS k ON k.owner = o.owner ORDER BY " SL_SQL_PLACE ", o.owner",
     true, NULL},
    {"oom",
     "SELECT o.rank, o.at_ns - :zero AS at, o.requested_bytes AS requested, " SL_SQL_WANTED
     " AS wanted, o.free_bytes AS free,"
     " o.allocated_bytes AS allocated, o.reserved_bytes AS reserved, o.largest_free_bytes AS largest_free, o.source,"
     " o.step, " SL_SQL_CHAIN("o.phase_id") " AS place FROM oom AS o WHERE o.rank = :rank ORDER BY o.at_ns",
     false, NULL},
    {"gaps", "SELECT rank, at_ns - :zero AS at, source, lost, reason FROM gap WHERE rank = :rank ORDER BY at_ns", false,
     NULL},
    {"sources",
     "SELECT rank, source, state, reason, at_ns - :zero AS at FROM source WHERE rank = :rank AND state <> 'on' AND "
     "reason <> 'the process ends'"
     " ORDER BY at_ns",
     false, NULL},
};

static void write_value(FILE *json, struct sl_statement *row, int column) {
  switch (sl_column_type(row, column)) {
  case SL_VALUE_null: fputs("null", json); break;
  case SL_VALUE_int: fprintf(json, "%" PRId64, sl_column_int(row, column)); break;
  case SL_VALUE_double: fprintf(json, "%.17g", sl_column_double(row, column)); break;
  default: sl_json_text(json, sl_column_text(row, column));
  }
}

struct rows {
  const struct page_table *table;
  bool named;    /* its columns are written */
  int64_t count; /* rows so far */
};

static int write_rows(struct sl_page *page, int64_t rank, int64_t zero_ns, void *context, struct sl_error *error) {
  struct rows *rows = context;
  const char *sql = rows->table->sql;
  struct sl_statement *row = NULL;
  int r = sl_db_prepare(page->db, sql, &row, error);
  if (r < 0)
    return r;
  if (strstr(sql, ":rank"))
    sl_bind_named_int(row, ":rank", rank);
  if (strstr(sql, ":zero"))
    sl_bind_named_int(row, ":zero", zero_ns);
  if (strstr(sql, ":step"))
    sl_bind_named_int(row, ":step", page->step);
  if (strstr(sql, ":text"))
    sl_bind_named_int(row, ":text", 1);
  if (!rows->named) {
    for (int i = 0; i < sl_column_count(row); i++) {
      fputc(i ? ',' : '[', page->json);
      sl_json_text(page->json, sl_column_name(row, i));
    }
    fputs("],\"rows\":[", page->json);
    rows->named = true;
  }
  while ((r = sl_statement_step(row, error)) > 0) {
    fputs(rows->count++ ? ",\n[" : "[", page->json);
    for (int i = 0; i < sl_column_count(row); i++) {
      if (i)
        fputc(',', page->json);
      write_value(page->json, row, i);
    }
    fputc(']', page->json);
    sl_page_progress(page, 1);
  }
  row = sl_statement_close(row);
  return r;
}

static int count_tables(struct sl_page *page, const char *name, int64_t *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r =
      sl_db_prepare(page->db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = :name", &row, error);
  if (r < 0)
    return r;
  sl_bind_named_text(row, ":name", name);
  r = sl_statement_step(row, error);
  *out = r > 0 ? sl_column_int(row, 0) : 0;
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

int sl_page_tables(struct sl_page *page, struct sl_error *error) {
  int r = sl_add_segment_function(page->db, error);
  for (size_t i = 0; r == 0 && i < sizeof(tables) / sizeof(tables[0]); i++) {
    struct rows rows = {.table = &tables[i]};
    int64_t there = 1;
    fprintf(page->json, ",\"%s\":{\"columns\":", tables[i].name);
    if (tables[i].needs)
      r = count_tables(page, tables[i].needs, &there, error);
    if (r == 0 && there)
      r = tables[i].once ? write_rows(page, 0, page->first_ns, &rows, error)
                         : sl_page_each_rank(page, write_rows, &rows, error);
    fputs(rows.named ? "]}" : "[],\"rows\":[]}", page->json);
  }
  return r;
}
