/* One allocation's whole story: who made it, where and when, what became of it, and why it has its category. */
#include "ask_ledger.h"
#include "command.h"
#include "commands/summary.h"
#include "open_ledger.h"
#include "output/units.h"
#include "storage/attribution/attribution.h"
#include "storage/rules/user_rules.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NEIGHBOURS 3           /* allocations shown before and after it in the same memory */
#define OTHER_STREAMS_NS 10000 /* without another stream, freed and free for others are two events in a row */

struct question {
  int64_t number;   /* an id, or an address */
  bool is_address;  /* written with 0x; else an id is looked for first */
  const char *word; /* as the user wrote it */
  struct sl_ranks ranks;
  int64_t at; /* -1: not given */
};

/* The columns of explain_story. */
enum column {
  ID,
  RANK,
  DEVICE,
  ADDRESS,
  BYTES,
  REQUESTED,
  STREAM,
  POOL,
  CATEGORY,
  DETAIL,
  NAME,
  MODULE,
  STEP,
  ALLOC_NS,
  ALLOC_AFTER,
  TID,
  RANGES,
  FREE_NS,
  FREE_RANGES,
  COMPLETE_NS,
  LIFETIME,
  LAST_STEP,
  LINE,
  FUNCTION,
  OPERATOR,
  STACK_OF,
  SITE_STEP,
  STACK,
  NOTE,
  DECIDED_BY,
  PHASE_ID
};

static const struct sl_column data_columns[] = {
    {"id", "ID", SL_UNIT_number, 0},
    {"rank", "Rank", SL_UNIT_number, 0},
    {"device", "GPU", SL_UNIT_number, 0},
    {"address", "Address", SL_UNIT_number, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"requested_bytes", "Requested", SL_UNIT_bytes, 0},
    {"stream", "Stream", SL_UNIT_number, 0},
    {"pool", "Pool", SL_UNIT_text, 0},
    {"category", "Category", SL_UNIT_text, 0},
    {"detail", "Detail", SL_UNIT_text, 0},
    {"name", "Name", SL_UNIT_text, 0},
    {"module", "Module", SL_UNIT_text, 0},
    {"step", "Step", SL_UNIT_number, 0},
    {"alloc_ns", "Allocated", SL_UNIT_instant, 0},
    {"alloc_after_ns", "After", SL_UNIT_duration, 0},
    {"tid", "Thread", SL_UNIT_number, 0},
    {"ranges", "Ranges", SL_UNIT_text, 0},
    {"free_ns", "Freed", SL_UNIT_instant, 0},
    {"free_ranges", "Freed in", SL_UNIT_text, 0},
    {"complete_ns", "Complete", SL_UNIT_instant, 0},
    {"lifetime_ns", "Lifetime", SL_UNIT_duration, 0},
    {"last_step", "Last step", SL_UNIT_number, 0},
    {"code_line", "Line", SL_UNIT_text, 0},
    {"function", "Function", SL_UNIT_text, 0},
    {"operator", "Operator", SL_UNIT_text, 0},
    {"stack_of", "Stack of", SL_UNIT_text, 0},
    {"site_step", "Stack's step", SL_UNIT_number, 0},
    {"stack", "Stack", SL_UNIT_text, 0},
    {"note", "Note", SL_UNIT_text, 0},
    {"decided_by", "Decided by", SL_UNIT_text, 0},
    {"meaning", "Meaning", SL_UNIT_text, 0},
};
enum { DATA_COLUMNS = sizeof(data_columns) / sizeof(data_columns[0]) };

static const char *rule_meaning(const char *name) {
  for (int i = 0; i < SL_RULE_count; i++)
    if (strcmp(sl_rules[i].name, name) == 0)
      return sl_rules[i].meaning;
  return "a rule that this version does not know";
}

/* "step 3, 12.3 ms after its start", "after step 3, 1.2 ms after its end", "before the first step". */
static int describe_moment(struct sl_db *db, int64_t rank, int64_t at_ns, char out[120], struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char time[SL_UNIT_CHARS];
  int r = sl_db_ask_first(db, sl_sql_explain_moment, SL_WITH(SL_NUMBER(":rank", rank), SL_NUMBER(":at", at_ns)),
                          &statement, error);
  if (r == 0) {
    int64_t any = 0;
    r = sl_db_int(db, sl_sql_info_has_steps, &any, error);
    snprintf(out, 120, any ? "before the first step (%s)" : "%s", sl_format_instant(time, at_ns));
    statement = sl_statement_close(statement);
    return r;
  }
  if (r > 0) {
    int64_t step = sl_column_int(statement, 0), start = sl_column_int(statement, 1), end = sl_column_int(statement, 2);
    if (at_ns <= end)
      snprintf(out, 120, "step %" PRId64 ", %s after its start", step, sl_format_duration(time, at_ns - start));
    else
      snprintf(out, 120, "after step %" PRId64 ", %s after its end", step, sl_format_duration(time, at_ns - end));
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* ---- the story ---- */

static void print_headline(struct sl_output *out, struct sl_statement *s) {
  char bytes[SL_UNIT_CHARS];
  const char *detail = sl_column_text(s, DETAIL), *name = sl_column_text(s, NAME), *module = sl_column_text(s, MODULE);
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "Allocation %" PRId64 ": %s of %s%s%s%s%s%s%s%s", sl_column_int(s, ID),
                   sl_format_bytes(bytes, sl_column_int(s, BYTES), out->exact_bytes), sl_column_text(s, CATEGORY),
                   *detail ? "/" : "", detail, *name ? ", " : "", name,
                   *module ? ", owned by " : ", owned by no module", module, "");
}

static int print_birth(struct sl_db *db, struct sl_output *out, struct sl_statement *s, struct sl_error *error) {
  char moment[120], bytes[SL_UNIT_CHARS], requested[SL_UNIT_CHARS], spare[SL_UNIT_CHARS], stream[32];
  const char *pool = sl_column_text(s, POOL);
  int64_t block = sl_column_int(s, BYTES), asked = sl_column_int(s, REQUESTED);
  int r = describe_moment(db, sl_column_int(s, RANK), sl_column_int(s, ALLOC_NS), moment, error);
  if (r < 0)
    return r;
  if (sl_column_int(s, TID) == 0) /* a memory snapshot does not tell */
    sl_output_line(out, "Made     %s, by rank %" PRId64, moment, sl_column_int(s, RANK));
  else
    sl_output_line(out, "Made     %s, by thread %" PRId64 " of rank %" PRId64, moment, sl_column_int(s, TID),
                   sl_column_int(s, RANK));
  if (sl_column_is_null(s, RANGES))
    sl_output_line(out, "In       no range");
  else
    sl_output_line(out, "In       %s", sl_column_text(s, RANGES));
  sl_format_bytes(requested, asked, out->exact_bytes);
  if (block == asked)
    sl_output_line(out, "Size     %s asked for, and a block of just that size given", requested);
  else
    sl_output_line(out, "Size     %s asked for, a block of %s given: %s more", requested,
                   sl_format_bytes(bytes, block, out->exact_bytes),
                   sl_format_bytes(spare, block - asked, out->exact_bytes));
  snprintf(stream, sizeof stream, "stream 0x%" PRIx64, (uint64_t)sl_column_int(s, STREAM));
  sl_output_line(out, "Where    0x%" PRIx64 " on GPU %" PRId64 ", %s, %s%s", (uint64_t)sl_column_int(s, ADDRESS),
                 sl_column_int(s, DEVICE), sl_column_int(s, STREAM) ? stream : "the default stream",
                 *pool ? "pool " : "the shared pool", pool);
  return 0;
}

/* Where in the code; the innermost frame of the user's, with the operator. */
static void print_code(struct sl_output *out, struct sl_statement *s) {
  const char *operator_name = sl_column_text(s, OPERATOR), *stack_of = sl_column_text(s, STACK_OF);
  char step[80] = "";
  if (!sl_column_is_null(s, SITE_STEP))
    snprintf(step, sizeof step, "; recorded in step %" PRId64 ", at the same place", sl_column_int(s, SITE_STEP));
  if (!sl_column_is_null(s, LINE))
    sl_output_line(out, "Code     %s in %s%s%s%s%s", sl_column_text(s, LINE), sl_column_text(s, FUNCTION),
                   *operator_name ? ", " : "", operator_name,
                   strcmp(stack_of, "forward") == 0   ? ", in the backward of this line"
                   : strcmp(stack_of, "waiting") == 0 ? ", where the main thread waited"
                                                      : "",
                   step);
  else if (*operator_name)
    sl_output_line(out, "Code     %s, where no Python code ran%s", operator_name, step);
  if (!sl_column_is_null(s, NOTE))
    sl_output_line(out, "Note     %s", sl_column_text(s, NOTE));
}

/* 1: within a part of the log that was dropped, so that its free_ns is where that part begins. */
static int freed_in_gap(struct sl_db *db, struct sl_statement *s, struct sl_error *error) {
  struct sl_statement *gap = NULL;
  int r = sl_db_ask_first(
      db, sl_sql_explain_gap,
      SL_WITH(SL_NUMBER(":rank", sl_column_int(s, RANK)), SL_NUMBER(":at", sl_column_int(s, FREE_NS))), &gap, error);
  gap = sl_statement_close(gap);
  return r;
}

static int print_death(struct sl_db *db, struct sl_output *out, struct sl_statement *s, struct sl_error *error) {
  char moment[120], time[SL_UNIT_CHARS];
  if (sl_column_is_null(s, FREE_NS)) {
    sl_output_line(out, "Freed    never: alive when the log ended");
    return 0;
  }
  int r = describe_moment(db, sl_column_int(s, RANK), sl_column_int(s, FREE_NS), moment, error);
  if (r == 0)
    r = freed_in_gap(db, s, error);
  if (r < 0)
    return r;
  if (r > 0) {
    sl_output_line(out, "Freed    in the part of the log that was dropped: last known alive %s", moment);
    sl_output_line(out, "Lived    at least %s", sl_format_duration(time, sl_column_int(s, LIFETIME)));
    return 0;
  }
  sl_output_line(out, "Freed    %s; in %s", moment,
                 sl_column_is_null(s, FREE_RANGES) ? "no range" : sl_column_text(s, FREE_RANGES));
  sl_output_line(out, "Lived    %s", sl_format_duration(time, sl_column_int(s, LIFETIME)));
  if (sl_column_is_null(s, COMPLETE_NS))
    sl_output_line(out, "         Its memory was not free for others before the log ended: another stream used it");
  else if (sl_column_int(s, COMPLETE_NS) - sl_column_int(s, FREE_NS) >= OTHER_STREAMS_NS)
    sl_output_line(out, "         Its memory was free for others %s later, when another stream was done with it",
                   sl_format_duration(time, sl_column_int(s, COMPLETE_NS) - sl_column_int(s, FREE_NS)));
  return 0;
}

/* The line of the user's file that decided, found again by the names that it fits. */
static int print_user_rule(struct sl_db *db, struct sl_output *out, struct sl_statement *s, struct sl_error *error) {
  bool by_range = strcmp(sl_column_text(s, DECIDED_BY), "user_range") == 0;
  struct sl_statement *meta = NULL, *names = NULL;
  struct sl_user_rules *rules = NULL;
  const struct sl_user_rule *rule = NULL;
  int r = sl_db_ask_first(db, sl_sql_explain_rules, NULL, &meta, error);
  if (r > 0)
    r = sl_user_rules_parse(sl_column_text(meta, 0), "rules", &rules, error);
  if (r == 0 && rules)
    r = sl_db_prepare(db, by_range ? sl_sql_explain_range_names : sl_sql_explain_module_name, &names, error);
  if (r < 0 || !names)
    goto finish;
  sl_bind_named_int(names, ":from", sl_column_int(s, by_range ? PHASE_ID : ID));
  while (!rule && (r = sl_statement_step(names, error)) > 0)
    rule = sl_user_rule_find(rules, by_range ? SL_USER_RULE_range_category : SL_USER_RULE_module_category,
                             sl_column_text(names, 0), NULL);
  if (rule)
    sl_output_line(out, "         Line %u of your rules: %s %s category %s", rule->line, by_range ? "range" : "module",
                   rule->glob, rule->category_name);
finish:
  names = sl_statement_close(names);
  meta = sl_statement_close(meta);
  rules = sl_user_rules_free(rules);
  return r < 0 ? r : 0;
}

static int print_reason(struct sl_db *db, struct sl_output *out, struct sl_statement *s, struct sl_error *error) {
  const char *rule = sl_column_text(s, DECIDED_BY);
  sl_output_line(out, "Why      rule %s: %s", rule, rule_meaning(rule));
  return strncmp(rule, "user_", 5) == 0 ? print_user_rule(db, out, s, error) : 0;
}

/* Who else had a part of the same memory: the nearest ones before and after it. */
static int print_neighbours(struct sl_db *db, struct sl_output *out, struct sl_statement *s, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"when", "Same memory", SL_UNIT_text, 0},
      {"id", "ID", SL_UNIT_number, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"category", "Category", SL_UNIT_text, 0},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"step", "Step", SL_UNIT_number, 0},
      {"lifetime_ns", "Lived", SL_UNIT_duration, 0},
  };
  enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };
  struct sl_statement *others = NULL;
  int r = sl_db_ask_first(
      db, sl_sql_explain_neighbours,
      SL_WITH(SL_NUMBER(":id", sl_column_int(s, ID)), SL_NUMBER(":rank", sl_column_int(s, RANK)),
              SL_NUMBER(":device", sl_column_int(s, DEVICE)), SL_NUMBER(":start", sl_column_int(s, ADDRESS)),
              SL_NUMBER(":end", sl_column_int(s, ADDRESS) + sl_column_int(s, BYTES)), SL_NUMBER(":limit", NEIGHBOURS)),
      &others, error);
  sl_output_line(out, "%s", "");
  if (r == 0) {
    sl_output_line(out, "No other allocation had any of this memory");
  } else if (r > 0) {
    struct sl_table *table = sl_table_begin(out, "same_memory", columns, COLUMNS);
    for (; r > 0; r = sl_statement_step(others, error))
      sl_cell_columns(table, others, 0, COLUMNS - 1);
    table = sl_table_end(table);
  }
  others = sl_statement_close(others);
  return r;
}

static int print_story(struct sl_db *db, struct sl_output *out, struct sl_statement *s, struct sl_error *error) {
  print_headline(out, s);
  int r = print_birth(db, out, s, error);
  if (r == 0)
    print_code(out, s);
  if (r == 0)
    r = print_death(db, out, s, error);
  if (r == 0)
    r = print_reason(db, out, s, error);
  return r < 0 ? r : print_neighbours(db, out, s, error);
}

/* ---- which allocation ---- */

static int count_rows(struct sl_statement *statement, int64_t *out, struct sl_error *error) {
  int r;
  *out = 0;
  while ((r = sl_statement_step(statement, error)) > 0)
    ++*out;
  return r;
}

static int print_list(struct sl_output *out, struct sl_statement *s, int64_t count, const struct question *question,
                      struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"id", "ID", SL_UNIT_number, 0},
      {"rank", "Rank", SL_UNIT_number, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"category", "Category", SL_UNIT_text, 0},
      {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"step", "Step", SL_UNIT_number, 0},
      {"alloc_after_ns", "After its start", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
      {"lifetime_ns", "Lived", SL_UNIT_duration, 0},
      {"alloc_ns", "--at", SL_UNIT_number, 0},
  };
  static const enum column shown[] = {ID, RANK, BYTES, CATEGORY, MODULE, STEP, ALLOC_AFTER, LIFETIME, ALLOC_NS};
  int r = 0;
  sl_output_line(out, "%s", "");
  sl_output_line(out, "%" PRId64 " allocations had %s: name one by its ID, or an instant with --at", count,
                 question->word);
  struct sl_table *table = sl_table_begin(out, "allocations", columns, sizeof(columns) / sizeof(columns[0]));
  while ((r = sl_statement_step(s, error)) > 0)
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
      sl_cell_column(table, s, shown[i]);
  table = sl_table_end(table);
  return r;
}

static int print_data(struct sl_output *out, struct sl_statement *s, struct sl_error *error) {
  struct sl_table *table = sl_table_begin(out, "allocations", data_columns, DATA_COLUMNS);
  int r = 0;
  while ((r = sl_statement_step(s, error)) > 0) {
    sl_cell_columns(table, s, 0, DATA_COLUMNS - 2);
    sl_cell_text(table, rule_meaning(sl_column_text(s, DECIDED_BY)));
  }
  table = sl_table_end(table);
  return r;
}

static int print_explanation(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct question *question = context;
  struct sl_statement *statement = NULL;
  int64_t count = 0, left_out = 0;
  int r = sl_check_selection(db, &question->ranks, -1, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  for (int by_address = question->is_address; r == 0 && count == 0 && by_address < 2; by_address++) {
    statement = sl_statement_close(statement);
    r = sl_db_ask(db, sl_sql_explain_story,
                  SL_WITH(SL_NUMBER(":number", question->number), SL_NUMBER(":by_address", by_address),
                          SL_RANKS(&question->ranks), SL_GIVEN(":at", question->at)),
                  &statement, error);
    if (r == 0)
      r = count_rows(statement, &count, error);
  }
  if (r == 0 && count == 0)
    r = sl_db_int(db, sl_sql_explain_left_out, &left_out, error);
  if (r == 0 && count == 0)
    r = sl_error_set(error, -ENODATA,
                     "no allocation %s %s%s%s; ids and addresses are in: shardledger query \"SELECT id, rank, address,"
                     " bytes FROM allocation\"%s",
                     question->is_address ? "had" : "has the id or had the address", question->word,
                     question->at >= 0 ? " at that instant" : "", question->ranks.text ? " on that rank" : "",
                     left_out ? ". Those of steps that repeat another one are kept by 'shardledger ingest --keep all'"
                              : "");
  else if (r == 0 && out->format != SL_FORMAT_text)
    r = print_data(out, statement, error);
  else if (r == 0 && count > 1)
    r = print_list(out, statement, count, question, error);
  else if (r == 0 && (r = sl_statement_step(statement, error)) > 0)
    r = print_story(db, out, statement, error);
  statement = sl_statement_close(statement);
  return r;
}

static bool read_number(const char *word, struct question *out) {
  char *end = NULL;
  out->word = word;
  out->is_address = word[0] == '0' && (word[1] == 'x' || word[1] == 'X');
  if (word[0] < '0' || word[0] > '9')
    return false;
  errno = 0;
  out->number = (int64_t)strtoull(word, &end, out->is_address ? 16 : 10);
  return *end == '\0' && errno == 0 && !(out->is_address && !word[2]);
}

int sl_cmd_explain(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct question question = {.at = -1};
  const struct sl_argument arguments[] = {
      SL_RANKS_ARGUMENT(question.ranks),
      {"at", 0, "NS", "the one that was alive at this instant, in ns since the epoch", SL_ARGUMENT_NUMBER,
       &question.at},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *words[2] = {NULL, NULL};
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, words, 2);
  if (r < 0)
    return sl_parse_exit(r);
  if (r == 0) {
    sl_complain("explain: an allocation is missing: its ID, or an address in its memory (0x7f…)");
    return SL_EXIT_USAGE;
  }
  /* The two words in either order: a number that is no path is the allocation. */
  int first = r == 2 && !read_number(words[0], &question) ? 1 : 0;
  if (!read_number(words[first], &question)) {
    sl_complain("explain: '%s' is neither an allocation's ID nor an address (0x7f…)", words[0]);
    return SL_EXIT_USAGE;
  }
  return sl_print_report(words[!first], &format, print_explanation, &question);
}
