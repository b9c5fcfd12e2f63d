/* The tools that an assistant may call, each a function that writes JSON. */
#include "serve/mcp_tools.h"

#include "embed_text.h"
#include "open_ledger.h"
#include "output/text.h"
#include "questions_page.h"
#include "storage/memory_file.h"
#include "storage/tables/views.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

SL_EMBED(sl_mcp_tools_json, SL_VIEWER_DIRECTORY "/serve/mcp_tools.json");

/* ---- arguments ---- */

#define ARGUMENT(name) "$.params.arguments." name

/* Its last part, for sentences. */
static const char *argument_name(const char *path) {
  return strrchr(path, '.') + 1;
}

/* *out is to be freed; NULL where the argument is left out. */
static int read_text(struct sl_mcp_session *session, const char *path, char **out, struct sl_error *error) {
  const enum sl_json_kind kind = sl_request_kind(session->request, path);
  *out = NULL;
  if (kind == SL_JSON_none || kind == SL_JSON_null)
    return 0;
  if (kind != SL_JSON_text)
    return sl_error_set(error, -EINVAL, "%s has to be a string", argument_name(path));
  *out = sl_request_text(session->request, path);
  return *out ? 0 : sl_no_memory(error);
}

/* *out stays as it is where the argument is left out. */
static int read_number(struct sl_mcp_session *session, const char *path, int64_t least, int64_t most, int64_t *out,
                       struct sl_error *error) {
  const enum sl_json_kind kind = sl_request_kind(session->request, path);
  if (kind == SL_JSON_none || kind == SL_JSON_null)
    return 0;
  const int64_t number = sl_request_integer(session->request, path);
  if (kind != SL_JSON_integer || number < least || number > most)
    return most == INT64_MAX
               ? sl_error_set(error, -EINVAL, "%s has to be a whole number from %" PRId64, argument_name(path), least)
               : sl_error_set(error, -EINVAL, "%s has to be a whole number from %" PRId64 " to %" PRId64,
                              argument_name(path), least, most);
  *out = number;
  return 0;
}

static int need_text(struct sl_mcp_session *session, const char *path, char **out, struct sl_error *error) {
  int r = read_text(session, path, out, error);
  if (r == 0 && !*out)
    r = sl_error_set(error, -EINVAL, "%s is missing", argument_name(path));
  return r;
}

/* ---- the run ---- */

void sl_mcp_close_run(struct sl_mcp_session *session) {
  session->db = sl_db_close(session->db);
  free(session->path);
  free(session->chosen);
  session->path = session->chosen = NULL;
}

/* Takes path and run over; the run that was open stays so where this one can't be opened. */
static int run_open(struct sl_mcp_session *session, char *path, char *run, struct sl_error *error) {
  struct sl_db *db = NULL;
  int r = path ? sl_open_run(path, run, &db, error) : sl_no_memory(error);
  if (r < 0) {
    free(path);
    free(run);
    return r;
  }
  sl_mcp_close_run(session);
  session->db = db;
  session->path = path;
  session->chosen = run;
  return 0;
}

static int run_open_first(struct sl_mcp_session *session, struct sl_error *error) {
  return run_open(session, strdup(session->directory), session->run ? strdup(session->run) : NULL, error);
}

static int need_run(struct sl_mcp_session *session, struct sl_error *error) {
  return session->db ? 0 : run_open_first(session, error);
}

static int open_run(struct sl_mcp_session *session, FILE *answer, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char *path = NULL, *run = NULL;
  int r = read_text(session, ARGUMENT("path"), &path, error);
  if (r == 0)
    r = read_text(session, ARGUMENT("run"), &run, error);
  if (r < 0)
    goto finish;
  if (path || run)
    r = run_open(session, path ? path : strdup(session->directory), run, error);
  else
    r = run_open_first(session, error);
  path = run = NULL;
  if (r == 0)
    r = sl_db_ask_first(session->db, sl_sql_mcp_run, NULL, &statement, error);
  if (r < 0)
    goto finish;
  fputs("{\"path\":", answer);
  sl_json_text(answer, session->path);
  fprintf(answer, ",\"record\":%s}", sl_column_text(statement, 0));
  r = 0;
finish:
  statement = sl_statement_close(statement);
  free(path);
  free(run);
  return r;
}

/* ---- the schema ---- */

enum { ABOUT_CHARS = 4096 };

/* The comment behind "CREATE TABLE name(" in the same line. */
static void read_about_table(const char *sql, char about[ABOUT_CHARS]) {
  static const char mark[] = "( -- ";
  const char *comment = strstr(sql, mark);
  if (!comment || comment > sql + strcspn(sql, "\n"))
    return;
  comment += strlen(mark);
  snprintf(about, ABOUT_CHARS, "%.*s", (int)strcspn(comment, "\n"), comment);
}

static void put_about(FILE *answer, const char *kind, const char *sql, const char *name) {
  struct sl_view view;
  char about[ABOUT_CHARS] = "";
  if (strcmp(kind, "view") != 0)
    read_about_table(sql, about);
  else if (sl_view_find(name, &view))
    snprintf(about, sizeof about, "%s", view.meaning);
  sl_json_text(answer, about);
}

static int put_columns(struct sl_db *db, const char *name, FILE *answer, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char sql[256];
  snprintf(sql, sizeof sql, "SELECT * FROM \"%.200s\"", name);
  int r = sl_db_prepare(db, sql, &statement, error);
  for (int i = 0; r == 0 && i < sl_column_count(statement); i++) {
    fputs(i ? "," : "", answer);
    sl_json_text(answer, sl_column_name(statement, i));
  }
  statement = sl_statement_close(statement);
  return r;
}

static int describe_schema(struct sl_mcp_session *session, FILE *answer, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char *table = NULL;
  int64_t count = 0;
  int r = read_text(session, ARGUMENT("table"), &table, error);
  if (r == 0)
    r = need_run(session, error);
  if (r == 0)
    r = sl_db_ask(session->db, table ? sl_sql_mcp_table : sl_sql_mcp_tables, SL_WITH(SL_WORD(":name", table)),
                  &statement, error);
  if (r < 0)
    goto finish;
  fputs("{\"tables\":[", answer);
  for (; (r = sl_statement_step(statement, error)) > 0; count++) {
    const char *name = sl_column_text(statement, 0);
    fputs(count ? ",{\"name\":" : "{\"name\":", answer);
    sl_json_text(answer, name);
    fputs(",\"kind\":", answer);
    sl_json_text(answer, sl_column_text(statement, 1));
    fputs(",\"about\":", answer);
    put_about(answer, sl_column_text(statement, 1), sl_column_text(statement, 2), name);
    if (table) {
      fputs(",\"columns\":[", answer);
      r = put_columns(session->db, name, answer, error);
      fputs("],\"sql\":", answer);
      sl_json_text(answer, sl_column_text(statement, 2));
    }
    fputc('}', answer);
    if (r < 0)
      goto finish;
  }
  fputs("]}", answer);
  if (r == 0 && count == 0)
    r = sl_error_set(error, -ENOENT, "there is no table or view %.200s; without a table all are listed",
                     table ? table : "at all");
finish:
  statement = sl_statement_close(statement);
  free(table);
  return r;
}

/* ---- questions ---- */

/* Within the page, in one line. false: no memory. */
static bool put_part(FILE *answer, const char *key, const char *text, int bytes) {
  char *copy = strndup(text, (size_t)bytes);
  for (char *at = copy; at && *at; at++)
    *at = *at == '\n' ? ' ' : *at;
  fprintf(answer, ",\"%s\":", key);
  sl_json_text(answer, copy ? copy : "");
  free(copy);
  return copy != NULL;
}

static int list_questions(struct sl_mcp_session *session, FILE *answer, struct sl_error *error) {
  struct sl_page_question question = {.sql = NULL};
  bool any = false, whole = true;
  (void)session;
  for (fputs("{\"questions\":[", answer); sl_page_next_question(&question); any = true) {
    fprintf(answer, "%s{\"id\":\"%s\"", any ? "," : "", question.id);
    whole = put_part(answer, "question", question.heading, question.heading_bytes) && whole;
    whole = put_part(answer, "about", question.about, question.about_bytes) && whole;
    whole = put_part(answer, "sql", question.sql, question.sql_bytes) && whole;
    fputc('}', answer);
  }
  fputs("]}", answer);
  return whole ? 0 : sl_no_memory(error);
}

/* sql with every "rank = 0" as "rank = 3": whole words only. NULL: no memory. */
static char *with_number(const char *sql, const char *example, size_t digits_at, int64_t number) {
  struct sl_memory_file text;
  FILE *file = sl_memory_file_open(&text);
  if (!file)
    return NULL;
  for (const char *at = sql; *at;) {
    const size_t length = strlen(example);
    const bool begins = at == sql || strchr(" .(\n", at[-1]);
    if (number >= 0 && begins && strncmp(at, example, length) == 0 && !(at[length] >= '0' && at[length] <= '9')) {
      fprintf(file, "%.*s%" PRId64, (int)digits_at, example, number);
      at += length;
    } else {
      fputc(*at++, file);
    }
  }
  return sl_memory_file_close(&text, NULL);
}

static int run_question(struct sl_mcp_session *session, FILE *answer, struct sl_error *error) {
  struct sl_page_question question = {.sql = NULL};
  int64_t rank = -1, step = -1, rows = SL_MCP_ROWS;
  char *id = NULL, *sql = NULL, *of_rank = NULL, *of_step = NULL;
  bool found = false;
  int r = need_text(session, ARGUMENT("id"), &id, error);
  if (r == 0)
    r = read_number(session, ARGUMENT("rank"), 0, INT64_MAX, &rank, error);
  if (r == 0)
    r = read_number(session, ARGUMENT("step"), 0, INT64_MAX, &step, error);
  if (r == 0)
    r = read_number(session, ARGUMENT("max_rows"), 1, SL_MCP_ROWS_MAX, &rows, error);
  while (r == 0 && !found && sl_page_next_question(&question))
    found = strcmp(question.id, id) == 0;
  if (r == 0 && !found)
    r = sl_error_set(error, -ENOENT, "there is no question %.200s; list_questions has them", id);
  if (r == 0)
    r = need_run(session, error);
  if (r < 0)
    goto finish;
  sql = strndup(question.sql, (size_t)question.sql_bytes);
  of_rank = sql ? with_number(sql, "rank = 0", strlen("rank = "), rank) : NULL;
  of_step = of_rank ? with_number(of_rank, "step = 2", strlen("step = "), step) : NULL;
  r = of_step ? sl_mcp_query(session->db, of_step, rows, answer, error) : sl_no_memory(error);
finish:
  free(id);
  free(sql);
  free(of_rank);
  free(of_step);
  return r;
}

static int query(struct sl_mcp_session *session, FILE *answer, struct sl_error *error) {
  int64_t rows = SL_MCP_ROWS;
  char *sql = NULL;
  int r = need_text(session, ARGUMENT("sql"), &sql, error);
  if (r == 0)
    r = read_number(session, ARGUMENT("max_rows"), 1, SL_MCP_ROWS_MAX, &rows, error);
  if (r == 0)
    r = need_run(session, error);
  if (r == 0)
    r = sl_mcp_query(session->db, sql, rows, answer, error);
  free(sql);
  return r;
}

/* ---- commands ---- */

struct command_line {
  const char *words[24]; /* NULL-terminated */
  int count;
  char numbers[8][24];
  int number_count;
};

static void add(struct command_line *line, const char *word) {
  line->words[line->count++] = word;
}

/* Below 0 it is left out. */
static void add_number(struct command_line *line, const char *option, int64_t number) {
  if (number < 0)
    return;
  char *text = line->numbers[line->number_count++];
  snprintf(text, sizeof line->numbers[0], "%" PRId64, number);
  add(line, option);
  add(line, text);
}

static void add_run(struct command_line *line, const struct sl_mcp_session *session) {
  if (!session->chosen)
    return;
  add(line, "--run");
  add(line, session->chosen);
}

static int explain(struct sl_mcp_session *session, FILE *answer, struct sl_error *error) {
  struct command_line line = {.words = {"explain", "--json"}, .count = 2};
  int64_t rank = -1, at = -1;
  char *allocation = NULL;
  int r = need_text(session, ARGUMENT("allocation"), &allocation, error);
  if (r == 0)
    r = read_number(session, ARGUMENT("rank"), 0, INT64_MAX, &rank, error);
  if (r == 0)
    r = read_number(session, ARGUMENT("at_ns"), 0, INT64_MAX, &at, error);
  if (r == 0)
    r = need_run(session, error);
  if (r == 0) {
    add_run(&line, session);
    add_number(&line, "--rank", rank);
    add_number(&line, "--at", at);
    add(&line, "--"); /* nothing behind it is an option */
    add(&line, allocation);
    add(&line, session->path);
    r = sl_mcp_ask_command(session->request, line.words, answer, error);
  }
  free(allocation);
  return r;
}

static int diff(struct sl_mcp_session *session, FILE *answer, struct sl_error *error) {
  static const struct {
    const char *path, *option;
  } numbers[] = {
      {ARGUMENT("rank"), "--rank"},     {ARGUMENT("other_rank"), "--other-rank"},     {ARGUMENT("step"), "--step"},
      {ARGUMENT("period"), "--period"}, {ARGUMENT("other_period"), "--other-period"}, {ARGUMENT("min_bytes"), "--min"}};
  struct command_line line = {.words = {"diff", "--json"}, .count = 2};
  char *other = NULL;
  int r = read_text(session, ARGUMENT("other"), &other, error);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && r == 0; i++) {
    int64_t number = -1;
    r = read_number(session, numbers[i].path, 0, INT64_MAX, &number, error);
    add_number(&line, numbers[i].option, number);
  }
  if (r == 0)
    r = need_run(session, error);
  if (r == 0) {
    add_run(&line, session);
    add(&line, "--");
    add(&line, session->path);
    if (other)
      add(&line, other);
    r = sl_mcp_ask_command(session->request, line.words, answer, error);
  }
  free(other);
  return r;
}

sl_mcp_tool *sl_mcp_find_tool(const char *name) {
  static const struct {
    const char *name;
    sl_mcp_tool *tool;
  } tools[] = {{"open_run", open_run},
               {"describe_schema", describe_schema},
               {"list_questions", list_questions},
               {"run_question", run_question},
               {"query", query},
               {"explain", explain},
               {"diff", diff}};
  for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++)
    if (strcmp(tools[i].name, name) == 0)
      return tools[i].tool;
  return NULL;
}
