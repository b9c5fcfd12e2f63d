/* Reads values out of a JSON text by SQLite's functions. */
#include "serve/request.h"

#include "output/text.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum question { IS_VALID, KIND, VALUE, JSON, MINIFY, QUESTIONS };

static const char *const questions[QUESTIONS] = {
    [IS_VALID] = "SELECT json_valid(?1)",
    [KIND] = "SELECT json_type(?1, ?2), typeof(json_extract(?1, ?2))",
    [VALUE] = "SELECT json_extract(?1, ?2)",
    [JSON] = "SELECT ?1 -> ?2",
    [MINIFY] = "SELECT json(?1)",
};

struct sl_request {
  sqlite3 *db; /* without tables */
  sqlite3_stmt *asked[QUESTIONS];
  char *text;
  size_t bytes;
};

struct sl_request *sl_request_new(void) {
  struct sl_request *request = calloc(1, sizeof *request);
  int r = request ? sqlite3_open(":memory:", &request->db) : SQLITE_NOMEM;
  for (int i = 0; i < QUESTIONS && r == SQLITE_OK; i++)
    r = sqlite3_prepare_v2(request->db, questions[i], -1, &request->asked[i], NULL);
  return r == SQLITE_OK ? request : sl_request_free(request);
}

struct sl_request *sl_request_free(struct sl_request *request) {
  if (!request)
    return NULL;
  for (int i = 0; i < QUESTIONS; i++)
    sqlite3_finalize(request->asked[i]);
  sqlite3_close(request->db);
  free(request->text);
  free(request);
  return NULL;
}

/* At its row, or NULL; to be reset. */
static sqlite3_stmt *ask(struct sl_request *request, enum question question, const char *text, size_t bytes,
                         const char *path) {
  sqlite3_stmt *asked = request->asked[question];
  sqlite3_reset(asked);
  sqlite3_bind_text64(asked, 1, text, bytes, SQLITE_STATIC, SQLITE_UTF8);
  if (path)
    sqlite3_bind_text(asked, 2, path, -1, SQLITE_STATIC);
  return sqlite3_step(asked) == SQLITE_ROW ? asked : NULL;
}

static bool is_utf8(const char *text) {
  while (*text) {
    uint32_t character;
    const int bytes = sl_text_next(text, &character);
    if (character == SL_REPLACEMENT && bytes == 1)
      return false;
    text += bytes;
  }
  return true;
}

int sl_request_take(struct sl_request *request, const char *text, size_t bytes) {
  free(request->text);
  request->bytes = 0;
  request->text = malloc(bytes + 1);
  if (!request->text)
    return -ENOMEM;
  memcpy(request->text, text, bytes);
  request->text[bytes] = 0;
  request->bytes = bytes;
  if (memchr(text, 0, bytes) || !is_utf8(request->text))
    return -EINVAL;
  sqlite3_stmt *row = ask(request, IS_VALID, request->text, bytes, NULL);
  const bool valid = row && sqlite3_column_int(row, 0);
  sqlite3_reset(request->asked[IS_VALID]);
  return valid ? 0 : -EINVAL;
}

enum sl_json_kind sl_request_kind(struct sl_request *request, const char *path) {
  static const struct {
    const char *word;
    enum sl_json_kind kind;
  } kinds[] = {{"null", SL_JSON_null}, {"true", SL_JSON_bool}, {"false", SL_JSON_bool},  {"integer", SL_JSON_integer},
               {"real", SL_JSON_real}, {"text", SL_JSON_text}, {"array", SL_JSON_array}, {"object", SL_JSON_object}};
  sqlite3_stmt *row = ask(request, KIND, request->text, request->bytes, path);
  const char *word = row ? (const char *)sqlite3_column_text(row, 0) : NULL;
  enum sl_json_kind kind = SL_JSON_none;
  for (size_t i = 0; word && i < sizeof kinds / sizeof kinds[0]; i++)
    if (strcmp(kinds[i].word, word) == 0)
      kind = kinds[i].kind;
  if (kind == SL_JSON_integer && strcmp((const char *)sqlite3_column_text(row, 1), "integer") != 0)
    kind = SL_JSON_real; /* too large */
  sqlite3_reset(request->asked[KIND]);
  return kind;
}

static char *ask_text(struct sl_request *request, enum question question, const char *text, size_t bytes,
                      const char *path) {
  sqlite3_stmt *row = ask(request, question, text, bytes, path);
  const char *answer = row ? (const char *)sqlite3_column_text(row, 0) : NULL;
  char *copy = answer ? strdup(answer) : NULL;
  sqlite3_reset(request->asked[question]);
  return copy;
}

char *sl_request_text(struct sl_request *request, const char *path) {
  return ask_text(request, VALUE, request->text, request->bytes, path);
}

char *sl_request_json(struct sl_request *request, const char *path) {
  return ask_text(request, JSON, request->text, request->bytes, path);
}

int64_t sl_request_integer(struct sl_request *request, const char *path) {
  sqlite3_stmt *row = ask(request, VALUE, request->text, request->bytes, path);
  const int64_t number = row ? sqlite3_column_int64(row, 0) : 0;
  sqlite3_reset(request->asked[VALUE]);
  return number;
}

char *sl_request_minify(struct sl_request *request, const char *json) {
  return ask_text(request, MINIFY, json, strlen(json), NULL);
}
