/* Everything that decides what ranges mean and which category memory has, in the order in which it decides. */
#include "command.h"
#include "open_ledger.h"
#include "storage/attribution/attribution.h"
#include "storage/ledger.h"
#include "storage/rules/categories.h"
#include "storage/tables/db.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
  const char *prefix, *kind, *point;
} range_rules[] = {
#define RULE(prefix, kind, point) {prefix, #kind, #point},
#include "storage/phases/phase_rules.def"
#undef RULE
};

static const struct {
  const char *name, *meaning;
} kinds[] = {
#define KIND(number, name, meaning) {#name, meaning},
#include "nvtx_ranges/kinds.def"
#undef KIND
};

static bool is_database(const char *path) {
  static const char magic[] = "SQLite format 3";
  char start[sizeof magic] = "";
  FILE *file = fopen(path, "re");
  bool found = file && fread(start, sizeof magic, 1, file) == 1 && memcmp(start, magic, sizeof magic) == 0;
  if (file)
    fclose(file);
  return found;
}

/* The rules with which a ledger was made. */
static int rules_of_ledger(const char *path, struct sl_user_rules **out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  struct sl_db *db = NULL;
  int r = sl_open_ledger(path, &db, error);
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_rules_text, &statement, error);
  if (r == 0)
    r = sl_statement_step(statement, error);
  if (r > 0)
    r = sl_user_rules_parse(sl_column_text(statement, 0), path, out, error);
  statement = sl_statement_close(statement);
  db = sl_db_close(db);
  return r;
}

/* path: a file of rules, a ledger, or a run directory. *out NULL when there are none. */
static int find_rules(const char *path, struct sl_user_rules **out, struct sl_error *error) {
  struct stat status;
  *out = NULL;
  if (stat(path, &status) < 0)
    return sl_error_set(error, -errno, "%s: %s", path, strerror(errno));
  if (!S_ISDIR(status.st_mode))
    return is_database(path) ? rules_of_ledger(path, out, error) : sl_user_rules_read(path, out, error);
  return sl_user_rules_kept(path, out, error);
}

static const char *gives(const struct sl_user_rule *rule) {
  return rule->type == SL_USER_RULE_range_kind ? sl_kind_name(rule->kind) : rule->category_name;
}

static const char *applies_to(const struct sl_user_rule *rule) {
  return rule->type == SL_USER_RULE_module_category ? "module" : "range";
}

enum { PART = 8 }; /* rows of a part that text shows, so that there is room for the others */

static void print_user_rules(struct sl_output *out, const struct sl_user_rules *rules) {
  static const struct sl_column columns[] = {
      {"line", "Line", SL_UNIT_number, 0},
      {"of", "Of", SL_UNIT_text, 0},
      {"pattern", "Name", SL_UNIT_text, 0},
      {"kind", "Kind", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"category", "Category", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
  };
  size_t count;
  const struct sl_user_rule *list = sl_user_rules_list(rules, &count);
  if (count == 0) {
    sl_output_line(out, "No rules of your own: 'shardledger ingest --help' says how to write some.");
    return;
  }
  sl_output_line(out, "Your rules (%s): the first that fits, of ranges inside of each other the innermost",
                 sl_user_rules_path(rules));
  struct sl_table *table = sl_table_begin(out, "user_rules", columns, sizeof(columns) / sizeof(columns[0]));
  for (size_t i = 0; i < count; i++) {
    bool kind = list[i].type == SL_USER_RULE_range_kind;
    sl_cell_int(table, list[i].line);
    sl_cell_text(table, applies_to(&list[i]));
    sl_cell_text(table, list[i].glob);
    sl_cell_text(table, kind ? gives(&list[i]) : NULL);
    sl_cell_text(table, list[i].module);
    sl_cell_text(table, kind ? NULL : gives(&list[i]));
  }
  table = sl_table_end(table);
}

static void print_range_rules(struct sl_output *out) {
  static const struct sl_column columns[] = {{"prefix", "Name starts with", SL_UNIT_text, 0},
                                             {"kind", "Kind", SL_UNIT_text, 0}};
  sl_output_line(out, "%s", "");
  sl_output_line(out, "Then what record_function's names mean, the first that fits");
  struct sl_table *table = sl_table_begin(out, "range_rules", columns, 2);
  sl_table_keep(table, PART, NULL);
  for (size_t i = 0; i < sizeof(range_rules) / sizeof(range_rules[0]); i++) {
    sl_cell_text(table, range_rules[i].prefix);
    sl_cell_text(table, range_rules[i].kind);
  }
  table = sl_table_end(table);
}

static void print_kinds(struct sl_output *out) {
  static const struct sl_column columns[] = {{"kind", "Kind", SL_UNIT_text, 0},
                                             {"meaning", "Meaning", SL_UNIT_text, 0}};
  sl_output_line(out, "%s", "");
  sl_output_line(out, "Kinds");
  struct sl_table *table = sl_table_begin(out, "kinds", columns, 2);
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
    if (strcmp(kinds[i].name, "record_function") != 0) {
      sl_cell_text(table, kinds[i].name);
      sl_cell_text(table, kinds[i].meaning);
    }
  table = sl_table_end(table);
}

/* The category that a rule gives, with its detail; NULL where it gives one that somebody else chose. */
static const char *category_of(int rule, char buffer[80]) {
  if (rule == SL_RULE_tag || rule == SL_RULE_user_note || rule == SL_RULE_user_range || rule == SL_RULE_user_module)
    return NULL;
  snprintf(buffer, 80, "%s%s%s", sl_categories[sl_rules[rule].category].name, sl_rules[rule].detail ? "/" : "",
           sl_rules[rule].detail ? sl_rules[rule].detail : "");
  return buffer;
}

static void print_attribution_rules(struct sl_output *out) {
  static const struct sl_column columns[] = {
      {"rule", "Decided by", SL_UNIT_text, 0},
      {"category", "Category", SL_UNIT_text, 0},
      {"meaning", "When", SL_UNIT_text, SL_COLUMN_SENTENCE},
  };
  char category[80];
  sl_output_line(out, "%s", "");
  sl_output_line(out, "Who decides the category of an allocation, the first that fits (allocation.decided_by)");
  struct sl_table *table = sl_table_begin(out, "attribution_rules", columns, 3);
  sl_table_keep(table, PART, NULL);
  for (int i = 0; i < SL_RULE_count; i++) {
    sl_cell_text(table, sl_rules[i].name);
    sl_cell_text(table, category_of(i, category));
    sl_cell_text(table, sl_rules[i].meaning);
  }
  table = sl_table_end(table);
}

static void print_categories(struct sl_output *out, const struct sl_user_rules *rules) {
  static const struct sl_column columns[] = {{"category", "Category", SL_UNIT_text, 0},
                                             {"meaning", "Meaning", SL_UNIT_text, 0}};
  size_t count;
  const char *const *own = sl_user_rules_own_categories(rules, &count);
  sl_output_line(out, "%s", "");
  sl_output_line(out, "Categories");
  struct sl_table *table = sl_table_begin(out, "categories", columns, 2);
  for (int i = 0; i < SL_CATEGORY_built_in; i++) {
    sl_cell_text(table, sl_categories[i].name);
    sl_cell_text(table, sl_categories[i].meaning);
  }
  for (size_t i = 0; i < count; i++) {
    sl_cell_text(table, own[i]);
    sl_cell_text(table, "your own");
  }
  table = sl_table_end(table);
}

/* CSV and JSON have one row a rule, in order. */
static void print_data(struct sl_output *out, const struct sl_user_rules *rules) {
  static const struct sl_column columns[] = {
      {"table", "Table", SL_UNIT_text, 0},     {"rule", "Rule", SL_UNIT_text, 0},
      {"pattern", "Pattern", SL_UNIT_text, 0}, {"kind", "Kind", SL_UNIT_text, 0},
      {"module", "Module", SL_UNIT_text, 0},   {"category", "Category", SL_UNIT_text, 0},
      {"meaning", "Meaning", SL_UNIT_text, 0},
  };
  char text[80];
  size_t count;
  const struct sl_user_rule *list = sl_user_rules_list(rules, &count);
  struct sl_table *table = sl_table_begin(out, "rules", columns, sizeof(columns) / sizeof(columns[0]));
  for (size_t i = 0; i < count; i++) {
    bool kind = list[i].type == SL_USER_RULE_range_kind;
    snprintf(text, sizeof text, "line %u", list[i].line);
    sl_cell_text(table, kind ? "range" : "category");
    sl_cell_text(table, text);
    sl_cell_text(table, list[i].glob);
    sl_cell_text(table, kind ? gives(&list[i]) : NULL);
    sl_cell_text(table, list[i].module);
    sl_cell_text(table, kind ? NULL : gives(&list[i]));
    sl_cell_text(table,
                 list[i].type == SL_USER_RULE_module_category ? "a module of this name" : "a range of this name");
  }
  for (size_t i = 0; i < sizeof(range_rules) / sizeof(range_rules[0]); i++) {
    snprintf(text, sizeof text, "%s*", range_rules[i].prefix);
    sl_cell_text(table, "range");
    sl_cell_text(table, "built in");
    sl_cell_text(table, text);
    sl_cell_text(table, range_rules[i].kind);
    sl_cell_null(table);
    sl_cell_null(table);
    sl_cell_text(table, "a record_function range of this name");
  }
  for (int i = 0; i < SL_RULE_count; i++) {
    sl_cell_text(table, "attribution");
    sl_cell_text(table, sl_rules[i].name);
    sl_cell_null(table);
    sl_cell_null(table);
    sl_cell_null(table);
    sl_cell_text(table, category_of(i, text));
    sl_cell_text(table, sl_rules[i].meaning);
  }
  table = sl_table_end(table);
}

int sl_cmd_rules(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  const struct sl_argument arguments[] = {
      SL_LIMIT_ARGUMENT(format),
      {"csv", 0, NULL, "print CSV", SL_ARGUMENT_FLAG, &format.csv},
      {"json", 0, NULL, "print JSON", SL_ARGUMENT_FLAG, &format.json},
  };
  const char *path = NULL;
  struct sl_user_rules *rules = NULL;
  struct sl_error error = {{0}};
  struct sl_output out;
  int r = sl_parse(command, arguments, 3, argc, argv, &path, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (sl_output_begin(&out, &format) < 0)
    return SL_EXIT_USAGE;
  if (path || sl_path_exists(sl_default_directory()))
    r = find_rules(path ? path : sl_default_directory(), &rules, &error);
  if (r < 0) {
    sl_complain("%s", error.text);
    return SL_EXIT_USAGE;
  }
  if (out.format != SL_FORMAT_text) {
    print_data(&out, rules);
  } else {
    print_user_rules(&out, rules);
    print_range_rules(&out);
    print_attribution_rules(&out);
    print_kinds(&out);
    print_categories(&out, rules);
  }
  rules = sl_user_rules_free(rules);
  return sl_output_close(&out) < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
