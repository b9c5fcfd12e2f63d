/* Tables of sites at a peak, and a line that says how much of it has none, and why. */
#include "peaks_code.h"

#include "output/units.h"
#include "viewer_sql.h"

/* The columns that the three tables end with. */
#define PLACE_COLUMNS                                                                                                  \
  {"period", "Period", SL_UNIT_number, SL_COLUMN_DATA_ONLY}, {                                                         \
    "place", "Place", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY                                                               \
  }

static const struct sl_column line_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"step", "Step", SL_UNIT_number, 0},
    {"file", "Line", SL_UNIT_text, 0},
    {"line", "Number", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"function", "Function", SL_UNIT_text, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"share", "Share", SL_UNIT_share, 0},
    {"category", "Most of it", SL_UNIT_text, 0},
    {"allocations", "Allocations", SL_UNIT_number, 0},
    {"backward_bytes", "In its backward", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
    {"source", "Source", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY | SL_COLUMN_SENTENCE},
    {"code_of", "Code of", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    PLACE_COLUMNS,
};

static const struct sl_column operator_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"step", "Step", SL_UNIT_number, 0},
    {"operator", "Operator", SL_UNIT_text, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"share", "Share", SL_UNIT_share, 0},
    {"category", "Most of it", SL_UNIT_text, 0},
    {"allocations", "Allocations", SL_UNIT_number, 0},
    PLACE_COLUMNS,
};

static const struct sl_column stack_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"step", "Step", SL_UNIT_number, 0},
    {"stack", "Stack", SL_UNIT_text, SL_COLUMN_SENTENCE},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"share", "Share", SL_UNIT_share, 0},
    {"category", "Most of it", SL_UNIT_text, 0},
    {"allocations", "Allocations", SL_UNIT_number, 0},
    PLACE_COLUMNS,
};

static const struct sl_listing listings[] = {
    [SL_PEAKS_BY_line] = {"lines", SL_COLUMNS(line_columns), sl_sql_peaks_by_line, .by = "bytes"},
    [SL_PEAKS_BY_operator] = {"operators", SL_COLUMNS(operator_columns), sl_sql_peaks_by_operator, .by = "bytes"},
    [SL_PEAKS_BY_stack] = {"stacks", SL_COLUMNS(stack_columns), sl_sql_peaks_by_stack, .by = "bytes"},
};

/* Text: what has no line, and why. */
static int print_without(struct sl_db *db, struct sl_output *out, const struct sl_parameter *parameters,
                         struct sl_error *error) {
  enum { WITHOUT_BYTES, ALL_BYTES, SITES, SOURCE };
  char bytes[SL_UNIT_CHARS], share[SL_UNIT_CHARS];
  struct sl_statement *s = NULL;
  int r = sl_db_ask_first(db, sl_sql_peaks_without_code, parameters, &s, error);
  if (r > 0 && !sl_column_int(s, SITES)) {
    sl_output_line(
        out,
        "No line of code was recorded (source torch_sites: %s): SHARDLEDGER_STACKS=auto and the torch bridge "
        "record them; 'shardledger doctor' says whether there is one",
        sl_column_is_null(s, SOURCE) ? "not there" : sl_column_text(s, SOURCE));
  } else if (r > 0 && sl_column_int(s, WITHOUT_BYTES)) {
    sl_output_line(out, "%s", "");
    sl_output_line(out,
                   "%s (%s) have no line: made before recording began, where no Python code ran, or in a step without "
                   "call stacks at a place that no step with them has (SHARDLEDGER_STACKS=all)",
                   sl_format_bytes(bytes, sl_column_int(s, WITHOUT_BYTES), out->exact_bytes),
                   sl_format_share(share, sl_column_double(s, WITHOUT_BYTES) / sl_column_double(s, ALL_BYTES)));
  }
  s = sl_statement_close(s);
  return r < 0 ? r : 0;
}

int sl_print_peaks_code(struct sl_db *db, struct sl_output *out, enum sl_peaks_code by, const struct sl_ranks *ranks,
                        int64_t step, int64_t period, bool source, struct sl_error *error) {
  const struct sl_parameter *parameters =
      SL_WITH(SL_RANKS(ranks), SL_GIVEN(":step", step), SL_GIVEN(":period", period),
              SL_NUMBER(":text", out->format == SL_FORMAT_text), SL_NUMBER(":source", source));
  const int64_t rows = sl_print_listing(db, out, &listings[by], parameters, error);
  return rows < 0 || out->format != SL_FORMAT_text ? (int)(rows < 0 ? rows : 0)
                                                   : print_without(db, out, parameters, error);
}
