/*
 * SQLite opens files by names that it looks up again; a ledger may lie in a directory of others. So it is given a name
 * in a directory that is held open.
 */
#include "db.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sl_db {
  sqlite3 *handle;
  char *path;             /* as it was named; owned */
  int directory;          /* that it is in; -1: none */
  struct sl_db *attached; /* the last one; owned, as it holds the directory of its file */
  char held[32];          /* the directory's path that SQLite gets; "": there is no /proc */
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

/* ---- which file ---- */

/*
 * SQLite takes paths of up to 512 bytes, reads some as URIs, and looks links up again whenever it opens a file. So it
 * gets the name in a directory that we hold open, by the kernel's link to that, and leaves this path as it is.
 */
#define HELD_DIRECTORY "/proc/self/fd/%d"
#define VFS_NAME "shardledger"

static sqlite3_vfs vfs;

static int full_path(sqlite3_vfs *self, const char *path, int size, char *out) {
  const size_t prefix = strcspn(HELD_DIRECTORY, "%");
  if (strncmp(path, HELD_DIRECTORY, prefix) != 0) {
    sqlite3_vfs *usual = sqlite3_vfs_find(NULL);
    return usual->xFullPathname(usual, path, size, out);
  }
  snprintf(out, (size_t)size, "%s", path);
  return strlen(path) < (size_t)size ? SQLITE_OK : SQLITE_CANTOPEN;
}

/* Once, before the first file. Nobody asks how much memory SQLite has, and counting takes a lock for each piece. */
static void sqlite_set_up(void) {
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  const sqlite3_vfs *usual = sqlite3_initialize() == SQLITE_OK ? sqlite3_vfs_find(NULL) : NULL;
  if (!usual)
    return;
  vfs = *usual;
  vfs.zName = VFS_NAME;
  vfs.xFullPathname = full_path;
  vfs.pNext = NULL;
  sqlite3_vfs_register(&vfs, 0);
}

/* Looks the file up, and refuses what is none. *name: in db->directory, which is open then; owned by the caller. */
static int file_find(struct sl_db *db, enum sl_db_mode mode, char **name, struct sl_error *error) {
  struct stat status;
  int r = 0;
  char *path = mode == SL_DB_READ ? realpath(db->path, NULL) : strdup(db->path);
  char *slash = path ? strrchr(path, '/') : NULL, *parent = NULL;
  if (!path) {
    r = -errno;
    goto finish;
  }
  *name = strdup(slash ? slash + 1 : path);
  parent = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  if (!*name || !parent) {
    r = -ENOMEM;
    goto finish;
  }
  db->directory = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (db->directory < 0 || fstatat(db->directory, *name, &status, AT_SYMLINK_NOFOLLOW) < 0)
    r = mode == SL_DB_WRITE && db->directory >= 0 && errno == ENOENT ? 0 : -errno;
  else if (S_ISLNK(status.st_mode))
    r = sl_error_set(error, -EINVAL, "%s is a link, which is not followed here; remove it", db->path);
  else if (!S_ISREG(status.st_mode))
    r = sl_error_set(error, -EINVAL, "%s is no file", db->path);
  else if (faccessat(db->directory, *name, mode == SL_DB_WRITE ? R_OK | W_OK : R_OK, 0) < 0)
    r = -errno;
finish:
  if (r == -ENOMEM)
    sl_no_memory(error);
  else if (r < 0 && r != -EINVAL)
    sl_error_set(error, r, "%s: %s", db->path, strerror(-r));
  free(path);
  free(parent);
  return r;
}

/* What SQLite is to open: the name in the held directory, or where there is no /proc the path. */
static char *path_for_sqlite(struct sl_db *db, const char *name) {
  char *path = NULL;
  snprintf(db->held, sizeof(db->held), HELD_DIRECTORY, db->directory);
  if (vfs.zName && access(db->held, F_OK) == 0)
    return asprintf(&path, "%s/%s", db->held, name) < 0 ? NULL : path;
  db->held[0] = '\0';
  return asprintf(&path, "%s%s", *db->path == '/' ? "" : "./", db->path) < 0 ? NULL : path;
}

/* ---- opening ---- */

/* What questions read of a file is kept, up to 64 MiB (in KiB): of many ranks they go over it again and again. */
#define CACHE "-65536"

/* Why SQLite could not make or open a file in its directory, which it does not say. Never 0. */
static int open_errno(const struct sl_db *db, enum sl_db_mode mode) {
  return faccessat(db->directory, ".", mode == SL_DB_WRITE ? W_OK | X_OK : X_OK, 0) != 0 ? -errno : -EIO;
}

static void harden(sqlite3 *handle, enum sl_db_mode mode) {
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, 2000);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
  if (mode == SL_DB_WRITE)
    return;
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
}

static int handle_open(struct sl_db *db, enum sl_db_mode mode, const char *path, struct sl_error *error) {
  const int flags = mode == SL_DB_WRITE ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  int result = sqlite3_open_v2(path, &db->handle, flags | SQLITE_OPEN_NOMUTEX, vfs.zName);
  if (result == SQLITE_OK) {
    harden(db->handle, mode);
    /* Opening is lazy: read the header now, so that a foreign file is refused here and not by some later query. */
    result = sqlite3_exec(db->handle, "PRAGMA schema_version", NULL, NULL, NULL);
    if (result == SQLITE_OK && mode != SL_DB_WRITE)
      result =
          sqlite3_exec(db->handle, "PRAGMA main.cache_size=" CACHE "; PRAGMA temp.cache_size=" CACHE, NULL, NULL, NULL);
  }
  int r = result_to_errno(result);
  if (r == 0)
    return 0;
  if ((result & 0xff) == SQLITE_CANTOPEN && *path)
    r = open_errno(db, mode);
  if (r == -EBADMSG)
    return sl_error_set(error, r, "%s is not a ledger, or a damaged one: %s", db->path, sqlite3_errstr(result));
  return sl_error_set(error, r, "%s: %s (%s)", db->path, sqlite3_errstr(result), strerror(-r));
}

int sl_db_open(const char *path, enum sl_db_mode mode, struct sl_db **out, struct sl_error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  char *name = NULL, *file = NULL;
  int r = 0;
  *out = NULL;
  pthread_once(&once, sqlite_set_up);
  struct sl_db *db = calloc(1, sizeof(*db));
  if (!db)
    return sl_no_memory(error);
  db->directory = -1;
  db->path = strdup(path);
  if (!db->path)
    r = sl_no_memory(error);
  else if (*path)
    r = file_find(db, mode, &name, error);
  if (r == 0 && !(file = *path ? path_for_sqlite(db, name) : strdup("")))
    r = sl_no_memory(error);
  if (r == 0)
    r = handle_open(db, mode, file, error);
  free(file);
  free(name);
  *out = r < 0 ? sl_db_close(db) : db;
  return r;
}

struct sl_db *sl_db_close(struct sl_db *db) {
  if (db) {
    sqlite3_close_v2(db->handle);
    sl_db_close(db->attached);
    if (db->directory >= 0)
      close(db->directory);
    free(db->path);
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
  return db->path;
}

int sl_db_attach(struct sl_db *db, struct sl_db *other, const char *name, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char sql[64];
  snprintf(sql, sizeof(sql), "ATTACH :path AS %s", name);
  int r = sl_db_prepare(db, sql, &statement, error);
  if (r == 0) {
    sl_bind_named_text(statement, ":path", sl_db_attach_path(other));
    r = sl_statement_run(statement, error);
  }
  statement = sl_statement_close(statement);
  snprintf(sql, sizeof(sql), "PRAGMA %s.cache_size=" CACHE, name);
  if (r == 0)
    r = sl_db_execute(db, sql, error);
  struct sl_db **last = &other->attached;
  while (*last)
    last = &(*last)->attached;
  *last = db->attached;
  db->attached = other;
  return r;
}

const char *sl_db_attach_path(struct sl_db *db) {
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

void sl_bind_blob(struct sl_statement *statement, int index, const void *data, size_t bytes) {
  if (statement)
    note_bind(statement, sqlite3_bind_blob64(statement->handle, index, data, bytes, SQLITE_STATIC));
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

void sl_bind_named_text(struct sl_statement *statement, const char *name, const char *text) {
  sl_bind_text(statement, parameter_index(statement, name), text);
}

void sl_bind_named_null(struct sl_statement *statement, const char *name) {
  sl_bind_null(statement, parameter_index(statement, name));
}

void sl_bind_all(struct sl_statement *statement, const struct sl_parameter *parameters) {
  for (const struct sl_parameter *p = parameters; p && p->name; p++) {
    const int index = sqlite3_bind_parameter_index(statement->handle, p->name);
    if (!index)
      continue;
    if (p->is_null)
      sl_bind_null(statement, index);
    else if (p->text)
      sl_bind_text(statement, index, p->text);
    else
      sl_bind_int(statement, index, p->number);
  }
}

static bool is_given(const struct sl_parameter *parameters, const char *name) {
  for (const struct sl_parameter *p = parameters; p && p->name && name; p++)
    if (strcmp(p->name, name) == 0)
      return true;
  return false;
}

int sl_db_ask(struct sl_db *db, const char *sql, const struct sl_parameter *parameters, struct sl_statement **out,
              struct sl_error *error) {
  int r = sl_db_prepare(db, sql, out, error);
  for (int i = 1; r == 0 && i <= sqlite3_bind_parameter_count((*out)->handle); i++) {
    const char *name = sqlite3_bind_parameter_name((*out)->handle, i);
    if (!is_given(parameters, name))
      r = sl_error_set(error, -EINVAL, "parameter %s is not given, in: %.400s", name ? name : "without a name", sql);
  }
  if (r == 0)
    sl_bind_all(*out, parameters);
  else
    *out = sl_statement_close(*out);
  return r;
}

int sl_db_ask_first(struct sl_db *db, const char *sql, const struct sl_parameter *parameters, struct sl_statement **out,
                    struct sl_error *error) {
  int r = sl_db_ask(db, sql, parameters, out, error);
  return r < 0 ? r : sl_statement_step(*out, error);
}

int sl_db_tell(struct sl_db *db, const char *sql, const struct sl_parameter *parameters, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask(db, sql, parameters, &statement, error);
  if (r == 0)
    r = sl_statement_run(statement, error);
  statement = sl_statement_close(statement);
  return r;
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

struct sl_number sl_column_number(struct sl_statement *statement, int column) {
  sqlite3_value *value = sqlite3_column_value(statement->handle, column);
  switch (sqlite3_value_type(value)) {
  case SQLITE_INTEGER: return (struct sl_number){SL_VALUE_int, sqlite3_value_int64(value), 0};
  case SQLITE_FLOAT: return (struct sl_number){SL_VALUE_double, 0, sqlite3_value_double(value)};
  default: return (struct sl_number){SL_VALUE_null, 0, 0};
  }
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
