/* The table of idle memory, and lines that say how much it is, how much may be, and why there is none. */
#include "peaks_idle.h"

#include "output/units.h"
#include "viewer_sql.h"

#include <string.h>

static const struct sl_column columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"step", "Step", SL_UNIT_number, 0},
    {"file", "Made at", SL_UNIT_text, 0},
    {"line", "Number", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"function", "Function", SL_UNIT_text, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"share", "Share", SL_UNIT_share, 0},
    {"state", "Idle", SL_UNIT_text, 0},
    {"used_by", "Last used by", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"used_file", "Its file", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"used_line", "Its line", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"idle_ns", "Since", SL_UNIT_duration, 0},
    {"until_ns", "For another", SL_UNIT_duration, 0},
    {"category", "Most of it", SL_UNIT_text, 0},
    {"allocations", "Allocations", SL_UNIT_number, 0},
    {"code_of", "Code of", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
    {"use_step", "As in step", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"period", "Period", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
    {"place", "Place", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
};

static const struct sl_listing listing = {"idle", SL_COLUMNS(columns), sl_sql_peaks_by_idle, .by = "bytes"};

/* Whether uses were followed at such a peak; else it is said which ones there are. */
static int check_followed(struct sl_db *db, struct sl_output *out, const struct sl_parameter *parameters,
                          struct sl_error *error) {
  enum { PEAKS, WINDOWS, STEPS, SOURCE };
  struct sl_statement *s = NULL;
  int r = sl_db_ask_first(db, sl_sql_peaks_idle_period, parameters, &s, error);
  const bool followed = r > 0 && sl_column_int(s, PEAKS);
  const char *source = r > 0 && !sl_column_is_null(s, SOURCE) ? sl_column_text(s, SOURCE) : "not there";
  if (r > 0 && !followed && !sl_column_int(s, WINDOWS) && strncmp(source, "on", 2) == 0)
    sl_output_line(out, "What operators use is followed in the first steps, and there was none: mark steps with "
                        "shardledger.step()");
  else if (r > 0 && !followed && !sl_column_int(s, WINDOWS))
    sl_output_line(out,
                   "What operators use was not recorded (source torch_uses: %s): SHARDLEDGER_STACKS=auto and the torch "
                   "bridge record it; 'shardledger doctor' says whether there is one",
                   source);
  else if (r > 0 && !followed)
    sl_output_line(out, "What operators use was not followed there, but at the peaks of steps %s: --step N",
                   sl_column_is_null(s, STEPS) ? "(none)" : sl_column_text(s, STEPS));
  s = sl_statement_close(s);
  return r < 0 ? r : followed;
}

static int print_sums(struct sl_db *db, struct sl_output *out, const struct sl_parameter *parameters,
                      struct sl_error *error) {
  enum { PEAK, IDLE, HIDDEN, KEPT, SEES_LAUNCHES };
  char idle[SL_UNIT_CHARS], hidden[SL_UNIT_CHARS], kept[SL_UNIT_CHARS], share[SL_UNIT_CHARS];
  struct sl_statement *s = NULL;
  int r = sl_db_ask_first(db, sl_sql_peaks_idle_sums, parameters, &s, error);
  if (r > 0) {
    sl_output_line(out, "%s", "");
    sl_output_line(out,
                   "%s (%s) of the peak are idle: late is what was last used before it and freed later, early what was "
                   "not used before it",
                   sl_format_bytes(idle, sl_column_int(s, IDLE), out->exact_bytes),
                   sl_format_share(share, sl_column_double(s, IDLE) / sl_column_double(s, PEAK)));
    if (sl_column_int(s, HIDDEN))
      sl_output_line(
          out, "%s may be: %s", sl_format_bytes(hidden, sl_column_int(s, HIDDEN), out->exact_bytes),
          sl_column_int(s, SEES_LAUNCHES)
              ? "meanwhile kernels ran that no operator launched (compiled code, an extension), and may use it"
              : "only operators were followed, not what else launches kernels (CUPTI is off, or another tool's)");
    if (sl_column_int(s, KEPT))
      sl_output_line(out, "%s were not used again in the steps that were followed, but live on: that may be later",
                     sl_format_bytes(kept, sl_column_int(s, KEPT), out->exact_bytes));
  }
  s = sl_statement_close(s);
  return r < 0 ? r : 0;
}

int sl_print_peaks_idle(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, int64_t step,
                        int64_t period, struct sl_error *error) {
  const struct sl_parameter *parameters = SL_WITH(SL_RANKS(ranks), SL_GIVEN(":step", step), SL_GIVEN(":period", period),
                                                  SL_NUMBER(":text", out->format == SL_FORMAT_text));
  if (out->format == SL_FORMAT_text) {
    const int r = check_followed(db, out, parameters, error);
    if (r <= 0)
      return r;
  }
  const int64_t rows = sl_print_listing(db, out, &listing, parameters, error);
  return rows < 0 || out->format != SL_FORMAT_text ? (int)(rows < 0 ? rows : 0)
                                                   : print_sums(db, out, parameters, error);
}
