#include "db.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sl_db {
  sqlite3 *handle;
};

struct sl_statement {
  sqlite3_stmt *handle;
  int bind_result;       /* of the first bind that failed, or SQLITE_OK */
  const char *bind_name; /* its parameter when it was named; owned by the caller of the bind */
};

/* What a result code of SQLite means to callers that know errno only. */
static int result_to_errno(int result) {
  switch (result & 0xff) {
  case SQLITE_OK:
  case SQLITE_ROW:
  case SQLITE_DONE: return 0;
  case SQLITE_NOTADB:
  case SQLITE_CORRUPT:
  case SQLITE_FORMAT: return -EBADMSG;
  case SQLITE_CANTOPEN: return -ENOENT;
  case SQLITE_PERM: return -EACCES;
  case SQLITE_READONLY: return -EROFS;
  case SQLITE_AUTH: return -EPERM;
  case SQLITE_FULL: return -ENOSPC;
  case SQLITE_IOERR: return -EIO;
  case SQLITE_BUSY:
  case SQLITE_LOCKED: return -EBUSY;
  case SQLITE_NOMEM: return -ENOMEM;
  case SQLITE_INTERRUPT: return -EINTR;
  case SQLITE_TOOBIG: return -E2BIG;
  case SQLITE_CONSTRAINT: return -EEXIST;
  default: return -EINVAL;
  }
}

static int sql_error(sqlite3 *handle, int result, const char *sql, struct sl_error *error) {
  return sl_error_set(error, result_to_errno(result), "%s, in: %.400s%s", sqlite3_errmsg(handle), sql,
                      strlen(sql) > 400 ? "…" : "");
}

/*
 * Why SQLite could not open a file: after a refusal it tries again read-only, and reports the errno of that.
 * Never 0.
 */
static int open_errno(const char *path, enum sl_db_mode mode) {
  char directory[PATH_MAX];
  if (access(path, mode == SL_DB_READ ? R_OK : R_OK | W_OK) != 0 && errno != ENOENT)
    return -errno;
  snprintf(directory, sizeof(directory), "%s", path);
  char *slash = strrchr(directory, '/');
  if (!slash)
    strcpy(directory, ".");
  else
    slash[slash == directory] = '\0';
  return access(directory, mode == SL_DB_READ ? X_OK : W_OK | X_OK) != 0 ? -errno : -EIO;
}

int sl_db_open(const char *path, enum sl_db_mode mode, struct sl_db **out, struct sl_error *error) {
  struct sl_db *db = NULL;
  int r = 0;
  int result = SQLITE_OK;
  int flags = mode == SL_DB_READ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;

  *out = NULL;
  /* SQLite says "unable to open database file" for all of these; errno knows which one it is. */
  if (mode == SL_DB_READ && access(path, R_OK) != 0) {
    r = -errno;
    return sl_error_set(error, r, "%s: %s", path, strerror(-r));
  }
  db = calloc(1, sizeof(*db));
  if (!db)
    return sl_error_set(error, -ENOMEM, "%s: out of memory", path);

  result = sqlite3_open_v2(path, &db->handle, flags | SQLITE_OPEN_NOMUTEX, NULL);
  if (result == SQLITE_OK) {
    sqlite3_extended_result_codes(db->handle, 1);
    sqlite3_busy_timeout(db->handle, 2000);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    if (mode == SL_DB_READ) {
      sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
      sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
      sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    }
    /* Opening is lazy: read the header now, so that a foreign file is refused here and not by some later query. */
    result = sqlite3_exec(db->handle, "PRAGMA schema_version", NULL, NULL, NULL);
  }
  if (result != SQLITE_OK) {
    r = result_to_errno(result);
    if ((result & 0xff) == SQLITE_CANTOPEN)
      r = open_errno(path, mode);
    if (r == -EBADMSG)
      sl_error_set(error, r, "%s is not a ledger, or a damaged one: %s", path, sqlite3_errmsg(db->handle));
    else
      sl_error_set(error, r, "%s: %s (%s)", path, sqlite3_errstr(result), strerror(-r));
    goto finish;
  }
  *out = db;
  db = NULL;

finish:
  db = sl_db_close(db);
  return r;
}

struct sl_db *sl_db_close(struct sl_db *db) {
  if (db) {
    sqlite3_close_v2(db->handle);
    free(db);
  }
  return NULL;
}

int sl_db_execute(struct sl_db *db, const char *sql, struct sl_error *error) {
  const char *rest = sql;
  int r = 0;

  /* Statement by statement, so that the error names the one that failed and not a whole script. */
  while (r == 0 && *rest) {
    struct sl_statement *statement = NULL;
    r = sl_db_prepare_first(db, rest, &statement, &rest, error);
    if (r == 0 && statement)
      r = sl_statement_run(statement, error);
    statement = sl_statement_close(statement);
  }
  return r;
}

int sl_db_int(struct sl_db *db, const char *sql, int64_t *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_prepare(db, sql, &statement, error);
  if (r < 0)
    return r;

  r = sl_statement_step(statement, error);
  if (r > 0) {
    *out = sl_column_int(statement, 0);
    r = 0;
  } else if (r == 0) {
    r = sl_error_set(error, -ENODATA, "no row from: %.400s", sql);
  }
  statement = sl_statement_close(statement);
  return r;
}

struct sqlite3 *sl_db_handle(struct sl_db *db) {
  return db->handle;
}

const char *sl_db_path(struct sl_db *db) {
  return sqlite3_db_filename(db->handle, "main");
}

int sl_db_prepare(struct sl_db *db, const char *sql, struct sl_statement **out, struct sl_error *error) {
  const char *tail = NULL;
  int r = sl_db_prepare_first(db, sql, out, &tail, error);
  if (r == 0 && !*out)
    r = sl_error_set(error, -EINVAL, "there is no statement in: %.400s", sql);
  return r;
}

int sl_db_prepare_first(struct sl_db *db, const char *sql, struct sl_statement **out, const char **tail,
                        struct sl_error *error) {
  sqlite3_stmt *handle = NULL;

  *out = NULL;
  int result = sqlite3_prepare_v2(db->handle, sql, -1, &handle, tail);
  if (result != SQLITE_OK)
    return sql_error(db->handle, result, sql, error);
  if (!handle)
    return 0;

  struct sl_statement *statement = calloc(1, sizeof(*statement));
  if (!statement) {
    sqlite3_finalize(handle);
    return sl_error_set(error, -ENOMEM, "out of memory, in: %.400s", sql);
  }
  statement->handle = handle;
  *out = statement;
  return 0;
}

struct sl_statement *sl_statement_close(struct sl_statement *statement) {
  if (statement) {
    sqlite3_finalize(statement->handle);
    free(statement);
  }
  return NULL;
}

static void note_bind(struct sl_statement *statement, int result) {
  if (result != SQLITE_OK && statement->bind_result == SQLITE_OK)
    statement->bind_result = result;
}

void sl_bind_int(struct sl_statement *statement, int index, int64_t value) {
  if (statement)
    note_bind(statement, sqlite3_bind_int64(statement->handle, index, value));
}

void sl_bind_double(struct sl_statement *statement, int index, double value) {
  if (statement)
    note_bind(statement, sqlite3_bind_double(statement->handle, index, value));
}

void sl_bind_text(struct sl_statement *statement, int index, const char *text) {
  if (statement)
    note_bind(statement, sqlite3_bind_text(statement->handle, index, text, -1, SQLITE_STATIC));
}

void sl_bind_null(struct sl_statement *statement, int index) {
  if (statement)
    note_bind(statement, sqlite3_bind_null(statement->handle, index));
}

/* Index of a named parameter. 0, when there is none, makes the bind that follows fail with SQLITE_RANGE. */
static int parameter_index(struct sl_statement *statement, const char *name) {
  int index = sqlite3_bind_parameter_index(statement->handle, name);
  if (index == 0 && statement->bind_result == SQLITE_OK)
    statement->bind_name = name;
  return index;
}

void sl_bind_named_int(struct sl_statement *statement, const char *name, int64_t value) {
  sl_bind_int(statement, parameter_index(statement, name), value);
}

void sl_bind_named_double(struct sl_statement *statement, const char *name, double value) {
  sl_bind_double(statement, parameter_index(statement, name), value);
}

void sl_bind_named_text(struct sl_statement *statement, const char *name, const char *text) {
  sl_bind_text(statement, parameter_index(statement, name), text);
}

void sl_bind_named_null(struct sl_statement *statement, const char *name) {
  sl_bind_null(statement, parameter_index(statement, name));
}

int sl_statement_step(struct sl_statement *statement, struct sl_error *error) {
  sqlite3 *handle = sqlite3_db_handle(statement->handle);
  int r = 0;

  if (statement->bind_result != SQLITE_OK) {
    r = sl_error_set(error, result_to_errno(statement->bind_result), "parameter %s: %s, in: %.400s",
                     statement->bind_name ? statement->bind_name : "(by position)",
                     sqlite3_errstr(statement->bind_result), sqlite3_sql(statement->handle));
    return r;
  }
  int result = sqlite3_step(statement->handle);
  if (result == SQLITE_ROW)
    return 1;
  if (result != SQLITE_DONE)
    r = sql_error(handle, result, sqlite3_sql(statement->handle), error);
  sqlite3_reset(statement->handle);
  return r;
}

int sl_statement_run(struct sl_statement *statement, struct sl_error *error) {
  int r = 0;
  if (!statement)
    return 0;
  do
    r = sl_statement_step(statement, error);
  while (r > 0);
  return r;
}

void sl_statement_reset(struct sl_statement *statement) {
  sqlite3_reset(statement->handle);
}

int sl_column_count(struct sl_statement *statement) {
  return sqlite3_column_count(statement->handle);
}

const char *sl_column_name(struct sl_statement *statement, int column) {
  const char *name = sqlite3_column_name(statement->handle, column);
  return name ? name : "";
}

enum sl_value_type sl_column_type(struct sl_statement *statement, int column) {
  switch (sqlite3_column_type(statement->handle, column)) {
  case SQLITE_INTEGER: return SL_VALUE_int;
  case SQLITE_FLOAT: return SL_VALUE_double;
  case SQLITE_TEXT: return SL_VALUE_text;
  case SQLITE_BLOB: return SL_VALUE_blob;
  default: return SL_VALUE_null;
  }
}

bool sl_column_is_null(struct sl_statement *statement, int column) {
  return sqlite3_column_type(statement->handle, column) == SQLITE_NULL;
}

int64_t sl_column_int(struct sl_statement *statement, int column) {
  return sqlite3_column_int64(statement->handle, column);
}

double sl_column_double(struct sl_statement *statement, int column) {
  return sqlite3_column_double(statement->handle, column);
}

const char *sl_column_text(struct sl_statement *statement, int column) {
  const char *text = (const char *)sqlite3_column_text(statement->handle, column);
  return text ? text : "";
}

const void *sl_column_blob(struct sl_statement *statement, int column, int *bytes) {
  const void *blob = sqlite3_column_blob(statement->handle, column);
  *bytes = sqlite3_column_bytes(statement->handle, column);
  return blob;
}
