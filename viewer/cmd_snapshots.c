#include "command.h"
#include "open_ledger.h"
#include "peak_queries.h"
#include "report.h"
#include "storage/categories.h"
#include "summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct selection {
  const char *module; /* GLOB pattern; NULL: all */
  int64_t step, rank; /* -1: all */
};

/* FSDPMemTracker's words in the order of our categories, each once. Returns their number. */
static int tracker_words(const char *words[SL_CATEGORY_built_in]) {
  int count = 0;
  for (int i = 0; i < SL_CATEGORY_built_in; i++) {
    bool known = false;
    for (int w = 0; w < count; w++)
      known |= strcmp(words[w], sl_categories[i].fsdp_word) == 0;
    if (!known)
      words[count++] = sl_categories[i].fsdp_word;
  }
  return count;
}

/* The sum of the categories that share a word. Words that only users gave count as Other. */
static void print_sum(FILE *sql, const char *word) {
  fprintf(sql, ", coalesce(sum(s.bytes) FILTER (WHERE s.category IN (");
  for (int i = 0, first = 1; i < SL_CATEGORY_built_in; i++)
    if (strcmp(sl_categories[i].fsdp_word, word) == 0) {
      fprintf(sql, "%s'%s'", first ? "" : ", ", sl_categories[i].name);
      first = 0;
    }
  fprintf(sql, ")");
  if (strcmp(word, "Other") == 0) {
    fprintf(sql, " OR s.category NOT IN ('Total'");
    for (int i = 0; i < SL_CATEGORY_built_in; i++)
      fprintf(sql, ", '%s'", sl_categories[i].name);
    fprintf(sql, ")");
  }
  fprintf(sql, "), 0)");
}

static char *snapshot_sql(const char *const *words, int count) {
  char *sql = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&sql, &size);
  if (!stream)
    return NULL;
  fprintf(stream, "WITH " SL_SQL_CHOSEN
                  " SELECT s.rank, c.step, coalesce(t.class, '') || iif(m.fqn = '' OR t.id IS NULL, '', '.') ||"
                  " m.fqn AS name, m.fqn, s.call_index, s.state");
  for (int i = 0; i < count; i++)
    print_sum(stream, words[i]);
  fprintf(stream, ", sum(s.bytes) FILTER (WHERE s.category <> 'Total'), min(s.at_ns)"
                  " FROM (SELECT rank, step, coalesce((SELECT n.step FROM snapshot AS n"
                  "   WHERE n.rank = chosen.rank AND n.step = chosen.step LIMIT 1), same_as, step) AS rows_step"
                  "  FROM chosen) AS c"
                  " CROSS JOIN snapshot AS s ON s.rank = c.rank AND s.step = c.rows_step"
                  " JOIN module AS m ON m.id = s.module_id LEFT JOIN module AS t ON t.id = m.root_id"
                  " WHERE :module IS NULL OR m.fqn GLOB :module OR name GLOB :module"
                  " GROUP BY s.rank, s.step, s.module_id, s.call_index, s.state"
                  " ORDER BY s.rank, s.module_id, s.call_index, min(s.at_ns), s.state");
  if (fclose(stream) != 0) {
    free(sql);
    return NULL;
  }
  return sql;
}

static int print_snapshots(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  struct sl_column columns[6 + SL_CATEGORY_built_in + 2] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"module", "Module", SL_UNIT_text, 0},
      {"fqn", "FQN", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"call", "Call", SL_UNIT_number, SL_COLUMN_HIDE_EMPTY},
      {"state", "State", SL_UNIT_text, 0},
  };
  const char *words[SL_CATEGORY_built_in];
  int word_count = tracker_words(words);
  int count = 6;
  char *sql = snapshot_sql(words, word_count);
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sql ? 0 : sl_error_set(error, -ENOMEM, "out of memory");
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_db_prepare(db, sql, &statement, error);
  if (r < 0)
    goto finish;

  for (int i = 0; i < word_count; i++)
    columns[count++] = (struct sl_column){words[i], words[i], SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY};
  columns[count++] = (struct sl_column){"Total", "Total", SL_UNIT_bytes, 0};
  columns[count++] = (struct sl_column){"at_ns", "At", SL_UNIT_instant, SL_COLUMN_DATA_ONLY};

  sl_bind_optional(statement, ":rank", selection->rank);
  sl_bind_optional(statement, ":step", selection->step);
  sl_bind_named_text(statement, ":module", selection->module);
  sl_output_line(out, "%s", "");
  table = sl_table_begin(out, "snapshots", columns, count);
  rows = sl_table_rows(table, statement, error);
  table = sl_table_end(table);
  r = rows < 0 ? (int)rows : 0;
  if (rows == 0 && selection->module)
    sl_complain("no snapshot matches; the modules are in: shardledger query \"SELECT DISTINCT fqn FROM module\"");
  else if (rows == 0)
    sl_complain("no snapshot matches; 'shardledger peaks --by step' lists the ranks and steps that were recorded");

finish:
  statement = sl_statement_close(statement);
  free(sql);
  return r;
}

int sl_cmd_snapshots(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {NULL, -1, -1};
  const struct sl_argument arguments[] = {
      {"step", 0, "N", "this step instead of the highest of each rank", SL_ARGUMENT_NUMBER, &selection.step},
      {"rank", 0, "R", "this rank only", SL_ARGUMENT_NUMBER, &selection.rank},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *words[2] = {NULL, NULL};
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, words, 2);
  if (r < 0)
    return sl_parse_exit(r);

  /* Two words in either order: the one that is a file or directory is the ledger. One that is none is a module. */
  if (r == 2) {
    int path_index = sl_path_exists(words[0]) || !sl_path_exists(words[1]) ? 0 : 1;
    path = words[path_index];
    selection.module = words[!path_index];
  } else if (r == 1 && (sl_path_exists(words[0]) || strchr(words[0], '/'))) {
    path = words[0];
  } else if (r == 1) {
    selection.module = words[0];
  }
  return sl_print_report(path, &format, print_snapshots, &selection);
}
