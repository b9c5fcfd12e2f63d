/* NCCL's calls: what they moved, how long they took, and who was late. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/nccl_groups.h"
#include "commands/nccl_totals.h"
#include "commands/summary.h"
#include "output/units.h"
#include "storage/tables/db.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum view { VIEW_default = -1, VIEW_operation, VIEW_module, VIEW_communicator };

struct selection {
  int view;                    /* enum view */
  int64_t slowest, step, rank; /* -1: not given */
};

struct nccl_report {
  struct sl_db *db;
  struct sl_output *out;
  struct sl_error *error;
  const struct selection *selection;
  const struct sl_nccl_calls *calls;
  struct sl_nccl_totals totals; /* of steps whose calls are not among these */
};

#define COUNT(columns) ((int)(sizeof(columns) / sizeof((columns)[0])))

static void cell_number(struct sl_table *table, int64_t number) {
  if (number == SL_NO_NUMBER)
    sl_cell_null(table);
  else
    sl_cell_int(table, number);
}

static void cell_comm(struct sl_table *table, int64_t comm, const char *unknown) {
  char text[24];
  snprintf(text, sizeof text, "%016" PRIx64, (uint64_t)comm);
  sl_cell_text(table, comm == SL_NO_NUMBER ? unknown : text);
}

/* Two cells: rounded for text, and the exact number. */
static void cell_rate(struct sl_table *table, double bytes_per_ns) {
  char text[48];
  snprintf(text, sizeof text, "%.1f", bytes_per_ns);
  sl_cell_text(table, bytes_per_ns < 0 ? NULL : text);
  if (bytes_per_ns < 0)
    sl_cell_null(table);
  else
    sl_cell_double(table, bytes_per_ns);
}

static bool is_selected(const struct selection *selection, const struct sl_nccl_call *call) {
  return (selection->rank < 0 || call->rank == selection->rank) &&
         (selection->step < 0 || call->step == selection->step);
}

/* In text a root without a name goes by its class; in data it is what it is. */
static const char *module_name(const struct nccl_report *report, int module) {
  const struct sl_nccl_module *named = module < 0 ? NULL : &report->calls->modules[module];
  return !named ? NULL : report->out->format == SL_FORMAT_text ? named->text : named->fqn;
}

/* ---- groups of calls ---- */

#define COST_COLUMNS                                                                                                   \
  {"ranks", "Ranks", SL_UNIT_number, 0}, {"calls", "Calls", SL_UNIT_number, 0},                                        \
      {"calls_timed", "Timed", SL_UNIT_number, SL_COLUMN_HIDE_EMPTY}, {"bytes", "Bytes", SL_UNIT_bytes, 0},            \
      {"duration_ns", "Time", SL_UNIT_duration, 0}, {"median_ns", "Median", SL_UNIT_duration, 0},                      \
      {"exposed_ns", "Exposed", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},                                               \
      {"exposed_share", "Share", SL_UNIT_share, SL_COLUMN_HIDE_EMPTY},                                                 \
      {"algorithm_gbs_text", "Alg GB/s", SL_UNIT_number, SL_COLUMN_TEXT_ONLY},                                         \
      {"algorithm_gbs", "", SL_UNIT_number, SL_COLUMN_DATA_ONLY},                                                      \
      {"bus_gbs_text", "Bus GB/s", SL_UNIT_number, SL_COLUMN_TEXT_ONLY},                                               \
      {"bus_gbs", "", SL_UNIT_number, SL_COLUMN_DATA_ONLY},                                                            \
      {"median_delay_ns", "Delay", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},                                            \
      {"median_spread_ns", "Spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY}, {                                        \
    "max_spread_ns", "Max spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY                                              \
  }

/* Whether text has to say how many calls are timed: times and bytes are then of different ones. */
static bool say_timed(const struct nccl_report *report, const struct sl_nccl_group *groups, size_t count) {
  bool differs = report->out->format != SL_FORMAT_text;
  for (size_t i = 0; i < count; i++)
    differs |= groups[i].timed != groups[i].count;
  return differs;
}

/* The cells of COST_COLUMNS. */
static void cells_cost(struct sl_table *table, const struct sl_nccl_group *group, bool timed) {
  sl_cell_int(table, group->ranks);
  sl_cell_int(table, group->count);
  cell_number(table, timed ? group->timed : SL_NO_NUMBER);
  cell_number(table, group->bytes);
  cell_number(table, group->total_ns < 0 ? SL_NO_NUMBER : llround(group->total_ns));
  cell_number(table, group->median_ns);
  cell_number(table, group->exposed_ns < 0 ? SL_NO_NUMBER : llround(group->exposed_ns));
  if (group->exposable_ns > 0)
    sl_cell_double(table, group->exposed_ns / group->exposable_ns);
  else
    sl_cell_null(table);
  cell_rate(table, group->algorithm_rate);
  cell_rate(table, group->bus_rate);
  cell_number(table, group->median_delay_ns);
  cell_number(table, group->median_spread_ns);
  cell_number(table, group->max_spread_ns);
}

static int groups_make(const struct nccl_report *report, enum sl_nccl_grouping grouping, struct sl_nccl_group **out,
                       size_t *count) {
  const struct selection *selection = report->selection;
  int r = sl_nccl_groups_make(report->calls, grouping, selection->rank, selection->step, out, count);
  if (r < 0)
    return sl_error_set(report->error, r, "out of memory");
  if (report->totals.calls && grouping != SL_NCCL_BY_MODULE)
    r = sl_nccl_totals_add(report->db, report->calls, grouping, selection->rank, selection->step, out, count,
                           report->error);
  if (r < 0) {
    free(*out);
    *out = NULL;
  }
  return r;
}

static int print_by_operation(const struct nccl_report *report) {
  static const struct sl_column columns[] = {{"operation", "Operation", SL_UNIT_text, 0}, COST_COLUMNS};
  struct sl_nccl_group *groups = NULL;
  size_t count;
  int r = groups_make(report, SL_NCCL_BY_OPERATION, &groups, &count);
  if (r < 0)
    return r;
  bool timed = say_timed(report, groups, count);
  struct sl_table *table = sl_table_begin(report->out, "operations", columns, COUNT(columns));
  for (size_t i = 0; i < count; i++) {
    sl_cell_text(table, groups[i].operation);
    cells_cost(table, &groups[i], timed);
  }
  table = sl_table_end(table);
  free(groups);
  return 0;
}

/* Modules of all ranks by their name; calls that serve none come last. */
static int print_by_module(const struct nccl_report *report) {
  static const struct sl_column columns[] = {
      {"module", "Module", SL_UNIT_text, 0}, {"operation", "Operation", SL_UNIT_text, 0}, COST_COLUMNS};
  struct sl_nccl_group *groups = NULL;
  size_t count;
  int r = groups_make(report, SL_NCCL_BY_MODULE, &groups, &count);
  if (r < 0)
    return r;
  bool timed = say_timed(report, groups, count);
  struct sl_table *table = sl_table_begin(report->out, "modules", columns, COUNT(columns));
  for (size_t i = 0; i < count; i++) {
    const char *name = module_name(report, groups[i].module);
    sl_cell_text(table, name ? name : report->out->format == SL_FORMAT_text ? "(none)" : NULL);
    sl_cell_text(table, groups[i].operation);
    cells_cost(table, &groups[i], timed);
  }
  table = sl_table_end(table);
  free(groups);
  return 0;
}

/* Name, size and device memory of a communicator: the most that any rank says. */
static int cells_communicator(struct sl_table *table, struct sl_statement *known, const struct sl_nccl_group *group,
                              struct sl_error *error) {
  if (group->comm == SL_NO_NUMBER)
    sl_bind_named_null(known, ":comm");
  else
    sl_bind_named_int(known, ":comm", group->comm);
  int r = sl_statement_step(known, error);
  if (r < 0)
    return r;
  cell_comm(table, group->comm, "(unknown)");
  sl_cell_column(table, known, 0);
  if (sl_column_is_null(known, 1))
    cell_number(table, group->nranks);
  else
    sl_cell_column(table, known, 1);
  sl_cell_column(table, known, 2);
  sl_statement_reset(known);
  return 0;
}

static int print_by_communicator(const struct nccl_report *report) {
  static const struct sl_column columns[] = {{"communicator", "Communicator", SL_UNIT_text, 0},
                                             {"name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
                                             {"nranks", "Size", SL_UNIT_number, 0},
                                             {"device_bytes", "Device memory", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
                                             COST_COLUMNS};
  struct sl_statement *known = NULL;
  struct sl_nccl_group *groups = NULL;
  struct sl_table *table = NULL;
  bool timed = false;
  size_t count;
  int r = groups_make(report, SL_NCCL_BY_COMMUNICATOR, &groups, &count);
  if (r == 0)
    r = sl_db_prepare(report->db,
                      "SELECT max(name), max(nranks), max(device_bytes) FROM communicator"
                      " WHERE comm = :comm AND (:rank IS NULL OR rank = :rank)",
                      &known, report->error);
  if (r < 0)
    goto finish;
  if (report->selection->rank < 0)
    sl_bind_named_null(known, ":rank");
  else
    sl_bind_named_int(known, ":rank", report->selection->rank);
  timed = say_timed(report, groups, count);
  table = sl_table_begin(report->out, "communicators", columns, COUNT(columns));
  for (size_t i = 0; i < count && r == 0; i++) {
    r = cells_communicator(table, known, &groups[i], report->error);
    if (r == 0)
      cells_cost(table, &groups[i], timed);
  }
  table = sl_table_end(table);
finish:
  known = sl_statement_close(known);
  free(groups);
  return r;
}

/* ---- single collectives ---- */

static int slower(const void *a, const void *b) {
  const struct sl_nccl_call *one = *(const struct sl_nccl_call *const *)a;
  const struct sl_nccl_call *other = *(const struct sl_nccl_call *const *)b;
  int64_t x = sl_nccl_duration(one), y = sl_nccl_duration(other);
  if (x != y)
    return x > y ? -1 : 1;
  return (one->id > other->id) - (one->id < other->id);
}

/* One row for all ranks of a collective: what took longest on any of them. */
static int print_slowest(const struct nccl_report *report) {
  static const struct sl_column columns[] = {
      {"step", "Step", SL_UNIT_number, 0},
      {"communicator", "Communicator", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"seq", "Seq", SL_UNIT_number, 0},
      {"operation", "Operation", SL_UNIT_text, 0},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"duration_ns", "Time", SL_UNIT_duration, 0},
      {"slowest_rank", "On rank", SL_UNIT_number, 0},
      {"exposed_ns", "Exposed", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
      {"transfer_ns", "Transfer", SL_UNIT_duration, 0},
      {"bus_gbs_text", "Bus GB/s", SL_UNIT_number, SL_COLUMN_TEXT_ONLY},
      {"bus_gbs", "", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"spread_ns", "Spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
      {"last_rank", "Last rank", SL_UNIT_number, 0},
  };
  const struct sl_nccl_calls *calls = report->calls;
  const struct selection *selection = report->selection;
  const struct sl_nccl_call **slow = malloc((calls->meeting_count + 1) * sizeof *slow);
  size_t count = 0, meeting = SIZE_MAX;
  if (!slow)
    return sl_no_memory(report->error);
  for (size_t i = 0; i < calls->count; i++) {
    const struct sl_nccl_call *call = &calls->calls[i];
    if (!is_selected(selection, call) || sl_nccl_duration(call) == SL_NO_NUMBER)
      continue;
    if (call->meeting != meeting)
      slow[count++] = call;
    else if (sl_nccl_duration(call) > sl_nccl_duration(slow[count - 1]))
      slow[count - 1] = call;
    meeting = call->meeting;
  }
  qsort(slow, count, sizeof *slow, slower);
  struct sl_table *table = sl_table_begin(report->out, "slowest", columns, COUNT(columns));
  for (size_t i = 0; i < count && (int64_t)i < selection->slowest; i++) {
    const struct sl_nccl_call *call = slow[i];
    const struct sl_nccl_meeting *met = &calls->meetings[call->meeting];
    double bus_bytes = sl_nccl_bus_bytes(calls, call);
    cell_number(table, call->step);
    cell_comm(table, call->comm, NULL);
    cell_number(table, call->seq);
    sl_cell_text(table, calls->operations[call->operation]);
    sl_cell_text(table, module_name(report, call->module));
    cell_number(table, call->bytes);
    sl_cell_int(table, sl_nccl_duration(call));
    sl_cell_int(table, call->rank);
    cell_number(table, call->exposed_ns);
    cell_number(table, met->transfer_ns < 0 ? SL_NO_NUMBER : (int64_t)met->transfer_ns);
    cell_rate(table, bus_bytes < 0 || met->transfer_ns <= 0 ? -1 : bus_bytes / met->transfer_ns);
    cell_number(table, sl_nccl_spread(met));
    cell_number(table, met->last_rank);
  }
  table = sl_table_end(table);
  free(slow);
  return 0;
}

/* ---- who was late ---- */

struct straggler {
  const struct sl_nccl_rank *rank;
  int64_t collectives, last, max_late_ns, others_waited_ns;
  double late_ns;
};

static int later(const void *a, const void *b) {
  const struct straggler *one = a, *other = b;
  if (one->others_waited_ns != other->others_waited_ns)
    return one->others_waited_ns > other->others_waited_ns ? -1 : 1;
  return (one->rank->rank > other->rank->rank) - (one->rank->rank < other->rank->rank);
}

static int print_stragglers(const struct nccl_report *report) {
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
  const struct sl_nccl_calls *calls = report->calls;
  struct straggler *stragglers = calloc((size_t)calls->rank_count + 1, sizeof *stragglers);
  if (!stragglers)
    return sl_no_memory(report->error);
  for (int i = 0; i < calls->rank_count; i++)
    stragglers[i].rank = &calls->ranks[i];
  for (size_t i = 0; i < calls->count; i++) {
    const struct sl_nccl_call *call = &calls->calls[i];
    const struct sl_nccl_meeting *met = &calls->meetings[call->meeting];
    int64_t spread_ns = sl_nccl_spread(met);
    if (spread_ns == SL_NO_NUMBER || call->place < 0)
      continue;
    struct straggler *straggler = &stragglers[call->place];
    straggler->collectives++;
    if (!sl_nccl_is_last(met, call))
      continue;
    straggler->last++;
    straggler->late_ns += (double)spread_ns;
    straggler->others_waited_ns += met->others_waited_ns;
    if (spread_ns > straggler->max_late_ns)
      straggler->max_late_ns = spread_ns;
  }
  qsort(stragglers, (size_t)calls->rank_count, sizeof *stragglers, later);
  struct sl_table *table = sl_table_begin(report->out, "stragglers", columns, COUNT(columns));
  for (int i = 0; i < calls->rank_count; i++) {
    const struct straggler *s = &stragglers[i];
    if (!s->collectives)
      continue;
    sl_cell_int(table, s->rank->rank);
    sl_cell_text(table, s->rank->host);
    sl_cell_int(table, s->collectives);
    sl_cell_int(table, s->last);
    sl_cell_double(table, (double)s->last / (double)s->collectives);
    cell_number(table, s->last ? (int64_t)(s->late_ns / (double)s->last) : SL_NO_NUMBER);
    cell_number(table, s->last ? s->max_late_ns : SL_NO_NUMBER);
    sl_cell_int(table, s->others_waited_ns);
  }
  table = sl_table_end(table);
  free(stragglers);
  return 0;
}

/* Of the time in the collectives that were asked for, what no computation hid; nothing where compute kernels were not
 * recorded. */
static void print_exposed(const struct nccl_report *report) {
  char exposed[SL_UNIT_CHARS], whole[SL_UNIT_CHARS], share[SL_UNIT_CHARS];
  double exposed_ns = 0, whole_ns = 0;
  for (size_t i = 0; i < report->calls->count; i++) {
    const struct sl_nccl_call *call = &report->calls->calls[i];
    if (!is_selected(report->selection, call) || sl_nccl_exposed_share(call) < 0 || sl_nccl_share(call) < 0)
      continue;
    exposed_ns += sl_nccl_exposed_share(call);
    whole_ns += sl_nccl_share(call);
  }
  if (whole_ns > 0)
    sl_output_line(report->out, "%s of %s in collectives are exposed (%s): no compute kernel ran beside them",
                   sl_format_duration(exposed, llround(exposed_ns)), sl_format_duration(whole, llround(whole_ns)),
                   sl_format_share(share, exposed_ns / whole_ns));
}

/* Why calls have no device times, most frequent first: "3 calls without: 2 captured in …, 1 launched …". */
static int print_untimed(const struct nccl_report *report) {
  static const struct {
    const char *word, *text;
  } reasons[] = {
      {"captured", "captured in CUDA graphs, whose replays are kernels without calls"},
      {"no_launch", "launched no kernel (copy engines, or one rank alone)"},
      {"untimed_step", "in steps without device times (SHARDLEDGER_STEPS)"},
      {"no_kernel", "launched, but the kernel was not recorded"},
      {"ambiguous", "in groups whose kernels can't be told apart"},
      {"not_recorded", "launches and kernels were not recorded, or don't match in number"},
  };
  struct sl_statement *rows = NULL;
  bool first = true;
  int r = sl_db_prepare(report->db,
                        "SELECT untimed, count(*) AS calls FROM collective WHERE untimed IS NOT NULL GROUP BY untimed"
                        " ORDER BY calls DESC",
                        &rows, report->error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(rows, report->error)) > 0) {
    const char *text = sl_column_text(rows, 0);
    for (int i = 0; i < COUNT(reasons); i++)
      if (strcmp(text, reasons[i].word) == 0)
        text = reasons[i].text;
    sl_output_line(report->out, "%s%" PRId64 ": %s", first ? "Without: " : "         ", sl_column_int(rows, 1), text);
    first = false;
  }
  rows = sl_statement_close(rows);
  return r;
}

/* What the numbers below do not contain. */
static int print_coverage(const struct nccl_report *report) {
  const struct sl_nccl_calls *calls = report->calls;
  int64_t joined = 0, kernels = 0;
  int aligned = 0;
  int r = sl_print_coverage(report->db, report->out, report->error);
  if (r == 0)
    r = sl_db_int(report->db, "SELECT count(*) FROM collective WHERE joined_by IS NOT NULL", &joined, report->error);
  if (r == 0)
    r = sl_db_int(report->db, "SELECT count(*) FROM kernel WHERE name GLOB '*nccl*Kernel*'", &kernels, report->error);
  if (r < 0)
    return r;
  for (int i = 0, host = -1; i < calls->rank_count; i++)
    if (calls->ranks[i].host_number > host) {
      host = calls->ranks[i].host_number;
      aligned += calls->ranks[i].offset_ns != SL_NO_NUMBER;
    }
  if (report->selection->step >= 0 || report->selection->rank >= 0)
    sl_output_line(report->out, "In the whole run:");
  if (!report->totals.calls)
    sl_output_line(report->out,
                   "%zu NCCL calls, %" PRId64 " with their time on the device; %" PRId64 " kernels of NCCL",
                   calls->count, joined, kernels);
  else {
    sl_output_line(report->out,
                   "%" PRId64 " NCCL calls, %" PRId64 " with their time on the device. %" PRId64
                   " are of steps that repeat another one and",
                   (int64_t)calls->count + report->totals.calls, joined + report->totals.timed, report->totals.calls);
    sl_output_line(
        report->out,
        "count in calls, bytes and time by operation and communicator; all else is of the steps kept in full");
  }
  r = print_untimed(report);
  if (r < 0)
    return r;
  if (calls->host_count > 1)
    sl_output_line(report->out,
                   "%d of %d hosts have their clocks aligned, by the ends of collectives; spreads leave the others out",
                   aligned, calls->host_count);
  print_exposed(report);
  if (calls->count == 0)
    sl_complain("no NCCL call is in the record; one GPU alone makes none");
  else if (joined == 0)
    sl_complain("no device times: CUPTI was off or taken, or --kernels none; 'shardledger info' says which");
  return 0;
}

static int print_tables(const struct nccl_report *report) {
  const struct selection *selection = report->selection;
  sl_output_line(report->out, "%s", "");
  if (selection->slowest >= 0)
    return print_slowest(report);
  switch ((enum view)selection->view) {
  case VIEW_operation: return print_by_operation(report);
  case VIEW_module: return print_by_module(report);
  case VIEW_communicator: return print_by_communicator(report);
  case VIEW_default: break;
  }
  sl_output_document(report->out);
  int r = print_by_operation(report);
  sl_output_line(report->out, "%s", "");
  if (r == 0)
    r = print_by_communicator(report);
  if (r < 0 || selection->step >= 0 || selection->rank >= 0)
    return r; /* who was late is a question to the whole run */
  sl_output_line(report->out, "%s", "");
  return print_stragglers(report);
}

static int print_nccl(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  struct sl_nccl_calls *calls = NULL;
  int r = sl_check_selection(db, selection->rank, selection->step, error);
  if (r == 0)
    r = sl_nccl_calls_read(db, &calls, error);
  if (r < 0)
    return r;
  struct nccl_report report = {db, out, error, context, calls, {0}};
  r = sl_nccl_totals_read(db, &report.totals, error);
  if (r == 0)
    r = print_coverage(&report);
  if (r == 0)
    r = print_tables(&report);
  calls = sl_nccl_calls_free(calls);
  return r;
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
  if (r >= 0 && selection.slowest >= 0 && selection.view != VIEW_default) {
    sl_complain("nccl: --slowest lists single collectives, --by adds them up: name one of the two");
    return SL_EXIT_USAGE;
  }
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_nccl, &selection);
}
