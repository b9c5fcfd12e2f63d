/* Finds the device's samples around an instant. */
#include "commands/device_around.h"

#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct around {
  int64_t rank, device, at_ns;
  int64_t before_ns, after_ns; /* of the samples; -1: there is none */
};

/* 1; 0: no rank was sampled. */
static int read_around(struct sl_db *db, const struct sl_ranks *ranks, int64_t after_ns, struct around *out,
                       struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sl_sql_device_moment_around, SL_WITH(SL_RANKS(ranks), SL_NUMBER(":after", after_ns)),
                          &statement, error);
  if (r > 0)
    *out = (struct around){
        .rank = sl_column_int(statement, 0),
        .device = sl_column_int(statement, 1),
        .at_ns = sl_column_int(statement, 2),
        .before_ns = sl_column_is_null(statement, 3) ? -1 : sl_column_int(statement, 3),
        .after_ns = sl_column_is_null(statement, 4) ? -1 : sl_column_int(statement, 4),
    };
  statement = sl_statement_close(statement);
  return r;
}

static int print_lines(struct sl_db *db, struct sl_output *out, const struct around *around, struct sl_error *error) {
  char before[SL_UNIT_CHARS + 16] = "Before", after[SL_UNIT_CHARS + 16] = "After", text[SL_UNIT_CHARS];
  if (around->before_ns >= 0)
    snprintf(before, sizeof before, "%s before", sl_format_duration(text, around->at_ns - around->before_ns));
  if (around->after_ns >= 0)
    snprintf(after, sizeof after, "%s after", sl_format_duration(text, around->after_ns - around->at_ns));
  const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"device", "GPU", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"at_ns", "At", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"before_ns", "Sample before", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"after_ns", "Sample after", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"owner", "Owner", SL_UNIT_text, 0},
      {"before_bytes", before, SL_UNIT_bytes, around->before_ns < 0 ? SL_COLUMN_DATA_ONLY : 0},
      {"after_bytes", after, SL_UNIT_bytes, around->after_ns < 0 ? SL_COLUMN_DATA_ONLY : 0},
      {"meaning", "What it is", SL_UNIT_text, SL_COLUMN_SENTENCE},
  };
  const struct sl_listing around_listing = {"around", SL_COLUMNS(columns), sl_sql_device_around, .heading = NULL};
  int64_t rows = sl_print_listing(db, out, &around_listing,
                                  SL_WITH(SL_NUMBER(":rank", around->rank), SL_NUMBER(":device", around->device),
                                          SL_NUMBER(":at", around->at_ns), SL_GIVEN(":before", around->before_ns),
                                          SL_GIVEN(":after", around->after_ns)),
                                  error);
  return rows < 0 ? (int)rows : 0;
}

int sl_print_device_around(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, int64_t after_ns,
                           struct sl_error *error) {
  struct around around;
  char instant[SL_UNIT_CHARS], length[SL_UNIT_CHARS];
  int r = read_around(db, ranks, after_ns, &around, error);
  if (r <= 0)
    return r < 0 ? r
                 : sl_error_set(error, -ENODATA,
                                "the device was not sampled there: NVML was not available, and no step ended");
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "Rank %" PRId64 "'s GPU %" PRId64 " at %s, %s after its beginning", around.rank,
                   around.device, sl_format_instant(instant, around.at_ns), sl_format_duration(length, after_ns));
  sl_output_line(out, "     What was in use at the samples around it%s",
                 around.before_ns < 0  ? "; none was taken before"
                 : around.after_ns < 0 ? "; none was taken after"
                                       : "");
  sl_output_line(out, "%s", "");
  return print_lines(db, out, &around, error);
}
