#include "commands/device_around.h"

#include "commands/device_queries.h"
#include "commands/peak_queries.h"
#include "output/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct around {
  int64_t rank, device, at_ns;
  int64_t before_ns, after_ns; /* of the samples; -1: there is none */
};

/* 1; 0: no rank was sampled. */
static int read_around(struct sl_db *db, int64_t rank, int64_t after_ns, struct around *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_prepare(db,
                        "WITH moment AS (SELECT rank, device, start_ns + :after AS at_ns FROM rank AS r"
                        "  WHERE (:rank IS NULL OR rank = :rank) AND EXISTS (SELECT 1 FROM device_sample AS d"
                        "   WHERE d.rank = r.rank AND d.device IS r.device) ORDER BY rank LIMIT 1)"
                        " SELECT m.rank, m.device, m.at_ns, (SELECT max(d.at_ns) FROM device_sample AS d"
                        "  WHERE d.rank = m.rank AND d.device = m.device AND d.at_ns <= m.at_ns),"
                        " (SELECT min(d.at_ns) FROM device_sample AS d"
                        "  WHERE d.rank = m.rank AND d.device = m.device AND d.at_ns > m.at_ns) FROM moment AS m",
                        &statement, error);
  if (r < 0)
    return r;
  sl_bind_optional(statement, ":rank", rank);
  sl_bind_named_int(statement, ":after", after_ns);
  r = sl_statement_step(statement, error);
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
  struct sl_statement *statement = NULL;
  int r = sl_db_prepare(db,
                        "WITH " SL_SQL_KNOWN " SELECT :rank, :device, :at, :before, :after, b.owner,"
                        " sum(b.bytes) FILTER (WHERE b.at_ns = :before), sum(b.bytes) FILTER (WHERE b.at_ns = :after),"
                        " " SL_SQL_MEANING " FROM device_balance AS b LEFT JOIN known AS k ON k.owner = b.owner"
                        " WHERE b.rank = :rank AND b.device = :device AND b.at_ns IN (:before, :after)"
                        " GROUP BY b.owner ORDER BY " SL_SQL_PLACE ", max(b.bytes) DESC",
                        &statement, error);
  if (r < 0)
    return r;
  sl_bind_named_int(statement, ":rank", around->rank);
  sl_bind_named_int(statement, ":device", around->device);
  sl_bind_named_int(statement, ":at", around->at_ns);
  sl_bind_optional(statement, ":before", around->before_ns);
  sl_bind_optional(statement, ":after", around->after_ns);
  struct sl_table *table = sl_table_begin(out, "around", columns, sizeof columns / sizeof columns[0]);
  int64_t rows = sl_table_rows(table, statement, error);
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return rows < 0 ? (int)rows : 0;
}

int sl_print_device_around(struct sl_db *db, struct sl_output *out, int64_t rank, int64_t after_ns,
                           struct sl_error *error) {
  struct around around;
  char instant[SL_UNIT_CHARS], length[SL_UNIT_CHARS];
  int r = read_around(db, rank, after_ns, &around, error);
  if (r <= 0)
    return r < 0 ? r
                 : sl_error_set(error, -ENODATA,
                                "the device was not sampled there: NVML was not there, and no step ended");
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
