#include "ask_ledger.h"
#include "command.h"
#include "commands/peak_queries.h"
#include "commands/summary.h"
#include "open_ledger.h"
#include "storage/rules/categories.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct selection {
  const char *module; /* GLOB pattern; NULL: all */
  int64_t step, rank; /* -1: all */
};

/* FSDPMemTracker's words in the order of our categories, each once, what is other last. Returns their number. */
static int tracker_words(const char *words[SL_CATEGORY_built_in]) {
  const char *rest = sl_categories[SL_CATEGORY_other].fsdp_word;
  int count = 0;
  for (int i = 0; i < SL_CATEGORY_built_in; i++) {
    bool known = strcmp(rest, sl_categories[i].fsdp_word) == 0;
    for (int w = 0; w < count; w++)
      known |= strcmp(words[w], sl_categories[i].fsdp_word) == 0;
    if (!known)
      words[count++] = sl_categories[i].fsdp_word;
  }
  words[count++] = rest;
  return count;
}

/* The states in the order in which a module goes through them. */
static const char *const states[] = {
#define STATE(name, word) word,
#include "storage/attribution/states.def"
#undef STATE
};

/*
 * The view's rows of one rank and step, a column a word. Asked step by step with the numbers bound, since only then
 * SQLite takes them inside the view. Modules stand in the model's order, which their ids have.
 */
static char *snapshot_sql(const char *const *words, int count) {
  char *sql = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&sql, &size);
  if (!stream)
    return NULL;
  fprintf(stream, "WITH state(word, place) AS (VALUES");
  for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
    fprintf(stream, "%s('%s', %zu)", i ? "," : "", states[i], i);
  fprintf(stream, "), named AS (SELECT *, iif(instr(fqn, '.'), substr(fqn, instr(fqn, '.') + 1), '') AS short"
                  "  FROM fsdp_snapshot WHERE rank = :rank AND step = :step)"
                  " SELECT rank, :step, fqn, short, call, named.state");
  for (int i = 0; i <= count; i++)
    fprintf(stream, ", coalesce(sum(bytes) FILTER (WHERE category = '%s'), 0)", i < count ? words[i] : "Total");
  fprintf(stream,
          " FROM named LEFT JOIN state ON state.word = named.state"
          " LEFT JOIN (SELECT fqn AS short, min(id) AS id FROM module WHERE rank = :rank GROUP BY fqn)"
          "  USING (short)"
          " WHERE :module IS NULL OR fqn GLOB :module OR short GLOB :module OR (short = '' AND fqn = 'FSDP' || :module)"
          " GROUP BY fqn, call, named.state ORDER BY id, fqn, call, place");
  if (fclose(stream) != 0) {
    free(sql);
    return NULL;
  }
  return sql;
}

/* The steps to show. */
static int prepare_steps(struct sl_db *db, const struct selection *selection, struct sl_statement **out,
                         struct sl_error *error) {
  int r = sl_db_prepare(db, "WITH " SL_SQL_CHOSEN " SELECT rank, step FROM chosen ORDER BY rank", out, error);
  if (r < 0)
    return r;
  sl_bind_optional(*out, ":rank", selection->rank);
  sl_bind_optional(*out, ":step", selection->step);
  return 0;
}

static int print_snapshots(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  struct sl_column columns[6 + SL_CATEGORY_built_in + 1] = {
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
  struct sl_statement *steps = NULL, *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sql ? 0 : sl_no_memory(error);
  if (r == 0)
    r = sl_check_selection(db, selection->rank, selection->step, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_print_repeated(db, out, selection->step, error);
  if (r == 0)
    r = prepare_steps(db, selection, &steps, error);
  if (r == 0)
    r = sl_db_prepare(db, sql, &statement, error);
  if (r < 0)
    goto finish;

  for (int i = 0; i < word_count; i++)
    columns[count++] = (struct sl_column){words[i], words[i], SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY};
  columns[count++] = (struct sl_column){"Total", "Total", SL_UNIT_bytes, 0};

  sl_output_line(out, "%s", "");
  table = sl_table_begin(out, "snapshots", columns, count);
  while ((r = sl_statement_step(steps, error)) > 0) {
    sl_bind_named_int(statement, ":rank", sl_column_int(steps, 0));
    sl_bind_named_int(statement, ":step", sl_column_int(steps, 1));
    sl_bind_named_text(statement, ":module", selection->module);
    int64_t more = sl_table_rows(table, statement, error);
    if (more < 0) {
      r = (int)more;
      break;
    }
    rows += more;
  }
  table = sl_table_end(table);
  if (r == 0 && rows == 0 && selection->module)
    r = sl_error_set(error, -ENOENT,
                     "no module with snapshots there matches '%s'; 'shardledger snapshots' shows them all",
                     selection->module);
  else if (r == 0 && rows == 0)
    sl_complain("there are no snapshots there: modules without phases have none, nor has a step without forward");

finish:
  statement = sl_statement_close(statement);
  steps = sl_statement_close(steps);
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
