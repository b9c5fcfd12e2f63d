/* NCCL's calls: what they moved, how long they took, and who was late. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/nccl_parts.h"
#include "commands/summary.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <inttypes.h>
#include <string.h>

enum view { VIEW_default = -1, VIEW_operation, VIEW_module, VIEW_communicator };

struct selection {
  int view;              /* enum view */
  int64_t slowest, step; /* -1: not given */
  struct sl_ranks ranks;
};

/* What a group of calls cost: the last columns of each question by group. */
#define COST_COLUMNS                                                                                                   \
  {"ranks", "Ranks", SL_UNIT_number, 0}, {"calls", "Calls", SL_UNIT_number, 0},                                        \
      {"calls_timed", "Timed", SL_UNIT_number, SL_COLUMN_HIDE_EMPTY}, {"bytes", "Bytes", SL_UNIT_bytes, 0},            \
      {"duration_ns", "Time", SL_UNIT_duration, 0}, {"median_ns", "Median", SL_UNIT_duration, 0},                      \
      {"exposed_ns", "Exposed", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},                                               \
      {"exposed_share", "Share", SL_UNIT_share, SL_COLUMN_HIDE_EMPTY}, {"algorithm_gbs", "Alg GB/s", SL_UNIT_rate, 0}, \
      {"bus_gbs", "Bus GB/s", SL_UNIT_rate, 0}, {"median_delay_ns", "Delay", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},  \
      {"median_spread_ns", "Spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY}, {                                        \
    "max_spread_ns", "Max spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY                                              \
  }

static const struct sl_column operation_columns[] = {{"operation", "Operation", SL_UNIT_text, 0}, COST_COLUMNS};
static const struct sl_column module_columns[] = {
    {"module", "Module", SL_UNIT_text, 0}, {"operation", "Operation", SL_UNIT_text, 0}, COST_COLUMNS};
static const struct sl_column communicator_columns[] = {
    {"communicator", "Communicator", SL_UNIT_text, 0},
    {"name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"nranks", "Size", SL_UNIT_number, 0},
    {"device_bytes", "Device memory", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    COST_COLUMNS,
};
static const struct sl_column straggler_columns[] = {
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"ranks", "Rank", SL_UNIT_text, SL_COLUMN_TEXT_ONLY},
    {"host", "Host", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"collectives", "Met others in", SL_UNIT_number, 0},
    {"last", "Arrived last", SL_UNIT_number, 0},
    {"share", "Share", SL_UNIT_share, 0},
    {"mean_late_ns", "Late, mean", SL_UNIT_duration, 0},
    {"max_late_ns", "Late, most", SL_UNIT_duration, 0},
    {"others_waited_ns", "Others waited", SL_UNIT_duration, 0},
};
static const struct sl_column slowest_columns[] = {
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
    {"bus_gbs", "Bus GB/s", SL_UNIT_rate, 0},
    {"spread_ns", "Spread", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
    {"last_rank", "Last rank", SL_UNIT_number, 0},
};

#define MOST_ROWS 16 /* ranks and communicators that text shows */

static const struct sl_listing by_operation = {"operations", SL_COLUMNS(operation_columns), sl_sql_nccl_operations,
                                               .heading = NULL};
static const struct sl_listing by_module = {"modules", SL_COLUMNS(module_columns), sl_sql_nccl_modules,
                                            .heading = NULL};
static const struct sl_listing by_communicator = {"communicators", SL_COLUMNS(communicator_columns),
                                                  sl_sql_nccl_communicators, .most = MOST_ROWS};
static const struct sl_listing stragglers = {"stragglers", SL_COLUMNS(straggler_columns), sl_sql_nccl_stragglers,
                                             .most = 16, .by = "others_waited_ns"};
static const struct sl_listing slowest = {"slowest", SL_COLUMNS(slowest_columns), sl_sql_nccl_slowest,
                                          .most = SL_WHOLE};

/* Why calls have no device times, most frequent first: "3 calls without: 2 captured in …, 1 launched …". */
static int print_untimed(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
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
  const char *before = "Without: ";
  int r = sl_db_ask_first(db, sl_sql_nccl_untimed, NULL, &rows, error);
  for (; r > 0; r = sl_statement_step(rows, error), before = "         ") {
    const char *text = sl_column_text(rows, 0);
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
      if (strcmp(text, reasons[i].word) == 0)
        text = reasons[i].text;
    sl_output_line(out, "%s%" PRId64 ": %s", before, sl_column_int(rows, 1), text);
  }
  rows = sl_statement_close(rows);
  return r;
}

/* What the numbers below do not contain. */
static int print_coverage(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                          const struct sl_parameter *parameters, struct sl_error *error) {
  enum { CALLS, JOINED, KERNELS, REPEATED, REPEATED_TIMED, HOSTS, ALIGNED, EXPOSED, WHOLE, COUNTS };
  struct sl_statement *row = NULL;
  char exposed[SL_UNIT_CHARS], whole[SL_UNIT_CHARS], share[SL_UNIT_CHARS];
  int64_t n[COUNTS] = {0};
  double exposed_share = 0;
  int r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_db_ask_first(db, sl_sql_nccl_coverage, parameters, &row, error);
  for (int i = 0; i < COUNTS && r > 0; i++)
    n[i] = sl_column_int(row, i);
  exposed_share = r > 0 ? sl_column_double(row, COUNTS) : 0;
  row = sl_statement_close(row);
  if (r < 0)
    return r;
  if (selection->step >= 0 || selection->ranks.text)
    sl_output_line(out, "In the whole run:");
  if (!n[REPEATED]) {
    sl_output_line(out,
                   "%" PRId64 " NCCL calls, %" PRId64 " with their time on the device; %" PRId64 " kernels of NCCL",
                   n[CALLS], n[JOINED], n[KERNELS]);
  } else {
    sl_output_line(out,
                   "%" PRId64 " NCCL calls, %" PRId64 " with their time on the device. %" PRId64
                   " are of steps that repeat another one and",
                   n[CALLS] + n[REPEATED], n[JOINED] + n[REPEATED_TIMED], n[REPEATED]);
    sl_output_line(
        out, "count in calls, bytes and time by operation and communicator; all else is of the steps kept in full");
  }
  r = print_untimed(db, out, error);
  if (n[HOSTS] > 1)
    sl_output_line(out,
                   "%" PRId64 " of %" PRId64
                   " hosts have their clocks aligned, by the ends of collectives; spreads leave the others out",
                   n[ALIGNED], n[HOSTS]);
  if (n[WHOLE] > 0)
    sl_output_line(out, "%s of %s in collectives are exposed (%s): no compute kernel ran beside them",
                   sl_format_duration(exposed, n[EXPOSED]), sl_format_duration(whole, n[WHOLE]),
                   sl_format_share(share, exposed_share));
  if (n[CALLS] == 0)
    sl_complain("no NCCL call is in the record; one GPU alone makes none");
  else if (n[JOINED] == 0)
    sl_complain("no device times: CUPTI was off or taken, or --kernels none; 'shardledger info' says which");
  return r;
}

static int print_tables(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                        const struct sl_parameter *parameters, struct sl_error *error) {
  const struct sl_listing *all[] = {&by_operation, &by_communicator, &stragglers}, *one[] = {&slowest};
  const struct sl_listing **shown = one;
  int tables = 1;
  int64_t rows = 0;
  if (selection->slowest < 0)
    rows = sl_nccl_parts_make(db, parameters, error);
  if (selection->view != VIEW_default) {
    one[0] = (const struct sl_listing *[]){&by_operation, &by_module, &by_communicator}[selection->view];
  } else if (selection->slowest < 0) {
    shown = all;
    tables = selection->step >= 0 || selection->ranks.text ? 2 : 3; /* who was late is a question to the whole run */
    sl_output_document(out);
  }
  for (int i = 0; i < tables && rows >= 0; i++) {
    sl_output_line(out, "%s", "");
    rows = sl_print_listing(db, out, shown[i], parameters, error);
  }
  return rows < 0 ? (int)rows : 0;
}

static int print_nccl(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  const struct sl_parameter *parameters =
      SL_WITH(SL_RANKS(&selection->ranks), SL_GIVEN(":step", selection->step),
              SL_NUMBER(":slowest", selection->slowest), SL_NUMBER(":text", out->format == SL_FORMAT_text));
  int r = sl_check_selection(db, &selection->ranks, selection->step, error);
  if (r == 0)
    r = print_coverage(db, out, selection, parameters, error);
  return r < 0 ? r : print_tables(db, out, selection, parameters, error);
}

int sl_cmd_nccl(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {.view = VIEW_default, .slowest = -1, .step = -1};
  const struct sl_argument arguments[] = {
      {"by", 0, "operation|module|communicator", "one line each of these", SL_ARGUMENT_CHOICE, &selection.view},
      {"slowest", 0, "N", "the N collectives that took the longest", SL_ARGUMENT_NUMBER, &selection.slowest},
      {"step", 0, "N", "calls of this step only", SL_ARGUMENT_NUMBER, &selection.step},
      SL_RANKS_ARGUMENT(selection.ranks),
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
