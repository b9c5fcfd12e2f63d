/* `shardledger check`: does a run keep its budget, and is every rank there? */
#include "ask_ledger.h"
#include "command.h"
#include "commands/summary.h"
#include "exports/export.h"
#include "open_ledger.h"
#include "output/units.h"
#include "storage/grow.h"
#include "storage/rank_ranges.h"
#include "storage/rules/categories.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct budget {
  const char *category; /* points into argv, not terminated */
  int category_length;
  int64_t bytes;
};

struct budgets {
  int64_t peak, step_peak, growth; /* -1: none */
  struct budget categories[32];
  int category_count;
  const char *against;     /* NULL: none */
  const char *against_run; /* of several in its directory; NULL: the newest */
  double tolerance;
  const char *junit;   /* NULL: none */
  bool allows_missing; /* ranks that were not recorded are no failure */
};

/* What came of one budget. */
struct verdict {
  char name[128];
  int64_t rank; /* -1: none that stands out */
  int64_t bytes, limit;
  char reason[768]; /* why it failed, or in what it was kept */
  size_t of_any;    /* where the part of the reason begins that does not name the rank; 0: there is none */
  bool is_missing;  /* ranks were not recorded: it has no bytes, and is not kept */
};

struct verdicts {
  struct verdict *items;
  int count, failed;
};

static struct verdict *add_verdict(struct verdicts *verdicts, struct sl_error *error) {
  struct verdict *added = SL_LIST_ADD(verdicts->items, verdicts->count);
  if (!added) {
    sl_no_memory(error);
    return NULL;
  }
  memset(added, 0, sizeof(*added));
  return added;
}

static bool is_kept(const struct verdict *v) {
  return !v->is_missing && v->bytes <= v->limit;
}

/* The end of every reason: how far it is from the limit. */
static const char *distance(char buffer[128], const struct verdict *v, const char *limit_name) {
  char limit[SL_UNIT_CHARS], difference[SL_UNIT_CHARS];
  snprintf(buffer, 128, "%s %s the %s of %s",
           sl_format_bytes(difference, is_kept(v) ? v->limit - v->bytes : v->bytes - v->limit, false),
           is_kept(v) ? "under" : "over", limit_name, sl_format_bytes(limit, v->limit, false));
  return buffer;
}

/* What holds for the ranks that are there may not hold for those that are not. */
static int check_missing(struct sl_db *db, struct verdicts *verdicts, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sl_sql_check_missing, NULL, &statement, error);
  struct verdict *v = r > 0 ? add_verdict(verdicts, error) : NULL;
  if (r > 0 && !v)
    r = -ENOMEM;
  if (v) {
    snprintf(v->name, sizeof(v->name), "ranks");
    v->rank = -1;
    v->is_missing = true;
    snprintf(
        v->reason, sizeof(v->reason),
        "%lld of %lld ranks were recorded; what the others had (%.300s) is not known: --allow-missing checks those "
        "that are there alone",
        (long long)sl_column_int(statement, 0), (long long)sl_column_int(statement, 1), sl_column_text(statement, 2));
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* Appends which ranks are over the budget, where there are several. */
static int name_others(struct sl_db *db, const char *sql, struct verdict *v, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sql, SL_WITH(SL_NUMBER(":limit", v->limit)), &statement, error);
  const size_t length = strlen(v->reason);
  if (r > 0 && sl_column_int(statement, 0) > 1)
    snprintf(v->reason + length, sizeof(v->reason) - length, "; %lld ranks are over it: %.200s",
             (long long)sl_column_int(statement, 0), sl_column_text(statement, 1));
  statement = sl_statement_close(statement);
  return r;
}

/* sql: check_peak or check_step_peak. */
static int check_peak(struct sl_db *db, const char *name, const char *sql, int64_t limit, struct verdicts *verdicts,
                      struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char bytes[SL_UNIT_CHARS], end[128];
  int r = sl_db_ask_first(db, sql, NULL, &statement, error);
  struct verdict *v = r > 0 ? add_verdict(verdicts, error) : NULL;
  if (r == 0) {
    r = sl_error_set(error, -ENODATA, "no step with allocations was recorded, so --%s can't be checked", name);
  } else if (r > 0 && !v) {
    r = -ENOMEM;
  } else if (r > 0) {
    snprintf(v->name, sizeof(v->name), "%s", name);
    v->rank = sl_column_int(statement, 0);
    v->bytes = sl_column_int(statement, 2);
    v->limit = limit;
    snprintf(v->reason, sizeof(v->reason), "the %speak is %s (rank %lld, %.300s): %s",
             sql == sl_sql_check_peak ? "" : "steps' ", sl_format_bytes(bytes, v->bytes, false), (long long)v->rank,
             sl_column_text(statement, 1), distance(end, v, "budget"));
    if (!is_kept(v))
      r = name_others(db, sql == sl_sql_check_peak ? sl_sql_check_over : sl_sql_check_over_in_steps, v, error);
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* A misspelt category must not count as one that has nothing. */
static int know_category(struct sl_db *db, const char *name, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  if (sl_category_find(name) >= 0)
    return 0;
  int r = sl_db_ask_first(db, sl_sql_check_category_is_known, SL_WITH(SL_WORD(":category", name)), &statement, error);
  statement = sl_statement_close(statement);
  if (r == 0)
    r = sl_error_set(error, -EINVAL, "there is no category '%s'; 'shardledger rules' lists them", name);
  return r < 0 ? r : 0;
}

static int check_category(struct sl_db *db, const struct budget *budget, struct verdicts *verdicts,
                          struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char name[96], bytes[SL_UNIT_CHARS], end[128];
  struct verdict *v = NULL;
  snprintf(name, sizeof(name), "%.*s", budget->category_length, budget->category);
  int r = know_category(db, name, error);
  if (r == 0)
    r = (v = add_verdict(verdicts, error)) ? 0 : -ENOMEM;
  if (r == 0)
    r = sl_db_ask_first(db, sl_sql_check_category, SL_WITH(SL_WORD(":category", name)), &statement, error);
  if (r < 0) {
    statement = sl_statement_close(statement);
    return r;
  }
  snprintf(v->name, sizeof(v->name), "max-category %s", name);
  v->rank = -1;
  v->limit = budget->bytes;
  if (r > 0) {
    v->rank = sl_column_int(statement, 0);
    v->bytes = sl_column_int(statement, 2);
    snprintf(v->reason, sizeof(v->reason), "%s has %s at the peak %.200s on rank %lld: %s", name,
             sl_format_bytes(bytes, v->bytes, false), sl_column_text(statement, 1), (long long)v->rank,
             distance(end, v, "budget"));
  } else {
    snprintf(v->reason, sizeof(v->reason), "%s has nothing at any peak", name);
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* As survivors tells it. */
static int check_growth(struct sl_db *db, int64_t limit, struct verdicts *verdicts, struct sl_error *error) {
  enum { RANK, FIRST, LAST, BYTES, ALLOCATED, UNIT, EACH, LARGEST, WHOSE }; /* columns of survivors_growth */
  struct sl_statement *statement = NULL;
  char bytes[SL_UNIT_CHARS], end[128], most[SL_UNIT_CHARS];
  int64_t steps = 0, calls = 0;
  int r = sl_db_int(db, sl_sql_check_steps, &steps, error);
  if (r == 0)
    r = sl_db_int(db, sl_sql_survivors_calls, &calls, error);
  if (r == 0 && steps < 4 && calls < 4)
    r = sl_error_set(error, -ENODATA, "growth can't be told from %lld %s%s; at least four are needed",
                     (long long)(steps ? steps : calls), steps || !calls ? "step" : "outermost range",
                     (steps ? steps : calls) == 1 ? "" : "s");
  if (r == 0)
    r = sl_db_ask_first(db, sl_sql_survivors_growth, SL_WITH(SL_WORD(":rank", NULL)), &statement, error);
  struct verdict *v = r < 0 ? NULL : add_verdict(verdicts, error);
  if (!v) {
    statement = sl_statement_close(statement);
    return r < 0 ? r : -ENOMEM;
  }
  snprintf(v->name, sizeof(v->name), "max-growth");
  v->rank = -1;
  v->limit = limit;
  if (r > 0) {
    const int64_t all = sl_column_int(statement, BYTES), largest = sl_column_int(statement, LARGEST);
    const char *unit = sl_column_text(statement, UNIT);
    v->rank = sl_column_int(statement, RANK);
    v->bytes = sl_column_int(statement, EACH);
    snprintf(v->reason, sizeof(v->reason),
             "rank %lld grows %s a %.8s on average, from %.8s %lld to %lld: %s a %.8s; %s, %s in all, is %.300s"
             " ('shardledger survivors' shows all)",
             (long long)v->rank, sl_format_bytes(bytes, v->bytes, false), unit, unit,
             (long long)sl_column_int(statement, FIRST), (long long)sl_column_int(statement, LAST),
             distance(end, v, "budget"), unit, 2 * largest > all ? "most of it" : "the largest part",
             sl_format_bytes(most, largest, false), sl_column_text(statement, WHOSE));
  } else {
    snprintf(v->reason, sizeof(v->reason), "nothing grows (%lld %s)", (long long)(steps >= 4 ? steps : calls),
             steps >= 4 ? "steps" : "calls");
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* Appends what the rank's peak consists of more than the base's, the largest first. */
static int explain_difference(struct sl_db *db, struct verdict *v, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char bytes[SL_UNIT_CHARS];
  int r = sl_db_ask(db, sl_sql_check_difference, SL_WITH(SL_NUMBER(":rank", v->rank)), &statement, error);
  if (r < 0)
    return r;
  for (const char *separator = "; "; (r = sl_statement_step(statement, error)) > 0; separator = ", ") {
    size_t length = strlen(v->reason);
    snprintf(v->reason + length, sizeof(v->reason) - length, "%s%.60s +%s", separator, sl_column_text(statement, 0),
             sl_format_bytes(bytes, sl_column_int(statement, 1), false));
  }
  statement = sl_statement_close(statement);
  return r;
}

static int compare_ranks(struct sl_db *db, double tolerance, struct verdicts *verdicts, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char bytes[SL_UNIT_CHARS], before[SL_UNIT_CHARS], end[128], name[64];
  int64_t strangers = 0;
  int r = sl_db_int(db, sl_sql_check_strangers, &strangers, error);
  if (r == 0 && strangers > 0)
    r = sl_error_set(error, -EINVAL, "the two runs have different ranks (%lld are in one only): they can't be compared",
                     (long long)strangers);
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_check_against, &statement, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(statement, error)) > 0) {
    if (sl_column_is_null(statement, 1) || sl_column_is_null(statement, 2)) {
      r = sl_error_set(error, -ENODATA, "rank %lld has no peak in one of the runs",
                       (long long)sl_column_int(statement, 0));
      break;
    }
    struct verdict *v = add_verdict(verdicts, error);
    if (!v) {
      r = -ENOMEM;
      break;
    }
    v->rank = sl_column_int(statement, 0);
    v->bytes = sl_column_int(statement, 1);
    int64_t base = sl_column_int(statement, 2);
    v->limit = base + (int64_t)((double)base * tolerance);
    snprintf(v->name, sizeof(v->name), "against rank %lld", (long long)v->rank);
    snprintf(name, sizeof(name), "limit (base and %.4g%%)", tolerance * 100);
    v->of_any = (size_t)snprintf(v->reason, sizeof(v->reason), "the peak of rank %lld", (long long)v->rank);
    snprintf(v->reason + v->of_any, sizeof(v->reason) - v->of_any, " is %s and was %s: %s",
             sl_format_bytes(bytes, v->bytes, false), sl_format_bytes(before, base, false), distance(end, v, name));
    if (!is_kept(v))
      r = explain_difference(db, v, error);
    if (r < 0)
      break;
  }
  statement = sl_statement_close(statement);
  return r;
}

static int check_against(struct sl_db *db, const struct budgets *budgets, struct verdicts *verdicts,
                         struct sl_error *error) {
  int r = sl_attach_run(db, budgets->against, budgets->against_run, "base", error);
  return r < 0 ? sl_say_other(r, error) : compare_ranks(db, budgets->tolerance, verdicts, error);
}

/* ---- JUnit ---- */

static void write_escaped(FILE *file, const char *text) {
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '&')
      fputs("&amp;", file);
    else if (c == '<')
      fputs("&lt;", file);
    else if (c == '>')
      fputs("&gt;", file);
    else if (c == '"')
      fputs("&quot;", file);
    else
      fputc(c < 0x20 ? ' ' : c, file); /* XML has no other control characters */
  }
}

static int write_junit(const char *path, const struct verdicts *verdicts, struct sl_error *error) {
  struct sl_export_file staged;
  int r = sl_export_begin_any(path, &staged, error);
  if (r < 0)
    return r;
  FILE *file = staged.stream;
  fprintf(file,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
          "<testsuites tests=\"%d\" failures=\"%d\">\n<testsuite name=\"shardledger check\" tests=\"%d\" "
          "failures=\"%d\">\n",
          verdicts->count, verdicts->failed, verdicts->count, verdicts->failed);
  for (int i = 0; i < verdicts->count; i++) {
    const struct verdict *v = &verdicts->items[i];
    fputs("<testcase classname=\"shardledger.check\" name=\"", file);
    write_escaped(file, v->name);
    fputs(is_kept(v) ? "\"><system-out>" : "\"><failure message=\"", file);
    write_escaped(file, v->reason);
    fputs(is_kept(v) ? "</system-out></testcase>\n" : "\"/></testcase>\n", file);
  }
  fputs("</testsuite>\n</testsuites>\n", file);
  return sl_export_end(&staged, 0, error);
}

/* ---- the command ---- */

struct context {
  struct budgets budgets;
  int failed; /* out: budgets that were not kept */
};

/* They say the same of two ranks. */
static bool are_alike(const struct verdict *a, const struct verdict *b) {
  return a->of_any && b->of_any && a->bytes == b->bytes && a->limit == b->limit &&
         strcmp(a->reason + a->of_any, b->reason + b->of_any) == 0;
}

static bool is_first(const struct verdicts *verdicts, int at) {
  for (int i = 0; i < at; i++)
    if (are_alike(&verdicts->items[i], &verdicts->items[at]))
      return false;
  return true;
}

/* "against ranks 0-7,9" of those that say the same, of which this is the first. Owned by the caller; NULL: no memory.
 */
static char *name_of_alike(const struct verdicts *verdicts, int first) {
  enum { RANGES = 8 };
  const struct verdict *items = verdicts->items;
  struct sl_rank_ranges ranks = {0};
  char *text = NULL, *name = NULL;
  int r = 0, count = 1;
  for (int i = first + 1; i < verdicts->count && r == 0; i++)
    if (are_alike(&items[first], &items[i])) {
      r = sl_rank_ranges_add(&ranks, items[i].rank, items[i].rank);
      count++;
    }
  if (count == 1)
    return strdup(items[first].name);
  if (r == 0 && sl_rank_ranges_add(&ranks, items[first].rank, items[first].rank) == 0)
    text = sl_rank_ranges_text(&ranks, RANGES);
  if (text && asprintf(&name, "against ranks %s", text) < 0)
    name = NULL;
  free(text);
  free(ranks.list);
  return name;
}

static void print_verdicts(struct sl_output *out, const struct verdicts *verdicts) {
  static const struct sl_column columns[] = {
      {"check", "Check", SL_UNIT_text, 0},
      {"result", "Result", SL_UNIT_text, 0},
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"bytes", "Is", SL_UNIT_bytes, 0},
      {"limit_bytes", "Limit", SL_UNIT_bytes, 0},
      {"reason", "Reason", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
  };
  enum { SENTENCES = 12 };
  const bool text = out->format == SL_FORMAT_text;
  int sentences = 0;
  struct sl_table *table = sl_table_begin(out, "checks", columns, sizeof(columns) / sizeof(columns[0]));
  for (int i = 0; i < verdicts->count; i++) {
    const struct verdict *v = &verdicts->items[i];
    if (text && !is_first(verdicts, i))
      continue;
    char *name = text ? name_of_alike(verdicts, i) : strdup(v->name);
    sl_cell_text(table, name ? name : v->name);
    free(name);
    sl_cell_text(table, is_kept(v) ? "kept" : "failed");
    if (v->rank >= 0)
      sl_cell_int(table, v->rank);
    else
      sl_cell_null(table);
    if (v->is_missing) {
      sl_cell_null(table);
      sl_cell_null(table);
    } else {
      sl_cell_int(table, v->bytes);
      sl_cell_int(table, v->limit);
    }
    sl_cell_text(table, v->reason);
  }
  table = sl_table_end(table);
  if (verdicts->failed > 0)
    sl_output_line(out, "%s", "");
  for (int i = 0; i < verdicts->count && text; i++) {
    const struct verdict *v = &verdicts->items[i];
    if (is_kept(v) || !is_first(verdicts, i) || (sentences++ >= SENTENCES && out->limit != SL_ALL_ROWS))
      continue;
    char *name = name_of_alike(verdicts, i);
    const bool several = name && strcmp(name, v->name) != 0;
    sl_output_styled(out, SL_STYLE_red, "%s: %s%s", name ? name : v->name, several ? "the peak of each" : "",
                     several ? v->reason + v->of_any : v->reason);
    free(name);
  }
  if (sentences > SENTENCES && out->limit != SL_ALL_ROWS)
    sl_output_line(out, "%d reasons more; all of them with --limit all, --csv or --json", sentences - SENTENCES);
}

static int check_budgets(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct context *c = context;
  const struct budgets *b = &c->budgets;
  struct verdicts verdicts = {0};
  int64_t peaks = 0;
  int r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_db_int(db, sl_sql_check_has_peaks, &peaks, error);
  if (r == 0 && peaks == 0)
    r = sl_error_set(error, -ENODATA, "no allocations were recorded, so no budget can be checked");
  if (r == 0 && !b->allows_missing)
    r = check_missing(db, &verdicts, error);
  if (r == 0 && b->peak >= 0)
    r = check_peak(db, "max-peak", sl_sql_check_peak, b->peak, &verdicts, error);
  if (r == 0 && b->step_peak >= 0)
    r = check_peak(db, "max-step-peak", sl_sql_check_step_peak, b->step_peak, &verdicts, error);
  for (int i = 0; r == 0 && i < b->category_count; i++)
    r = check_category(db, &b->categories[i], &verdicts, error);
  if (r == 0 && b->growth >= 0)
    r = check_growth(db, b->growth, &verdicts, error);
  if (r == 0 && b->against)
    r = check_against(db, b, &verdicts, error);
  for (int i = 0; i < verdicts.count; i++)
    verdicts.failed += !is_kept(&verdicts.items[i]);
  if (r == 0 && b->junit)
    if ((r = write_junit(b->junit, &verdicts, error)) < 0)
      sl_say_other(r, error);
  if (r == 0) {
    sl_output_line(out, "%s", "");
    print_verdicts(out, &verdicts);
    c->failed = verdicts.failed;
  }
  free(verdicts.items);
  return r;
}

static int read_category(const char *text, struct budget *out) {
  const char *equals = strchr(text, '=');
  if (equals && equals > text && sl_parse_bytes(equals + 1, &out->bytes) == 0) {
    out->category = text;
    out->category_length = (int)(equals - text);
    return 0;
  }
  sl_complain("check: --max-category takes NAME=SIZE such as activation=10GiB, not '%s'", text);
  return -EINVAL;
}

static int read_growth(const char *text, int64_t *out) {
  static const char per_step[] = "/step";
  char size[SL_UNIT_CHARS];
  size_t length = strlen(text), suffix = sizeof(per_step) - 1;
  if (length > suffix && strcmp(text + length - suffix, per_step) == 0 && length - suffix < sizeof(size)) {
    snprintf(size, sizeof(size), "%.*s", (int)(length - suffix), text);
    if (sl_parse_bytes(size, out) == 0)
      return 0;
  }
  sl_complain("check: --max-growth takes SIZE/step such as 1MiB/step, not '%s'", text);
  return -EINVAL;
}

int sl_cmd_check(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct context context = {.budgets = {.peak = -1, .step_peak = -1, .growth = -1}};
  struct budgets *budgets = &context.budgets;
  struct sl_text_list categories = {0};
  const char *growth = NULL, *tolerance = NULL, *path = NULL;
  const struct sl_argument arguments[] = {
      {"max-peak", 0, "SIZE", "the most that any rank may have allocated in its whole life", SL_ARGUMENT_SIZE,
       &budgets->peak},
      {"max-step-peak", 0, "SIZE", "the most that any rank may have allocated in a step", SL_ARGUMENT_SIZE,
       &budgets->step_peak},
      {"max-category", 0, "NAME=SIZE", "the most of this category at any peak; may be given several times",
       SL_ARGUMENT_LIST, &categories},
      {"max-growth", 0, "SIZE/step",
       "the most that a rank may grow by in a step; without steps, in a call: an outermost range", SL_ARGUMENT_TEXT,
       &growth},
      {"against", 0, "BASE", "a ledger or run directory to compare the lives' peaks with", SL_ARGUMENT_TEXT,
       &budgets->against},
      {"against-run", 0, "RUN", "this run of several in BASE: its number or id (docs/runs.md)", SL_ARGUMENT_TEXT,
       &budgets->against_run},
      {"tolerance", 0, "PERCENT", "how much higher than those of BASE they may be; 0% when not given", SL_ARGUMENT_TEXT,
       &tolerance},
      {"allow-missing", 0, NULL, "ranks of the job that were not recorded are no failure", SL_ARGUMENT_FLAG,
       &budgets->allows_missing},
      {"junit", 0, "FILE", "write the results as JUnit XML too", SL_ARGUMENT_TEXT, &budgets->junit},
      SL_OUTPUT_ARGUMENTS(format),
  };
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  if (r < 0)
    return sl_parse_exit(r);
  r = growth ? read_growth(growth, &budgets->growth) : 0;
  for (int i = 0; r == 0 && i < categories.count; i++)
    r = read_category(categories.items[i], &budgets->categories[budgets->category_count++]);
  if (r < 0)
    return SL_EXIT_USAGE;
  if ((tolerance || budgets->against_run) && !budgets->against) {
    sl_complain("check: --%s goes with --against BASE", tolerance ? "tolerance" : "against-run");
    return SL_EXIT_USAGE;
  }
  if (tolerance && sl_parse_percent(tolerance, &budgets->tolerance) < 0) {
    sl_complain("check: --tolerance takes a percentage such as 1%%, not '%s'", tolerance);
    return SL_EXIT_USAGE;
  }
  if (budgets->peak < 0 && budgets->step_peak < 0 && budgets->growth < 0 && categories.count == 0 &&
      !budgets->against) {
    sl_complain("check: there is no budget to check; for example: --max-peak 40GiB");
    return SL_EXIT_USAGE;
  }
  r = sl_print_report(path, &format, check_budgets, &context);
  return r != SL_EXIT_OK ? r : context.failed > 0 ? SL_EXIT_CHECK_FAILED : SL_EXIT_OK;
}
