#include "command.h"
#include "peak_queries.h"
#include "report.h"
#include "storage/db.h"
#include "summary.h"

#include <string.h>

enum view { VIEW_default = -1, VIEW_operation, VIEW_module, VIEW_communicator };

struct selection {
  int view;                    /* enum view */
  int64_t slowest, step, rank; /* -1: not given */
};

/*
 * The view compares each call with those of all other ranks, so it is evaluated once and its rows are kept for the
 * tables that are made of them.
 */
static const char cost_sql[] = "CREATE TEMP TABLE cost AS SELECT * FROM collective_cost";

/* The calls that the user asked for; rank and step may be NULL. */
#define CHOSEN                                                                                                         \
  "chosen AS MATERIALIZED (SELECT * FROM cost"                                                                         \
  " WHERE (:rank IS NULL OR rank = :rank) AND (:step IS NULL OR step = :step)),"

/*
 * One row for each group of calls: key is the expression that groups them. A collective is counted once a rank; bytes
 * and transfer times, which all its ranks have alike, are added up the same way, so that bandwidths are right. Medians
 * are of the ranks' calls.
 */
#define GROUPED(key)                                                                                                   \
  "WITH " CHOSEN " keyed AS (SELECT *, " key " AS key FROM chosen),"                                                   \
  "duration AS (SELECT key, duration_ns AS ns, row_number() OVER (PARTITION BY key ORDER BY duration_ns) AS place,"    \
  "  count(*) OVER (PARTITION BY key) AS n FROM keyed WHERE duration_ns IS NOT NULL),"                                 \
  "delay AS (SELECT key, delay_ns AS ns, row_number() OVER (PARTITION BY key ORDER BY delay_ns) AS place,"             \
  "  count(*) OVER (PARTITION BY key) AS n FROM keyed WHERE delay_ns IS NOT NULL),"                                    \
  "spread AS (SELECT key, spread_ns AS ns, row_number() OVER (PARTITION BY key ORDER BY spread_ns) AS place,"          \
  "  count(*) OVER (PARTITION BY key) AS n FROM keyed WHERE spread_ns IS NOT NULL),"                                   \
  "total AS (SELECT key, min(rank) AS any_rank, min(module_id) AS any_module, min(operation) AS any_operation,"        \
  "  min(comm) AS comm, count(DISTINCT rank) AS ranks, count(*) AS calls, count(duration_ns) AS timed,"                \
  "  sum(bytes) AS bytes, sum(share_ns) AS total_ns,"                                                                  \
  "  sum(algorithm_bytes) FILTER (WHERE transfer_ns > 0) / sum(transfer_ns) AS algorithm_rate,"                        \
  "  sum(bus_bytes) FILTER (WHERE transfer_ns > 0) / sum(transfer_ns) AS bus_rate,"                                    \
  "  max(spread_ns) AS max_spread_ns"                                                                                  \
  " FROM keyed GROUP BY key)"
#define MEDIAN(of) "(SELECT ns FROM " #of " AS m WHERE m.key = t.key AND m.place = (m.n + 1) / 2)"
#define RATE(name) "iif(t." name " IS NULL, NULL, printf('%.1f', t." name ")), t." name
/* The columns that all groups have, in the order of COST_COLUMNS. */
#define COSTS                                                                                                          \
  "t.ranks, t.calls, t.timed, t.bytes, cast(round(t.total_ns) AS INTEGER), " MEDIAN(duration) "," RATE(                \
      "algorithm_rate") "," RATE("bus_rate") "," MEDIAN(delay) "," MEDIAN(spread) ", t.max_spread_ns"

#define COST_COLUMNS                                                                                                   \
  {"ranks", "Ranks", SL_UNIT_number, 0}, {"calls", "Calls", SL_UNIT_number, 0},                                        \
      {"calls_timed", "Timed", SL_UNIT_number, SL_COLUMN_DATA_ONLY}, {"bytes", "Bytes", SL_UNIT_bytes, 0},             \
      {"duration_ns", "Time", SL_UNIT_duration, 0}, {"median_ns", "Median", SL_UNIT_duration, 0},                      \
      {"algorithm_gbs_text", "Alg GB/s", SL_UNIT_number, SL_COLUMN_TEXT_ONLY},                                         \
      {"algorithm_gbs", "", SL_UNIT_number, SL_COLUMN_DATA_ONLY},                                                      \
      {"bus_gbs_text", "Bus GB/s", SL_UNIT_number, SL_COLUMN_TEXT_ONLY},                                               \
      {"bus_gbs", "", SL_UNIT_number, SL_COLUMN_DATA_ONLY},                                                            \
      {"median_delay_ns", "Delay", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},                                            \
      {"median_spread_ns", "Spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY}, {                                        \
    "max_spread_ns", "Max spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY                                              \
  }

#define COUNT(columns) ((int)(sizeof(columns) / sizeof((columns)[0])))

static int print_query(struct sl_db *db, struct sl_output *out, const char *name, const struct sl_column *columns,
                       int count, const char *sql, const struct selection *selection, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sl_db_prepare(db, sql, &statement, error);
  if (r < 0)
    return r;
  if (strstr(sql, ":rank"))
    sl_bind_optional(statement, ":rank", selection->rank);
  if (strstr(sql, ":step"))
    sl_bind_optional(statement, ":step", selection->step);
  if (strstr(sql, ":limit"))
    sl_bind_named_int(statement, ":limit", selection->slowest);
  if (strstr(sql, ":text"))
    sl_bind_named_int(statement, ":text", out->format == SL_FORMAT_text);
  table = sl_table_begin(out, name, columns, count);
  rows = sl_table_rows(table, statement, error);
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return rows < 0 ? (int)rows : 0;
}

static int print_by_operation(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                              struct sl_error *error) {
  static const struct sl_column columns[] = {{"operation", "Operation", SL_UNIT_text, 0}, COST_COLUMNS};
  return print_query(db, out, "operations", columns, COUNT(columns),
                     GROUPED("operation") " SELECT t.key, " COSTS " FROM total AS t ORDER BY t.total_ns DESC, t.key",
                     selection, error);
}

/* Modules of all ranks by their name; calls that serve none come last. */
static int print_by_module(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                           struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"module", "Module", SL_UNIT_text, 0}, {"operation", "Operation", SL_UNIT_text, 0}, COST_COLUMNS};
  return print_query(
      db, out, "modules", columns, COUNT(columns),
      GROUPED("coalesce((SELECT m.fqn || '|' || coalesce(m.class, '') FROM module AS m WHERE m.id = module_id), '')"
              " || '|' || operation") " SELECT iif(m.id IS NULL, iif(:text, '(none)', NULL), " SL_SQL_FQN "),"
                                      " t.any_operation, " COSTS
                                      " FROM total AS t LEFT JOIN module AS m ON m.id = t.any_module"
                                      " ORDER BY m.id IS NULL, m.id & 1099511627775, t.any_operation",
      selection, error);
}

static int print_by_communicator(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                                 struct sl_error *error) {
  static const struct sl_column columns[] = {{"communicator", "Communicator", SL_UNIT_text, 0},
                                             {"name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
                                             {"nranks", "Size", SL_UNIT_number, 0},
                                             {"device_bytes", "Device memory", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
                                             COST_COLUMNS};
  return print_query(
      db, out, "communicators", columns, COUNT(columns),
      GROUPED("coalesce(comm, '')") ","
                                    "made AS (SELECT comm, max(nranks) AS nranks, max(name) AS name, max(device_bytes) "
                                    "AS device_bytes"
                                    " FROM communicator WHERE :rank IS NULL OR rank = :rank GROUP BY comm)"
                                    " SELECT iif(t.comm IS NULL, '(unknown)', printf('%016llx', t.comm)), k.name,"
                                    " coalesce(k.nranks, (SELECT max(nranks) FROM keyed WHERE keyed.key = t.key)), "
                                    "k.device_bytes, " COSTS " FROM total AS t LEFT JOIN made AS k ON k.comm = t.comm "
                                    "ORDER BY t.total_ns DESC, t.comm",
      selection, error);
}

/* Single collectives, one row for all ranks: what took longest on any of them. */
static int print_slowest(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"step", "Step", SL_UNIT_number, 0},
      {"communicator", "Communicator", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"seq", "Seq", SL_UNIT_number, 0},
      {"operation", "Operation", SL_UNIT_text, 0},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"duration_ns", "Time", SL_UNIT_duration, 0},
      {"slowest_rank", "On rank", SL_UNIT_number, 0},
      {"transfer_ns", "Transfer", SL_UNIT_duration, 0},
      {"bus_gbs_text", "Bus GB/s", SL_UNIT_number, SL_COLUMN_TEXT_ONLY},
      {"bus_gbs", "", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"spread_ns", "Spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
      {"last_rank", "Last rank", SL_UNIT_number, 0},
  };
  return print_query(
      db, out, "slowest", columns, COUNT(columns),
      "WITH " CHOSEN " slow AS (SELECT *, row_number() OVER"
      "  (PARTITION BY comm, seq, operation, iif(comm IS NULL OR spread_ns IS NULL, id, 0)"
      "   ORDER BY duration_ns DESC, rank) AS place FROM chosen WHERE duration_ns IS NOT NULL)"
      " SELECT s.step, printf('%016llx', s.comm), s.seq, s.operation, iif(m.id IS NULL, NULL, " SL_SQL_FQN "), s.bytes,"
      " s.duration_ns, s.rank, cast(s.transfer_ns AS INTEGER), iif(s.bus_bytes / s.transfer_ns IS NULL, NULL, "
      "printf('%.1f', s.bus_bytes / s.transfer_ns)),"
      " s.bus_bytes / s.transfer_ns, s.spread_ns,"
      " (SELECT l.rank FROM cost AS l WHERE l.comm = s.comm AND l.seq = s.seq AND l.operation = s.operation"
      "   AND l.is_last AND s.spread_ns IS NOT NULL LIMIT 1)"
      " FROM (SELECT * FROM slow WHERE place = 1 ORDER BY duration_ns DESC, id LIMIT :limit) AS s"
      " LEFT JOIN module AS m ON m.id = s.module_id ORDER BY s.duration_ns DESC, s.id",
      selection, error);
}

static int print_stragglers(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                            struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"host", "Host", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"collectives", "Met others in", SL_UNIT_number, 0},
      {"last", "Arrived last", SL_UNIT_number, 0},
      {"share", "Share", SL_UNIT_share, 0},
      {"mean_late_ns", "Late, mean", SL_UNIT_duration, 0},
      {"max_late_ns", "Late, most", SL_UNIT_duration, 0},
      {"others_waited_ns", "Others waited", SL_UNIT_duration, 0},
  };
  return print_query(
      db, out, "stragglers", columns, COUNT(columns),
      "SELECT s.rank, r.host, count(*), sum(is_last), avg(is_last),"
      " cast(avg(spread_ns) FILTER (WHERE is_last) AS INTEGER), max(spread_ns) FILTER (WHERE is_last),"
      " coalesce(sum(others_waited_ns), 0) AS waited FROM cost AS s LEFT JOIN rank AS r ON r.rank = s.rank"
      " WHERE spread_ns IS NOT NULL GROUP BY s.rank ORDER BY waited DESC, s.rank",
      selection, error);
}

/* What the numbers below do not contain. */
static int print_coverage(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  int64_t calls = 0, timed = 0, kernels = 0, hosts = 0, aligned = 0;
  int r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_db_int(db, "SELECT count(*) FROM collective", &calls, error);
  if (r == 0)
    r = sl_db_int(db, "SELECT count(*) FROM collective WHERE joined_by IS NOT NULL", &timed, error);
  if (r == 0)
    r = sl_db_int(db, "SELECT count(*) FROM kernel WHERE name GLOB '*nccl*Kernel*'", &kernels, error);
  if (r == 0)
    r = sl_db_int(db, "SELECT count(DISTINCT host) FROM rank", &hosts, error);
  if (r == 0)
    r = sl_db_int(db, "SELECT count(*) FROM host_clock", &aligned, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%lld NCCL calls, %lld with their time on the device; %lld kernels of NCCL", (long long)calls,
                 (long long)timed, (long long)kernels);
  if (hosts > 1)
    sl_output_line(
        out, "%lld of %lld hosts have their clocks aligned, by the ends of collectives; spreads leave the others out",
        (long long)aligned, (long long)hosts);
  if (calls == 0)
    sl_complain("no NCCL call is in the record; one GPU alone makes none");
  else if (timed == 0)
    sl_complain("no device times: CUPTI was off or taken, or --kernels none; 'shardledger info' says which");
  return 0;
}

static int print_nccl(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct selection *selection = context;
  int r = print_coverage(db, out, error);
  if (r == 0)
    r = sl_db_execute(db, cost_sql, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  if (selection->slowest >= 0)
    return print_slowest(db, out, selection, error);
  switch ((enum view)selection->view) {
  case VIEW_operation: return print_by_operation(db, out, selection, error);
  case VIEW_module: return print_by_module(db, out, selection, error);
  case VIEW_communicator: return print_by_communicator(db, out, selection, error);
  case VIEW_default: break;
  }
  sl_output_document(out);
  r = print_by_operation(db, out, selection, error);
  sl_output_line(out, "%s", "");
  if (r == 0)
    r = print_by_communicator(db, out, selection, error);
  if (r < 0 || selection->step >= 0 || selection->rank >= 0)
    return r; /* who was late is a question to the whole run */
  sl_output_line(out, "%s", "");
  return print_stragglers(db, out, selection, error);
}

int sl_cmd_nccl(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {VIEW_default, -1, -1, -1};
  const struct sl_argument arguments[] = {
      {"by", 0, "operation|module|communicator", "one line each of these", SL_ARGUMENT_CHOICE, &selection.view},
      {"slowest", 0, "N", "the N collectives that took longest", SL_ARGUMENT_NUMBER, &selection.slowest},
      {"step", 0, "N", "calls of this step only", SL_ARGUMENT_NUMBER, &selection.step},
      {"rank", 0, "R", "calls of this rank only", SL_ARGUMENT_NUMBER, &selection.rank},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_nccl, &selection);
}
