/* `shardledger snapshots`: a module's states as FSDPMemTracker shows them. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/summary.h"
#include "open_ledger.h"
#include "storage/rules/categories.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct selection {
  const char *module; /* GLOB pattern; NULL: all */
  int64_t step;       /* -1: all */
  struct sl_ranks ranks;
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
static const char states[] = ","
#define STATE(name, word) word ","
#include "storage/attribution/states.def"
#undef STATE
    ;

static int print_snapshots(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  enum { OWN = 6 };
  struct sl_column columns[OWN + SL_CATEGORY_built_in + 1] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_COMMON},     {"step", "Step", SL_UNIT_number, SL_COLUMN_COMMON},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_COMMON},   {"fqn", "FQN", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"call", "Call", SL_UNIT_number, SL_COLUMN_HIDE_EMPTY}, {"state", "State", SL_UNIT_text, 0},
  };
  const char *words[SL_CATEGORY_built_in];
  int word_count = tracker_words(words);
  int count = OWN;
  struct sl_statement *steps = NULL, *statement = NULL;
  struct sl_table *table = NULL;
  int64_t rows = 0;
  int r = sl_check_selection(db, &selection->ranks, selection->step, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_print_repeated(db, out, selection->step, error);
  if (r == 0)
    r = sl_db_ask(db, sl_sql_snapshots_steps, SL_WITH(SL_RANKS(&selection->ranks), SL_GIVEN(":step", selection->step)),
                  &steps, error);
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_snapshots_states, &statement, error);
  if (r < 0)
    goto finish;

  for (int i = 0; i < word_count; i++)
    columns[count++] = (struct sl_column){words[i], words[i], SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY | SL_COLUMN_WRAP};
  columns[count++] = (struct sl_column){"Total", "Total", SL_UNIT_bytes, SL_COLUMN_WRAP};

  sl_output_line(out, "%s", "");
  table = sl_table_begin(out, "snapshots", columns, count);
  while ((r = sl_statement_step(steps, error)) > 0) {
    sl_bind_all(statement,
                SL_WITH(SL_NUMBER(":rank", sl_column_int(steps, 0)), SL_NUMBER(":step", sl_column_int(steps, 1)),
                        SL_WORD(":module", selection->module), SL_WORD(":states", states)));
    int64_t more = sl_table_pivot(table, statement, OWN, error);
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
  return r;
}

int sl_cmd_snapshots(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {.step = -1};
  const struct sl_argument arguments[] = {
      {"step", 0, "N", "this step instead of the highest of each rank", SL_ARGUMENT_NUMBER, &selection.step},
      SL_RANKS_ARGUMENT(selection.ranks),
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
