#include "ask_ledger.h"
#include "command.h"
#include "commands/peak_queries.h"
#include "commands/summary.h"
#include "storage/rules/categories.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum view { VIEW_default = -1, VIEW_module, VIEW_category, VIEW_step, VIEW_rank };

struct selection {
  int view;                  /* enum view */
  int64_t step, rank, depth; /* -1: all */
};

/* Runs sql, whose columns are those of the table, with what the user selected. */
static int print_query(struct sl_db *db, struct sl_output *out, const char *name, const struct sl_column *columns,
                       int count, const char *sql, const struct selection *selection, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sl_db_prepare(db, sql, &statement, error);
  if (r < 0)
    return r;

  sl_bind_optional(statement, ":rank", selection->rank);
  sl_bind_optional(statement, ":step", selection->step);
  if (strstr(sql, ":depth"))
    sl_bind_optional(statement, ":depth", selection->depth);
  if (strstr(sql, ":text"))
    sl_bind_named_int(statement, ":text", out->format == SL_FORMAT_text);
  table = sl_table_begin(out, name, columns, count);
  rows = sl_table_rows(table, statement, error);
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  if (rows == 0)
    sl_complain("nothing matches: 'shardledger peaks --by step' lists the ranks and steps that were recorded");
  return rows < 0 ? (int)rows : 0;
}

/*
 * A column a category: the built-in ones always, so that CSV looks the same for every run, then those that only these
 * steps have. Fills columns from *count on and appends to the SQL. The names belong to the caller: free each from
 * built-in on.
 */
static int add_categories(struct sl_db *db, const struct selection *selection, FILE *sql, struct sl_column *columns,
                          int *count, char **names, int *name_count, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r =
      sl_db_prepare(db,
                    "WITH " SL_SQL_CHOSEN " SELECT DISTINCT b.category FROM chosen AS c CROSS JOIN peak_category AS b"
                    " ON b.rank = c.rank AND b.step = c.rows_step ORDER BY b.category",
                    &statement, error);
  if (r < 0)
    return r;
  sl_bind_optional(statement, ":rank", selection->rank);
  sl_bind_optional(statement, ":step", selection->step);
  for (int i = 0; i < SL_CATEGORY_built_in; i++)
    names[(*name_count)++] = strdup(sl_categories[i].name);
  while ((r = sl_statement_step(statement, error)) > 0 && *name_count < SL_CATEGORY_limit)
    if (sl_category_find(sl_column_text(statement, 0)) < 0)
      names[(*name_count)++] = strdup(sl_column_text(statement, 0));
  statement = sl_statement_close(statement);
  if (r < 0)
    return r;

  for (int i = 0; i < *name_count; i++) {
    char *quoted = names[i] ? sqlite3_mprintf("%Q", names[i]) : NULL;
    if (!quoted)
      return sl_no_memory(error);
    fprintf(sql, ", coalesce(sum(b.bytes) FILTER (WHERE b.category = %s), 0)", quoted);
    sqlite3_free(quoted);
    columns[(*count)++] = (struct sl_column){names[i], names[i], SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY};
  }
  return 0;
}

/* Every module and phase of the chosen step, with what the device held at that moment by category. */
static int print_modules_and_phases(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                                    struct sl_error *error) {
  struct sl_column columns[6 + SL_CATEGORY_limit] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"module", "Module", SL_UNIT_text, 0},
      {"phase", "Phase", SL_UNIT_text, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"own_bytes", "Own", SL_UNIT_bytes, 0},
  };
  char *names[SL_CATEGORY_limit] = {NULL};
  int name_count = 0, count = 6;
  char *sql = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&sql, &size);
  int r = stream ? 0 : sl_no_memory(error);
  if (r < 0)
    return r;

  fprintf(stream, "WITH " SL_SQL_CHOSEN " SELECT p.rank, c.step, "
                  "iif(p.module_id IS NULL, iif(:text, '(all)', NULL), " SL_SQL_FQN "),"
                  " p.phase, p.allocated_bytes, p.own_bytes");
  r = add_categories(db, selection, stream, columns, &count, names, &name_count, error);
  fprintf(stream,
          " FROM chosen AS c CROSS JOIN peak AS p ON p.rank = c.rank AND p.step = c.rows_step"
          " LEFT JOIN module AS m ON m.id = p.module_id"
          " LEFT JOIN peak_category AS b ON b.rank = p.rank AND b.step = p.step AND b.module_id IS p.module_id"
          "  AND b.phase = p.phase"
          " WHERE :depth IS NULL OR p.module_id IS NULL OR m.depth <= :depth"
          " GROUP BY p.rank, p.step, p.module_id, p.phase"
          " ORDER BY p.rank, p.module_id, CASE p.phase WHEN 'step' THEN 0 WHEN 'forward' THEN 1 WHEN 'recompute' THEN 2"
          "  WHEN 'backward' THEN 3 ELSE 4 END");
  if (fclose(stream) != 0 && r == 0)
    r = sl_no_memory(error);
  if (r == 0)
    r = print_query(db, out, "peaks", columns, count, sql, selection, error);
  for (int i = 0; i < name_count; i++)
    free(names[i]);
  free(sql);
  return r;
}

static int print_by_module(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                           struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"module", "Module", SL_UNIT_text, 0},
      {"class", "Class", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"forward_bytes", "Forward", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"recompute_bytes", "Recompute", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"backward_bytes", "Backward", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"own_bytes", "Own", SL_UNIT_bytes, 0},
      {"own_with_children_bytes", "With children", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"param_bytes", "Parameters", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"buffer_bytes", "Buffers", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
  };
  return print_query(db, out, "modules", columns, sizeof(columns) / sizeof(columns[0]),
                     "WITH " SL_SQL_CHOSEN " SELECT p.rank, c.step, " SL_SQL_FQN ", m.class,"
                     " max(p.allocated_bytes) FILTER (WHERE p.phase = 'forward'),"
                     " max(p.allocated_bytes) FILTER (WHERE p.phase = 'recompute'),"
                     " max(p.allocated_bytes) FILTER (WHERE p.phase = 'backward'),"
                     " max(p.own_bytes), max(p.own_with_children_bytes), m.param_bytes, m.buffer_bytes"
                     " FROM chosen AS c CROSS JOIN peak AS p ON p.rank = c.rank AND p.step = c.rows_step"
                     " JOIN module AS m ON m.id = p.module_id"
                     " WHERE :depth IS NULL OR m.depth <= :depth GROUP BY p.rank, m.id ORDER BY p.rank, m.id",
                     selection, error);
}

static int print_by_category(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                             struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},       {"step", "Step", SL_UNIT_number, 0},
      {"category", "Category", SL_UNIT_text, 0}, {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"share", "Share", SL_UNIT_share, 0},      {"bar", "", SL_UNIT_bar, 0},
  };
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int r = sl_db_prepare(db,
                        "WITH " SL_SQL_CHOSEN " SELECT c.rank, c.step, b.category, b.bytes,"
                        " iif(c.peak_allocated_bytes > 0, b.bytes * 1.0 / c.peak_allocated_bytes, 0)"
                        " FROM chosen AS c CROSS JOIN peak_category AS b ON b.rank = c.rank AND b.step = c.rows_step"
                        "  AND b.module_id IS NULL AND b.phase = 'step'"
                        " ORDER BY c.rank, b.bytes DESC, b.category",
                        &statement, error);
  if (r < 0)
    return r;
  sl_bind_optional(statement, ":rank", selection->rank);
  sl_bind_optional(statement, ":step", selection->step);
  table = sl_table_begin(out, "categories", columns, sizeof(columns) / sizeof(columns[0]));
  while ((r = sl_statement_step(statement, error)) > 0) {
    for (int i = 0; i < 5; i++)
      sl_cell_column(table, statement, i);
    sl_cell_bar(table, sl_column_double(statement, 4), sl_category_style(sl_column_text(statement, 2)));
  }
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return r;
}

static int print_by_step(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"change_bytes", "Change", SL_UNIT_change, 0},
      {"active_bytes", "Active", SL_UNIT_bytes, 0},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"requested_bytes", "Requested", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"device_bytes", "Device", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"end_allocated_bytes", "At its end", SL_UNIT_bytes, 0},
      {"duration_ns", "Time", SL_UNIT_duration, 0},
      {"same_as", "Same as", SL_UNIT_number, SL_COLUMN_HIDE_EMPTY},
      {"checked", "Checked", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
  };
  return print_query(db, out, "steps", columns, sizeof(columns) / sizeof(columns[0]),
                     "SELECT * FROM (SELECT rank, step, peak_allocated_bytes,"
                     " peak_allocated_bytes - lag(peak_allocated_bytes) OVER (PARTITION BY rank ORDER BY step),"
                     " peak_active_bytes, peak_reserved_bytes, peak_requested_bytes, peak_device_bytes,"
                     " end_allocated_bytes, end_ns - start_ns, same_as, checked FROM step)"
                     " WHERE (:rank IS NULL OR rank = :rank) AND (:step IS NULL OR step = :step) ORDER BY rank, step",
                     selection, error);
}

static int print_by_rank(struct sl_db *db, struct sl_output *out, const struct selection *selection,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"host", "Host", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"device", "GPU", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"active_bytes", "Active", SL_UNIT_bytes, 0},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"device_bytes", "Device", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"device_total_bytes", "Device total", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"where", "Where", SL_UNIT_text, 0},
  };
  return print_query(
      db, out, "ranks", columns, sizeof(columns) / sizeof(columns[0]),
      "WITH " SL_SQL_CHOSEN " SELECT c.rank, k.host, k.device, c.step, c.peak_allocated_bytes,"
      " c.peak_active_bytes, c.peak_reserved_bytes, c.peak_device_bytes, k.device_bytes, " SL_SQL_WHERE_PEAK
      " FROM chosen AS c LEFT JOIN rank AS k ON k.rank = c.rank ORDER BY c.rank",
      selection, error);
}

/*
 * Text of many ranks would be the same table again and again: then the highest one speaks for all; of every module and
 * phase, which nobody asked for by name, as soon as there are more than two.
 */
static int choose_rank(struct sl_db *db, struct sl_output *out, struct selection *selection, struct sl_error *error) {
  const int64_t limit = selection->view == VIEW_default ? 2 : SL_RANKS_SIDE_BY_SIDE;
  int64_t ranks = 0;
  int r = 0;
  if (out->format != SL_FORMAT_text || selection->rank >= 0)
    return 0;
  r = sl_db_int(db, "SELECT count(*) FROM rank_steps", &ranks, error);
  if (r < 0 || ranks <= limit)
    return r;
  r = sl_db_int(db,
                "SELECT rank FROM rank_steps AS k ORDER BY (SELECT max(peak_allocated_bytes) FROM step AS s WHERE "
                "s.rank = k.rank) DESC, rank LIMIT 1",
                &selection->rank, error);
  if (r == 0)
    sl_output_line(out, "Rank %lld of %lld, the highest; the others with --rank R", (long long)selection->rank,
                   (long long)ranks);
  return r;
}

static int print_peaks(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct selection *selection = context;
  int r = sl_check_selection(db, selection->rank, selection->step, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0 && selection->view == VIEW_default && selection->step < 0 && selection->rank < 0)
    r = sl_print_summary(db, out, false, error);
  if (r == 0 && (selection->view == VIEW_default || selection->view == VIEW_module || selection->view == VIEW_category))
    r = sl_print_repeated(db, out, selection->step, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  if (selection->view == VIEW_default || selection->view == VIEW_module || selection->view == VIEW_category)
    r = choose_rank(db, out, selection, error);
  if (r < 0)
    return r;
  switch ((enum view)selection->view) {
  case VIEW_default: return print_modules_and_phases(db, out, selection, error);
  case VIEW_module: return print_by_module(db, out, selection, error);
  case VIEW_category: return print_by_category(db, out, selection, error);
  case VIEW_step: return print_by_step(db, out, selection, error);
  case VIEW_rank: return print_by_rank(db, out, selection, error);
  }
  return 0;
}

int sl_cmd_peaks(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {VIEW_default, -1, -1, -1};
  const struct sl_argument arguments[] = {
      {"by", 0, "module|category|step|rank", "one line each of these", SL_ARGUMENT_CHOICE, &selection.view},
      {"step", 0, "N", "this step instead of the highest of each rank", SL_ARGUMENT_NUMBER, &selection.step},
      {"rank", 0, "R", "this rank only", SL_ARGUMENT_NUMBER, &selection.rank},
      {"depth", 0, "D", "modules down to this depth, 0 is the root; 'With children' counts what is deeper, too",
       SL_ARGUMENT_NUMBER, &selection.depth},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_peaks, &selection);
}
