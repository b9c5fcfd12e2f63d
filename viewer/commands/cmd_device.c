/* The whole device, line by line: what the driver says is in use, and whose it is. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/device_around.h"
#include "commands/device_pinned.h"
#include "commands/device_queries.h"
#include "commands/device_segments.h"
#include "commands/peak_queries.h"
#include "commands/summary.h"
#include "output/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 12, STEPS_SIDE_BY_SIDE = 8 };

struct selection {
  const char *at; /* NULL, "peak", "last", or a step's number */
  int64_t rank;   /* -1: all */
  int by;         /* -1, or 0: step */
  int64_t step;   /* -1: at is a word */
  bool last;
  bool segments, oom;
  int64_t after_ns; /* so long after the rank's beginning; -1: not asked for */
};

/* The sample of each rank to show. Parameters: :rank, :step (NULL: none), :last. */
#define SQL_SAMPLE                                                                                                     \
  "sample AS (SELECT d.* FROM rank AS r LEFT JOIN step AS s ON s.rank = r.rank AND s.step = :step"                     \
  " JOIN device_sample AS d ON d.rowid = CASE"                                                                         \
  "  WHEN :step IS NOT NULL THEN (SELECT rowid FROM device_sample AS o WHERE o.rank = r.rank AND o.device IS r.device" \
  "   AND o.at_ns BETWEEN s.start_ns AND s.end_ns ORDER BY o.sampled_by = 'nvml', o.at_ns DESC LIMIT 1)"               \
  "  WHEN :last THEN (SELECT rowid FROM device_sample AS o WHERE o.rank = r.rank AND o.device IS r.device"             \
  "   ORDER BY o.at_ns DESC LIMIT 1)"                                                                                  \
  "  ELSE (SELECT rowid FROM device_sample AS o WHERE o.rank = r.rank AND o.device IS r.device"                        \
  "   ORDER BY o.used_bytes DESC, o.at_ns DESC LIMIT 1) END"                                                           \
  " WHERE :rank IS NULL OR r.rank = :rank)"

static void bind_sample(struct sl_statement *statement, const struct selection *selection) {
  sl_bind_optional(statement, ":rank", selection->rank);
  sl_bind_optional(statement, ":step", selection->step);
  sl_bind_named_int(statement, ":last", selection->last);
}

/* ---- used = … ---- */

struct moment { /* the sample of the rank that the text is about */
  int64_t rank, ranks, device, at_ns, used_bytes, total_bytes, reserved_bytes, step;
  bool in_step;
  bool by_nvml;
  bool
      tensors_only; /* cudaMallocAsync, uncached: reserved_bytes are the tensors', and what a pool keeps is not known */
};

static int read_moment(struct sl_db *db, const struct selection *selection, struct moment *out,
                       struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_prepare(
      db,
      "WITH " SQL_SAMPLE " SELECT p.rank, count(*) OVER (), p.device, p.at_ns, p.used_bytes,"
      " p.total_bytes, (SELECT sum(bytes) FROM device_owner AS o WHERE o.rank = p.rank AND o.at_ns ="
      "  p.at_ns AND o.device = p.device AND owner IN ('allocated', 'cublas_workspace', 'pending', "
      "'cached', 'private_pools', 'pytorch', 'pytorch_other')),"
      " (SELECT iif(start_ns <= p.at_ns, step, NULL) FROM step AS s WHERE s.rank = p.rank AND end_ns >= p.at_ns"
      "  ORDER BY end_ns LIMIT 1),"
      " (SELECT allocator_backend IN ('cudaMallocAsync', 'uncached') FROM rank AS r WHERE r.rank = p.rank),"
      " p.sampled_by = 'nvml'"
      " FROM sample AS p ORDER BY p.used_bytes DESC, p.rank LIMIT 1",
      &statement, error);
  if (r < 0)
    return r;
  bind_sample(statement, selection);
  r = sl_statement_step(statement, error);
  if (r > 0)
    *out = (struct moment){.rank = sl_column_int(statement, 0),
                           .ranks = sl_column_int(statement, 1),
                           .device = sl_column_int(statement, 2),
                           .at_ns = sl_column_int(statement, 3),
                           .used_bytes = sl_column_int(statement, 4),
                           .total_bytes = sl_column_int(statement, 5),
                           .reserved_bytes = sl_column_int(statement, 6),
                           .step = sl_column_int(statement, 7),
                           .in_step = !sl_column_is_null(statement, 7),
                           .tensors_only = sl_column_int(statement, 8),
                           .by_nvml = sl_column_int(statement, 9)};
  statement = sl_statement_close(statement);
  return r;
}

static void print_headline(struct sl_output *out, const struct selection *selection, const struct moment *moment) {
  char used[SL_UNIT_CHARS], total[SL_UNIT_CHARS], pytorch[SL_UNIT_CHARS], rest[SL_UNIT_CHARS], when[64] = "";
  if (moment->in_step)
    snprintf(when, sizeof when, " in step %" PRId64, moment->step);
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "%s of %s in use on rank %" PRId64 "'s GPU %" PRId64 "%s%s",
                   sl_format_bytes(used, moment->used_bytes, out->exact_bytes),
                   sl_format_bytes(total, moment->total_bytes, out->exact_bytes), moment->rank, moment->device, when,
                   selection->step >= 0 || selection->last ? "" : ", the highest sample");
  sl_output_line(out, "     %s %s by PyTorch, %s beyond it",
                 sl_format_bytes(pytorch, moment->reserved_bytes, out->exact_bytes),
                 moment->tensors_only ? "allocated" : "reserved",
                 sl_format_bytes(rest, moment->used_bytes - moment->reserved_bytes, out->exact_bytes));
  if (moment->by_nvml)
    sl_output_line(out, "     Sampled by NVML beside the program: what is unexplained may be off by calls under way");
  if (moment->ranks > 1)
    sl_output_line(out, "     Rank %" PRId64 " of %" PRId64 "%s", moment->rank, moment->ranks,
                   ", the one that uses most; the others with --rank R");
  sl_output_line(out, "%s", "");
}

static int print_balance(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"device", "GPU", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"at_ns", "At", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"owner", "Owner", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"share", "Share", SL_UNIT_share, 0},
      {"meaning", "What it is", SL_UNIT_text, SL_COLUMN_SENTENCE},
  };
  struct sl_statement *samples = NULL, *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sl_db_prepare(db, "WITH " SQL_SAMPLE " SELECT rank, device, at_ns, used_bytes FROM sample ORDER BY rank",
                        &samples, error);
  /* Asked sample by sample with the numbers bound, since only then SQLite takes them inside the view. */
  if (r == 0)
    r = sl_db_prepare(db,
                      "WITH " SL_SQL_KNOWN
                      " SELECT b.rank, b.device, b.at_ns, b.owner, b.bytes, b.bytes * 1.0 / :used, " SL_SQL_MEANING
                      " FROM device_balance AS b LEFT JOIN known AS k ON k.owner = b.owner"
                      " WHERE b.rank = :rank AND b.device = :device AND b.at_ns = :at"
                      " ORDER BY " SL_SQL_PLACE ", b.bytes DESC",
                      &statement, error);
  if (r < 0)
    goto finish;
  bind_sample(samples, selection);
  table = sl_table_begin(out, "balance", columns, sizeof columns / sizeof columns[0]);
  while (rows >= 0 && (r = sl_statement_step(samples, error)) > 0) {
    sl_bind_named_int(statement, ":rank", sl_column_int(samples, 0));
    sl_bind_named_int(statement, ":device", sl_column_int(samples, 1));
    sl_bind_named_int(statement, ":at", sl_column_int(samples, 2));
    sl_bind_named_int(statement, ":used", sl_column_int(samples, 3));
    rows = sl_table_rows(table, statement, error);
  }
  table = sl_table_end(table);
finish:
  samples = sl_statement_close(samples);
  statement = sl_statement_close(statement);
  return rows < 0 ? (int)rows : r;
}

/* ---- one table from SQL, with a heading that stands only above rows ---- */

static int print_table(struct sl_db *db, struct sl_output *out, const char *name, const char *heading,
                       const struct sl_column *columns, int count, const char *sql, const struct moment *moment,
                       struct sl_error *error) {
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sl_db_prepare(db, sql, &statement, error);
  if (r < 0)
    return r;
  sl_bind_named_int(statement, ":rank", moment->rank);
  if (strstr(sql, ":at"))
    sl_bind_named_int(statement, ":at", moment->at_ns);
  r = sl_statement_step(statement, error);
  if (r > 0 || (r == 0 && out->format != SL_FORMAT_text)) {
    sl_output_line(out, "%s", "");
    if (heading)
      sl_output_styled(out, SL_STYLE_bold, "%s", heading);
    table = sl_table_begin(out, name, columns, count);
    for (; r > 0; r = sl_statement_step(statement, error))
      if (rows++ < LARGEST || out->format != SL_FORMAT_text)
        for (int i = 0; i < count; i++)
          sl_cell_column(table, statement, i);
    table = sl_table_end(table);
    if (rows > LARGEST)
      sl_output_line(out, "and %" PRId64 " smaller, in --json", rows - LARGEST);
  }
  statement = sl_statement_close(statement);
  return r;
}

/* NCCL's line by communicator, where there are several: the most that each held. */
static int print_communicators(struct sl_db *db, struct sl_output *out, const struct moment *moment,
                               struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"communicator", "NCCL's communicator", SL_UNIT_text, 0},
      {"name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"ranks", "Ranks", SL_UNIT_number, 0},
      {"bytes", "At most", SL_UNIT_bytes, 0},
  };
  return print_table(db, out, "communicators", NULL, columns, sizeof columns / sizeof columns[0],
                     "SELECT rank, printf('%x', comm), name, nranks, device_bytes FROM communicator WHERE rank = :rank"
                     " AND device_bytes > 0 AND (SELECT count(*) FROM communicator WHERE rank = :rank) > 1"
                     " ORDER BY device_bytes DESC, comm",
                     moment, error);
}

/* ---- what made it grow ---- */

/* The innermost range that means something, in words. */
#define SQL_WHERE                                                                                                      \
  "coalesce((WITH RECURSIVE around(id, depth) AS (SELECT g.phase_id, 0 UNION ALL SELECT p.parent_id, depth + 1"        \
  "   FROM around JOIN phase AS p ON p.id = around.id WHERE p.kind = 'user' AND p.parent_id IS NOT NULL)"              \
  "  SELECT CASE WHEN p.kind IN ('forward', 'backward', 'recompute', 'eval') THEN p.kind ||"                           \
  "    coalesce(' of ' || n.name, '') WHEN p.kind = 'step' THEN 'step' ELSE p.name END"                                \
  "   FROM around JOIN phase AS p ON p.id = around.id LEFT JOIN module_name AS n ON n.id = p.module_id"                \
  "   ORDER BY depth DESC LIMIT 1), 'outside of any range')"

static int print_growth(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"owner", "Owner", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"count", "Times", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"where", "In", SL_UNIT_text, 0},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"cause", "Came with", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"first_ns", "First", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
  };
  return print_table(
      db, out, "growth", "What came, beyond PyTorch's own (of GPU code the images' size)", columns,
      sizeof columns / sizeof columns[0],
      "WITH came AS ("
      " SELECT CASE WHEN owner GLOB 'libnccl*' THEN 'nccl' WHEN owner GLOB 'libcublas*' THEN 'cublas'"
      "  WHEN owner GLOB 'libcudnn*' THEN 'cudnn' ELSE owner END AS owner, bytes, step, phase_id, module_id,"
      "  alloc_ns AS at_ns FROM segment WHERE rank = :rank AND owner <> 'pytorch'"
      " UNION ALL SELECT 'gpu_code', image_bytes, step, phase_id, module_id, at_ns FROM gpu_code"
      "  WHERE rank = :rank AND loaded),"
      /* NCCL allocates for communicators that are made, and for an operation when a communicator first runs it. */
      " firsts AS MATERIALIZED (SELECT operation, min(enqueue_ns) AS at_ns FROM collective WHERE rank = :rank"
      "  GROUP BY operation, comm)"
      " SELECT :rank, owner, bytes, times, step, place, (SELECT name FROM module_name AS n WHERE n.id = module_id), "
      "cause,"
      "  first_ns FROM (SELECT owner, sum(bytes) AS bytes, count(*) AS times, step, place, max(module_id) AS module_id,"
      "  cause, min(at_ns) AS first_ns"
      " FROM (SELECT g.*, " SQL_WHERE " AS place, CASE WHEN owner <> 'nccl' THEN NULL"
      "   WHEN EXISTS (SELECT 1 FROM communicator AS k WHERE k.rank = :rank AND g.at_ns BETWEEN k.start_ns AND "
      "k.end_ns)"
      "    THEN 'a new communicator'"
      "   ELSE (SELECT 'the first ' || operation FROM firsts AS f WHERE f.at_ns <= g.at_ns ORDER BY f.at_ns DESC LIMIT "
      "1)"
      "   END AS cause"
      "  FROM came AS g) GROUP BY owner, step, place, cause) ORDER BY bytes DESC, first_ns",
      moment, error);
}

/* ---- fragmentation ---- */

static int print_cache(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"segment_bytes", "Segment", SL_UNIT_bytes, 0},
      {"live_bytes", "Live in it", SL_UNIT_bytes, 0},
      {"allocation", "Kept by", SL_UNIT_number, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"category", "Category", SL_UNIT_text, 0},
      {"name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"step", "Made in step", SL_UNIT_number, 0},
  };
  struct sl_statement *statement = NULL;
  char cached[SL_UNIT_CHARS], largest[SL_UNIT_CHARS], split[SL_UNIT_CHARS];
  int r = sl_db_prepare(db,
                        "WITH near AS (SELECT * FROM (SELECT * FROM step WHERE rank = :rank AND end_ns <= :at"
                        "   AND end_reserved_bytes IS NOT NULL ORDER BY end_ns DESC LIMIT 1)"
                        "  UNION ALL SELECT * FROM (SELECT * FROM step WHERE rank = :rank AND end_ns > :at"
                        "   AND end_reserved_bytes IS NOT NULL ORDER BY end_ns LIMIT 1))"
                        " SELECT step, end_reserved_bytes - end_active_bytes, end_largest_free_bytes,"
                        " end_inactive_split_bytes FROM near ORDER BY abs(end_ns - :at) LIMIT 1",
                        &statement, error);
  if (r < 0)
    return r;
  sl_bind_named_int(statement, ":rank", moment->rank);
  sl_bind_named_int(statement, ":at", moment->at_ns);
  r = sl_statement_step(statement, error);
  if (r > 0) {
    sl_output_line(out, "%s", "");
    sl_output_styled(out, SL_STYLE_bold, "PyTorch's cache at the end of step %" PRId64, sl_column_int(statement, 0));
    sl_output_line(
        out,
        "%s free, the largest block %s; %s of it in segments that live memory keeps from being returned: --segments",
        sl_format_bytes(cached, sl_column_int(statement, 1), out->exact_bytes),
        sl_format_bytes(largest, sl_column_int(statement, 2), out->exact_bytes),
        sl_format_bytes(split, sl_column_int(statement, 3), out->exact_bytes));
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r
               : print_table(
                     db, out, "kept_segments", "Segments that are kept for less than a tenth of them", columns,
                     sizeof columns / sizeof columns[0],
                     "WITH alive AS MATERIALIZED (SELECT id, device, address, bytes, category, detail, name,"
                     "  module_id, step FROM allocation WHERE rank = :rank AND alloc_ns <= :at"
                     "  AND (complete_ns IS NULL OR complete_ns > :at)),"
                     " live AS (SELECT s.id AS segment, s.bytes AS segment_bytes, a.*,"
                     "  row_number() OVER (PARTITION BY s.id ORDER BY a.bytes DESC, a.id) AS place,"
                     "  sum(a.bytes) OVER (PARTITION BY s.id) AS live_bytes"
                     " FROM segment AS s JOIN alive AS a ON a.device = s.device"
                     "  AND a.address >= s.address AND a.address < s.address + s.bytes"
                     " WHERE s.rank = :rank AND s.owner = 'pytorch' AND s.alloc_ns <= :at"
                     "  AND (s.free_ns IS NULL OR s.free_ns > :at))"
                     " SELECT :rank, segment_bytes, live_bytes, l.id, l.bytes, category || coalesce('/' || detail, ''),"
                     "  l.name, n.name, l.step FROM live AS l LEFT JOIN module_name AS n ON n.id = l.module_id"
                     " WHERE place = 1 AND live_bytes * 10 < segment_bytes ORDER BY segment_bytes - live_bytes"
                     "  DESC, l.id",
                     moment, error);
}

/* ---- what should not be there ---- */

static int print_foreign(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},       {"own_device", "Its GPU", SL_UNIT_number, 0},
      {"device", "On GPU", SL_UNIT_number, 0},   {"owner", "Owner", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},      {"count", "Times", SL_UNIT_number, 0},
      {"first_ns", "First", SL_UNIT_instant, 0},
  };
  return print_table(db, out, "foreign_devices",
                     "On GPUs of others (a context alone takes about half a GiB of that GPU)", columns,
                     sizeof columns / sizeof columns[0],
                     "SELECT r.rank, r.device, s.device, s.owner, sum(s.bytes), count(*), min(s.alloc_ns)"
                     " FROM rank AS r JOIN segment AS s ON s.rank = r.rank AND s.device <> r.device"
                     " WHERE :rank IS NOT NULL GROUP BY r.rank, s.device, s.owner"
                     " UNION ALL SELECT r.rank, r.device, c.device, 'CUDA context', NULL, count(*), min(c.at_ns)"
                     " FROM rank AS r JOIN context AS c ON c.rank = r.rank AND c.device <> r.device AND c.created"
                     " WHERE :rank IS NOT NULL GROUP BY r.rank, c.device ORDER BY 1, 3, 5 DESC",
                     moment, error);
}

/* Beside the GPU's memory: what CPU offload, data loaders and libraries pin on the host. */
static int print_pinned(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"owner", "Owner", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"count", "Allocations", SL_UNIT_number, 0},
  };
  return print_table(db, out, "pinned", "Pinned host memory at that time (the host's, not the GPU's)", columns,
                     sizeof columns / sizeof columns[0],
                     "SELECT :rank, owner, sum(bytes), count(*) FROM host_segment WHERE rank = :rank"
                     " AND alloc_ns <= :at AND (free_ns IS NULL OR free_ns > :at) GROUP BY owner ORDER BY 3 DESC, 2",
                     moment, error);
}

/* What can't be told apart, and why. Text only. */
static int print_unknown(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_prepare(db,
                        "SELECT EXISTS(SELECT 1 FROM device_sample WHERE rank = :rank AND other_bytes IS NOT NULL),"
                        " (SELECT reason FROM source WHERE rank = :rank AND source = 'nvml' AND state = 'off'),"
                        " EXISTS(SELECT 1 FROM segment WHERE rank = :rank AND owner <> 'pytorch')",
                        &statement, error);
  if (r < 0)
    return r;
  sl_bind_named_int(statement, ":rank", moment->rank);
  r = sl_statement_step(statement, error);
  if (r > 0 && !(sl_column_int(statement, 0) && sl_column_int(statement, 2))) {
    sl_output_line(out, "%s", "");
    if (!sl_column_int(statement, 2))
      sl_output_line(out, "The driver's calls were not recorded: libraries count as the context's.");
    if (!sl_column_int(statement, 0))
      sl_output_line(out,
                     "Other processes on this GPU count as the context's, or as unexplained where they came later: %s.",
                     sl_column_is_null(statement, 1) ? "NVML was not asked" : sl_column_text(statement, 1));
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* ---- over time ---- */

/* The owners at the end of some steps: the first ones, the last one, and others evenly between. */
static int print_by_step(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  static const struct sl_column data_columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},  {"step", "Step", SL_UNIT_number, 0}, {"owner", "Owner", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0}, {"at_ns", "At", SL_UNIT_instant, 0},
  };
#define SQL_ENDS                                                                                                       \
  "ends AS (SELECT s.step, coalesce(max(d.at_ns) FILTER (WHERE d.sampled_by = 'driver'), max(d.at_ns)) AS at_ns FROM " \
  "step AS s"                                                                                                          \
  " JOIN device_sample AS d ON d.rank = s.rank AND d.at_ns BETWEEN s.start_ns AND s.end_ns WHERE s.rank = :rank"       \
  " GROUP BY s.step)"
#define SQL_LINES                                                                                                      \
  " lines AS (SELECT e.step, b.owner, b.bytes, b.at_ns, " SL_SQL_PLACE " AS line, e.number FROM picked AS e"           \
  "  JOIN device_balance AS b ON b.rank = :rank AND b.at_ns = e.at_ns LEFT JOIN known AS k ON k.owner = b.owner)"
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  struct sl_column columns[STEPS_SIDE_BY_SIDE + 1] = {{"owner", "Owner", SL_UNIT_text, 0}};
  char headers[STEPS_SIDE_BY_SIDE][32];
  int count = 1;
  int r = 0;

  if (out->format != SL_FORMAT_text) {
    r = sl_db_prepare(db,
                      "WITH " SL_SQL_KNOWN ", " SQL_ENDS ", picked AS (SELECT *, 0 AS number FROM ends)," SQL_LINES
                      " SELECT :rank, step, owner, bytes, at_ns FROM lines ORDER BY step, line, bytes DESC",
                      &statement, error);
    if (r < 0)
      return r;
    sl_bind_named_int(statement, ":rank", moment->rank);
    table = sl_table_begin(out, "steps", data_columns, sizeof data_columns / sizeof data_columns[0]);
    int64_t rows = sl_table_rows(table, statement, error);
    table = sl_table_end(table);
    statement = sl_statement_close(statement);
    return rows < 0 ? (int)rows : 0;
  }

#define SQL_PICKED                                                                                                     \
  " counted AS (SELECT *, row_number() OVER (ORDER BY step) - 1 AS place, count(*) OVER () AS n FROM ends),"           \
  " picked AS (SELECT step, at_ns, row_number() OVER (ORDER BY step) AS number FROM counted"                           \
  "  WHERE n <= 8 OR place < 3 OR place = n - 1 OR place IN (n / 5, 2 * n / 5, 3 * n / 5, 4 * n / 5))"
  r = sl_db_prepare(db, "WITH " SQL_ENDS "," SQL_PICKED " SELECT step FROM picked ORDER BY number LIMIT 8", &statement,
                    error);
  if (r < 0)
    return r;
  sl_bind_named_int(statement, ":rank", moment->rank);
  while ((r = sl_statement_step(statement, error)) > 0 && count <= STEPS_SIDE_BY_SIDE) {
    snprintf(headers[count - 1], sizeof headers[0], "Step %" PRId64, sl_column_int(statement, 0));
    columns[count] = (struct sl_column){"bytes", headers[count - 1], SL_UNIT_bytes, 0};
    count++;
  }
  statement = sl_statement_close(statement);
  if (r < 0)
    return r;
  r = sl_db_prepare(db,
                    "WITH " SL_SQL_KNOWN ", " SQL_ENDS "," SQL_PICKED "," SQL_LINES
                    " SELECT owner, sum(bytes) FILTER (WHERE number = 1), sum(bytes) FILTER (WHERE number = 2),"
                    " sum(bytes) FILTER (WHERE number = 3), sum(bytes) FILTER (WHERE number = 4), sum(bytes) FILTER "
                    "(WHERE number = 5),"
                    " sum(bytes) FILTER (WHERE number = 6), sum(bytes) FILTER (WHERE number = 7), sum(bytes) FILTER "
                    "(WHERE number = 8)"
                    " FROM lines GROUP BY owner ORDER BY min(line), max(bytes) DESC",
                    &statement, error);
  if (r < 0)
    return r;
  sl_bind_named_int(statement, ":rank", moment->rank);
  table = sl_table_begin(out, "steps", columns, count);
  while ((r = sl_statement_step(statement, error)) > 0)
    for (int i = 0; i < count; i++)
      sl_cell_column(table, statement, i);
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return r;
}

static int print_segments(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                          struct sl_error *error) {
  struct sl_segments_question question = {
      .at = selection->oom         ? SL_SEGMENTS_oom
            : selection->last      ? SL_SEGMENTS_last
            : selection->step >= 0 ? SL_SEGMENTS_step
            : selection->at        ? SL_SEGMENTS_peak
                                   : SL_SEGMENTS_fitting,
      .step = selection->step,
      .rank = selection->rank,
      .by_step = selection->by == 0,
  };
  return sl_print_segments(db, out, &question, error);
}

static int print_device(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct selection *selection = context;
  struct moment moment = {0};
  int r = sl_check_selection(db, selection->rank, selection->step, error);
  if (r < 0)
    return r;
  if (selection->segments)
    return print_segments(db, out, selection, error);
  r = sl_print_coverage(db, out, error);
  if (r == 0 && selection->after_ns >= 0)
    return sl_print_device_around(db, out, selection->rank, selection->after_ns, error);
  if (r == 0)
    r = read_moment(db, selection, &moment, error);
  if (r < 0)
    return r;
  if (r == 0) {
    int64_t samples = 0;
    r = sl_db_int(db, "SELECT count(*) FROM device_sample", &samples, error);
    return r < 0 ? r
                 : sl_error_set(error, -ENODATA, "%s",
                                samples ? "no sample of the device was taken there; 'shardledger device' without"
                                          " options shows one"
                                        : "the device was not sampled: NVML was not there, and no step ended");
  }
  print_headline(out, selection, &moment);
  if (selection->by == 0)
    return print_by_step(db, out, &moment, error);
  if (out->format == SL_FORMAT_text)
    selection->rank = moment.rank;
  sl_output_document(out);
  r = print_balance(db, out, selection, error);
  if (r == 0 && out->format == SL_FORMAT_text)
    r = print_unknown(db, out, &moment, error);
  if (r == 0)
    r = print_communicators(db, out, &moment, error);
  if (r == 0)
    r = print_growth(db, out, &moment, error);
  if (r == 0)
    r = print_cache(db, out, &moment, error);
  if (r == 0)
    r = print_pinned(db, out, &moment, error);
  if (r == 0)
    r = sl_print_pinned_life(db, out, moment.rank, error);
  return r < 0 ? r : print_foreign(db, out, &moment, error);
}

/* "12.5s", from the rank's beginning. */
static bool is_moment(const char *text, int64_t *out_ns) {
  char *end;
  if (!strchr("0123456789.", text[0]))
    return false;
  const double seconds = strtod(text, &end);
  if (end == text || strcmp(end, "s") != 0 || !(seconds >= 0 && seconds < 1e9))
    return false;
  *out_ns = (int64_t)(seconds * 1e9);
  return true;
}

int sl_cmd_device(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {.rank = -1, .by = -1, .step = -1, .after_ns = -1};
  const struct sl_argument arguments[] = {
      {"at", 0, "N|peak|last|oom|SECONDSs",
       "the end of step N, the highest sample (the default), the last one, or those before and after a moment, as "
       "12.5s "
       "after the rank's beginning; of segments, the highest allocated bytes, the last step's end, or where memory ran "
       "out",
       SL_ARGUMENT_TEXT, &selection.at},
      {"by", 0, "step", "over time: the end of each step, or of some where they are many", SL_ARGUMENT_CHOICE,
       &selection.by},
      {"segments", 0, NULL, "PyTorch's segments: what is in each, and what keeps it from being returned",
       SL_ARGUMENT_FLAG, &selection.segments},
      {"rank", 0, "R", "this rank only", SL_ARGUMENT_NUMBER, &selection.rank},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (selection.at && selection.by == 0) {
    sl_complain("device: --at shows one instant, --by step all steps: name one of the two");
    return SL_EXIT_USAGE;
  }
  if (selection.at && strcmp(selection.at, "last") == 0) {
    selection.last = true;
  } else if (selection.at && strcmp(selection.at, "oom") == 0) {
    if (!selection.segments) {
      sl_complain("--at oom goes with --segments; 'shardledger oom' has the device where memory ran out");
      return SL_EXIT_USAGE;
    }
    selection.oom = true;
  } else if (selection.at && strcmp(selection.at, "peak") != 0) {
    char *end;
    errno = 0;
    long long step = strtoll(selection.at, &end, 10);
    if (!selection.segments && is_moment(selection.at, &selection.after_ns))
      return sl_print_report(path, &format, print_device, &selection);
    if (errno || *end || end == selection.at || step < 0) {
      sl_complain("--at takes a step's number, %s, not '%s'",
                  selection.segments ? "peak, last or oom" : "peak, last, or seconds after the beginning as 12.5s",
                  selection.at);
      return SL_EXIT_USAGE;
    }
    selection.step = step;
  }
  return sl_print_report(path, &format, print_device, &selection);
}
