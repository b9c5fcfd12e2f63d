/* The whole device, line by line: what the driver says is in use, and whose it is. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/device_around.h"
#include "commands/device_pinned.h"
#include "commands/device_segments.h"
#include "commands/summary.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 12, STEPS_SIDE_BY_SIDE = 8 };

struct selection {
  const char *at; /* NULL, "peak", "last", or a step's number */
  struct sl_ranks ranks;
  int by;       /* -1, or 0: step */
  int64_t step; /* -1: at is a word */
  bool last;
  bool segments, oom;
  int64_t after_ns; /* so long after the rank's beginning; -1: not asked for */
};

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
  int r = sl_db_tell(
      db, sl_sql_device_choose,
      SL_WITH(SL_RANKS(&selection->ranks), SL_GIVEN(":step", selection->step), SL_NUMBER(":last", selection->last)),
      error);
  if (r == 0)
    r = sl_db_ask_first(db, sl_sql_device_moment, NULL, &statement, error);
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
  int r = sl_db_ask(db, sl_sql_device_samples, SL_WITH(SL_RANKS(&selection->ranks)), &samples, error);
  /* Asked sample by sample with the numbers bound, since only then SQLite takes them inside the view. */
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_device_balance, &statement, error);
  if (r < 0)
    goto finish;
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

/* ---- tables about one instant ---- */

static const struct sl_column communicator_columns[] = {
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"communicator", "NCCL's communicator", SL_UNIT_text, 0},
    {"name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"ranks", "Ranks", SL_UNIT_number, 0},
    {"bytes", "At most", SL_UNIT_bytes, 0},
};
static const struct sl_column growth_columns[] = {
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
static const struct sl_column kept_columns[] = {
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
static const struct sl_column foreign_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},       {"own_device", "Its GPU", SL_UNIT_number, 0},
    {"device", "On GPU", SL_UNIT_number, 0},   {"owner", "Owner", SL_UNIT_text, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},      {"count", "Times", SL_UNIT_number, 0},
    {"first_ns", "First", SL_UNIT_instant, 0},
};
static const struct sl_column pinned_columns[] = {
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"owner", "Owner", SL_UNIT_text, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"count", "Allocations", SL_UNIT_number, 0},
};

/* NCCL's line by communicator, where there are several: the most that each held. */
static const struct sl_listing communicators = {
    "communicators", SL_COLUMNS(communicator_columns), sl_sql_device_communicators, NULL, true, LARGEST, NULL};
/* What made it grow. */
static const struct sl_listing growth = {"growth",
                                         SL_COLUMNS(growth_columns),
                                         sl_sql_device_growth,
                                         "Growth outside PyTorch (GPU code: image size)",
                                         true,
                                         LARGEST,
                                         NULL};
static const struct sl_listing kept = {"kept_segments",
                                       SL_COLUMNS(kept_columns),
                                       sl_sql_device_kept_segments,
                                       "Segments that are kept for less than a tenth of them",
                                       true,
                                       LARGEST,
                                       NULL};
/* Beside the GPU's memory: what CPU offload, data loaders and libraries pin on the host. */
static const struct sl_listing pinned = {"pinned",
                                         SL_COLUMNS(pinned_columns),
                                         sl_sql_device_pinned,
                                         "Pinned host memory at that time (the host's, not the GPU's)",
                                         true,
                                         LARGEST,
                                         NULL};
/* What should not be there. */
static const struct sl_listing foreign = {"foreign_devices",
                                          SL_COLUMNS(foreign_columns),
                                          sl_sql_device_foreign,
                                          "On other ranks' GPUs (a context alone takes about half a GiB there)",
                                          true,
                                          LARGEST,
                                          NULL};

static int print_cache(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char cached[SL_UNIT_CHARS], largest[SL_UNIT_CHARS], split[SL_UNIT_CHARS];
  int r =
      sl_db_ask_first(db, sl_sql_device_cache,
                      SL_WITH(SL_NUMBER(":rank", moment->rank), SL_NUMBER(":at", moment->at_ns)), &statement, error);
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
  return r < 0 ? r : 0;
}

/* What can't be told apart, and why. Text only. */
static int print_unknown(struct sl_db *db, struct sl_output *out, const struct moment *moment, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sl_sql_device_unknown, SL_WITH(SL_NUMBER(":rank", moment->rank)), &statement, error);
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
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  struct sl_column columns[STEPS_SIDE_BY_SIDE + 1] = {{"owner", "Owner", SL_UNIT_text, 0}};
  char headers[STEPS_SIDE_BY_SIDE][32];
  int count = 1;
  int r = 0;

  r = sl_db_tell(db, sl_sql_device_ends, SL_WITH(SL_NUMBER(":rank", moment->rank)), error);
  if (r < 0)
    return r;
  if (out->format != SL_FORMAT_text) {
    static const struct sl_listing steps = {"steps", SL_COLUMNS(data_columns), sl_sql_device_steps, .heading = NULL};
    int64_t rows = sl_print_listing(db, out, &steps, SL_WITH(SL_NUMBER(":rank", moment->rank)), error);
    return rows < 0 ? (int)rows : 0;
  }

  r = sl_db_ask(db, sl_sql_device_picked_steps, NULL, &statement, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(statement, error)) > 0 && count <= STEPS_SIDE_BY_SIDE) {
    snprintf(headers[count - 1], sizeof headers[0], "Step %" PRId64, sl_column_int(statement, 0));
    columns[count] = (struct sl_column){"bytes", headers[count - 1], SL_UNIT_bytes, 0};
    count++;
  }
  statement = sl_statement_close(statement);
  if (r < 0)
    return r;
  r = sl_db_ask(db, sl_sql_device_by_step, SL_WITH(SL_NUMBER(":rank", moment->rank)), &statement, error);
  if (r < 0)
    return r;
  table = sl_table_begin(out, "steps", columns, count);
  while ((r = sl_statement_step(statement, error)) > 0)
    sl_cell_columns(table, statement, 0, count - 1);
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
      .ranks = &selection->ranks,
      .by_step = selection->by == 0,
  };
  return sl_print_segments(db, out, &question, error);
}

static int print_device(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct selection *selection = context;
  struct moment moment = {0};
  int r = sl_check_selection(db, &selection->ranks, selection->step, error);
  if (r < 0)
    return r;
  if (selection->segments)
    return print_segments(db, out, selection, error);
  r = sl_print_coverage(db, out, error);
  if (r == 0 && selection->after_ns >= 0)
    return sl_print_device_around(db, out, &selection->ranks, selection->after_ns, error);
  if (r == 0)
    r = read_moment(db, selection, &moment, error);
  if (r < 0)
    return r;
  if (r == 0) {
    int64_t samples = 0;
    r = sl_db_int(db, sl_sql_device_sample_count, &samples, error);
    return r < 0 ? r
                 : sl_error_set(error, -ENODATA, "%s",
                                samples ? "no sample of the device was taken there; 'shardledger device' without"
                                          " options shows one"
                                        : "the device was not sampled: NVML was not available, and no step ended");
  }
  print_headline(out, selection, &moment);
  if (selection->by == 0)
    return print_by_step(db, out, &moment, error);
  if (out->format == SL_FORMAT_text)
    sl_ranks_narrow(&selection->ranks, moment.rank);
  sl_output_document(out);
  r = print_balance(db, out, selection, error);
  if (r == 0 && out->format == SL_FORMAT_text)
    r = print_unknown(db, out, &moment, error);
  const struct sl_listing *listings[] = {&communicators, &growth, &kept, &pinned, &foreign};
  for (size_t i = 0; i < sizeof listings / sizeof listings[0] && r >= 0; i++) {
    if (listings[i] == &kept)
      r = print_cache(db, out, &moment, error);
    if (r >= 0 && listings[i] == &foreign)
      r = sl_print_pinned_life(db, out, moment.rank, error);
    if (r >= 0)
      r = (int)sl_print_listing(db, out, listings[i],
                                SL_WITH(SL_NUMBER(":rank", moment.rank), SL_NUMBER(":at", moment.at_ns)), error);
  }
  return r < 0 ? r : 0;
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
  struct selection selection = {.by = -1, .step = -1, .after_ns = -1};
  const struct sl_argument arguments[] = {
      {"at", 0, "N|peak|last|oom|SECONDSs",
       "the end of step N, the highest sample (the default), the last one, or those before and after a moment, as 12.5s after the rank's beginning; of segments, the highest allocated bytes, the last step's end, or where memory ran out",
       SL_ARGUMENT_TEXT, &selection.at},
      {"by", 0, "step", "over time: at the end of each step, or of some steps of a long run", SL_ARGUMENT_CHOICE,
       &selection.by},
      {"segments", 0, NULL, "PyTorch's segments: what is in each, and what keeps it from being returned",
       SL_ARGUMENT_FLAG, &selection.segments},
      SL_RANKS_ARGUMENT(selection.ranks),
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
