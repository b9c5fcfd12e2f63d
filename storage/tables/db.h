/*
 * SQLite as this project uses it: open, prepare, bind, step. Errors are sentences with the failing SQL in them.
 *
 *   struct sl_statement *peaks = NULL;
 *   r = sl_db_prepare(db, "SELECT step, peak_allocated_bytes FROM step WHERE rank = :rank", &peaks, error);
 *   if (r < 0) goto finish;
 *   sl_bind_named_int(peaks, ":rank", 0);
 *   while ((r = sl_statement_step(peaks, error)) > 0)
 *     use(sl_column_int(peaks, 0), sl_column_int(peaks, 1));
 * finish:
 *   peaks = sl_statement_close(peaks);
 *
 * Binding never fails on its own: the first bad bind is remembered and the next step reports it.
 * A database and its statements belong to one thread at a time.
 */
#ifndef SHARDLEDGER_DB_H
#define SHARDLEDGER_DB_H

#include "storage/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_db;
struct sl_statement;
struct sqlite3;

enum sl_db_mode {
  SL_DB_READ,      /* an existing file, or a link to one; its schema may come from anybody, so nothing in it is trusted
                      and nothing is written */
  SL_DB_READ_FILE, /* the same, of a directory that others may have put things into: a link is refused */
  SL_DB_WRITE,     /* made when it is missing; a link is refused */
};

/*
 * Opens a database file; on success *out owns it, close it with sl_db_close.
 * -ENOENT: no such file; -EINVAL: a link, a pipe or a directory; -EACCES, -EROFS: not allowed; -EBADMSG: not a
 * database, or a damaged one; -EBUSY: in use. A path "" is a database of its own in a file without a name.
 */
int sl_db_open(const char *path, enum sl_db_mode mode, struct sl_db **out, struct sl_error *error);

/* Closes the database; returns NULL, so that `db = sl_db_close(db)` leaves nothing dangling. NULL is fine. */
struct sl_db *sl_db_close(struct sl_db *db);

/* Runs one or more statements that return nothing of interest. */
int sl_db_execute(struct sl_db *db, const char *sql, struct sl_error *error);

/* The first column of the first row as an integer; -ENODATA without a row. */
int sl_db_int(struct sl_db *db, const char *sql, int64_t *out, struct sl_error *error);

/* SQLite's own handle, owned by db, for what is not wrapped here. */
struct sqlite3 *sl_db_handle(struct sl_db *db);

/* The file that it is, as it was named; owned by db. */
const char *sl_db_path(struct sl_db *db);

/* The same as SQLite knows it, for ATTACH in this process while db is open; owned by db. */
const char *sl_db_attach_path(struct sl_db *db);

/*
 * Makes other's tables those of `name` (a plain SQL name) in db too. Takes other over, also on failure: it is closed
 * with db.
 */
int sl_db_attach(struct sl_db *db, struct sl_db *other, const char *name, struct sl_error *error);

/* Compiles the first statement of sql; *out owns it, close it with sl_statement_close before its database. */
int sl_db_prepare(struct sl_db *db, const char *sql, struct sl_statement **out, struct sl_error *error);

/* As sl_db_prepare; *tail, inside sql, is what follows the first statement. *out is NULL when that is only a comment.
 */
int sl_db_prepare_first(struct sl_db *db, const char *sql, struct sl_statement **out, const char **tail,
                        struct sl_error *error);

/* What a statement is asked with: a value for one of its named parameters. */
struct sl_parameter {
  const char *name; /* with its colon; NULL ends a list */
  int64_t number;
  const char *text; /* not NULL: it counts instead of number; bound as by sl_bind_text */
  bool is_null;
};
#define SL_NUMBER(name, value)                                                                                         \
  { (name), (value), NULL, false }
#define SL_GIVEN(name, value)                                                                                          \
  { (name), (value), NULL, (value) < 0 } /* NULL where it is negative: "not given" */
#define SL_WORD(name, value)                                                                                           \
  { (name), 0, (value), (const char *)(value) == NULL }
#define SL_WITH(...) ((const struct sl_parameter[]){__VA_ARGS__, {NULL, 0, NULL, true}})

/*
 * Compiles a statement and binds its parameters, each of which has to be in the list (NULL: it has none); what the
 * statement does not have is left out, so that one list serves several statements.
 */
int sl_db_ask(struct sl_db *db, const char *sql, const struct sl_parameter *parameters, struct sl_statement **out,
              struct sl_error *error);

/* The same, at the first row: 1, 0 without one, or a negative errno. *out is to be closed in any case. */
int sl_db_ask_first(struct sl_db *db, const char *sql, const struct sl_parameter *parameters, struct sl_statement **out,
                    struct sl_error *error);

/* Asks for no rows: it is done. */
int sl_db_tell(struct sl_db *db, const char *sql, const struct sl_parameter *parameters, struct sl_error *error);

/* Binds what the statement has of a list. */
void sl_bind_all(struct sl_statement *statement, const struct sl_parameter *parameters);

/* Closes the statement; returns NULL. NULL is fine. */
struct sl_statement *sl_statement_close(struct sl_statement *statement);

/* Positional parameters count from 1. Text is not copied: it has to live until the next step is over. NULL binds NULL.
 */
/* A statement that is NULL takes every value, and sl_statement_run of it does nothing: a writer may have no database.
 */
void sl_bind_int(struct sl_statement *statement, int index, int64_t value);
void sl_bind_double(struct sl_statement *statement, int index, double value);
void sl_bind_text(struct sl_statement *statement, int index, const char *text);
void sl_bind_blob(struct sl_statement *statement, int index, const void *data, size_t bytes); /* as text */
void sl_bind_null(struct sl_statement *statement, int index);

/* The same by name, with its colon: ":rank". A name that the statement lacks is an error of the next step. */
void sl_bind_named_int(struct sl_statement *statement, const char *name, int64_t value);
void sl_bind_named_text(struct sl_statement *statement, const char *name, const char *text);
void sl_bind_named_null(struct sl_statement *statement, const char *name);

/* Returns 1 with a row, 0 at the end (the statement is then reset and keeps its bindings), or a negative errno. */
int sl_statement_step(struct sl_statement *statement, struct sl_error *error);

/* Steps to the end, ignoring rows, and resets: for INSERT and its kind. */
int sl_statement_run(struct sl_statement *statement, struct sl_error *error);

/* Back before the first row; bindings stay. */
void sl_statement_reset(struct sl_statement *statement);

enum sl_value_type { SL_VALUE_null, SL_VALUE_int, SL_VALUE_double, SL_VALUE_text, SL_VALUE_blob };

/* Columns of the current row count from 0. Pointers live until the next step, reset or close. */
int sl_column_count(struct sl_statement *statement);
const char *sl_column_name(struct sl_statement *statement, int column);
enum sl_value_type sl_column_type(struct sl_statement *statement, int column);
bool sl_column_is_null(struct sl_statement *statement, int column);
int64_t sl_column_int(struct sl_statement *statement, int column); /* 0 for NULL */
struct sl_number {
  enum sl_value_type type; /* null: it is no number */
  int64_t whole;
  double real;
};
struct sl_number sl_column_number(struct sl_statement *statement, int column);
double sl_column_double(struct sl_statement *statement, int column);    /* 0 for NULL */
const char *sl_column_text(struct sl_statement *statement, int column); /* "" for NULL, never NULL */
const void *sl_column_blob(struct sl_statement *statement, int column, int *bytes);

#endif
