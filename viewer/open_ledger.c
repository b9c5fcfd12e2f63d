/* Opens the ledger of what the user named, and makes it where it is missing or old. */
#include "open_ledger.h"
#include "output/terminal.h"
#include "plugin/format/log_format.h"
#include "sql_functions.h"
#include "storage/ledger.h"
#include "storage/log/log_reader.h"
#include "storage/run/run_directory.h"
#include "storage/snapshot/snapshot_log.h"
#include "storage/tables/schema_check.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *sl_default_directory(void) {
  const char *directory = getenv("SHARDLEDGER_DIR");
  return directory && *directory ? directory : "shardledger-out";
}

const char *sl_chosen_directory(const char *named) {
  if (named)
    return named;
  const char *directory = sl_default_directory();
  struct stat status;
  int newest = 0;
  /* As 'shardledger run' numbers the runs beside one that is there. */
  for (int i = 2;; i++) {
    char *beside = NULL;
    if (asprintf(&beside, "%s-%d", directory, i) < 0)
      break;
    bool exists = stat(beside, &status) == 0;
    free(beside);
    if (!exists)
      break;
    newest = i;
  }
  if (newest)
    sl_complain("reading %s; %s-%d is newer", directory, directory, newest);
  return directory;
}

bool sl_path_exists(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

int sl_make_directories(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    int r = mkdir(path, 0777);
    *slash = '/';
    if (r != 0 && errno != EEXIST)
      return -errno;
  }
  if (mkdir(path, 0700) == 0)
    return 1;
  return errno == EEXIST ? 0 : -errno;
}

/* What builders report by number only becomes a sentence with the next step. */
static int explain_build(const char *directory, const char *output, int r, struct sl_error *error) {
  switch (r) {
  case -ENOENT:
    return sl_error_set(error, r, "%s: no such directory; record a run with 'shardledger run -- CMD'", directory);
  case -ENODATA:
    return sl_error_set(error, r, "%s: no ledger and no logs here; record a run with 'shardledger run -- CMD'",
                        directory);
  case -EACCES:
  case -EPERM:
  case -EROFS:
  case -ENOSPC:
  case -EDQUOT:
  case -EIO: /* SQLite does not tell a limit on file sizes from a broken disk */
    return sl_error_set(error, r,
                        "%s can't be written (%s); put the ledger elsewhere: 'shardledger ingest %s -o FILE.sqlite'",
                        output, strerror(-r), directory);
  default:
    if (!error->text[0])
      sl_error_set(error, r, "%s: %s", directory, strerror(-r));
    return r;
  }
}

int sl_ingest_job(const char *const *directories, int count, const char *output,
                  const struct sl_ledger_options *options, struct sl_error *error) {
  struct sl_ledger_options shown = *options;
  struct sl_error note = {{0}};
  error->text[0] = '\0';
  shown.progress = sl_progress_show;
  int r = sl_ledger_merge(directories, count, output, &shown, &note, error);
  sl_progress_clear();
  if (note.text[0])
    sl_complain("%s", note.text);
  if (r < 0 && !error->text[0])
    sl_error_set(error, r, "%s: %s", output, strerror(-r));
  return r < 0 ? r : 0;
}

int sl_ingest(const char *directory, const char *output, const struct sl_ledger_options *options,
              struct sl_error *error) {
  char *own_output = NULL;
  int r = output ? 0 : sl_ledger_place(directory, options->attempt, &own_output, error);
  if (r < 0)
    return r == -EINVAL ? r : explain_build(directory, directory, r, error);
  output = output ? output : own_output;
  r = sl_ingest_job(&directory, 1, output, options, error);
  if (r < 0)
    r = explain_build(directory, output, r, error);
  free(own_output);
  return r;
}

/* Refuses databases that are not ledgers, or of another version. */
static int check_version(struct sl_db *db, const char *path, struct sl_error *error) {
  int64_t version = 0, tables = 0;
  int r = sl_db_int(db, "PRAGMA user_version", &version, error);
  if (r < 0)
    return r;
  r = sl_db_int(db, sl_sql_ledger_tables, &tables, error);
  if (r < 0)
    return r;
  if (version > SL_LEDGER_VERSION && tables == 3)
    return sl_error_set(error, -EPROTO,
                        "%s is of ledger version %lld and this shardledger reads version %d; use a newer shardledger",
                        path, (long long)version, SL_LEDGER_VERSION);
  if (tables != 3)
    return sl_error_set(error, -EBADMSG,
                        "%s is an SQLite database, but no ledger; name a run directory or the output of 'shardledger "
                        "ingest'",
                        path);
  if (version != SL_LEDGER_VERSION)
    return sl_error_set(error, -EPROTO,
                        "%s is of ledger version %lld and this shardledger reads version %d; make it again with "
                        "'shardledger ingest DIR'",
                        path, (long long)version, SL_LEDGER_VERSION);
  return 0;
}

static int open_file(const char *path, enum sl_db_mode mode, struct sl_db **out, struct sl_error *error) {
  struct sl_db *db = NULL;
  int r = sl_db_open(path, mode, &db, error);
  if (r == 0)
    r = check_version(db, path, error);
  if (r == 0)
    r = sl_schema_check(db, path, error);
  if (r == 0)
    r = sl_add_functions(db, error);
  if (r < 0)
    db = sl_db_close(db);
  *out = db;
  return r;
}

/* What a statement says of a database that may be of another version, or none; 0 where it can't be asked. */
static int64_t ask(const char *path, const char *sql) {
  struct sl_db *db = NULL;
  struct sl_error error = {{0}};
  int64_t answer = 0;
  if (sl_db_open(path, SL_DB_READ_FILE, &db, &error) == 0)
    (void)sl_db_int(db, sql, &answer, &error);
  db = sl_db_close(db);
  return answer;
}

/* A ledger that is made anew keeps what the one before it kept. */
static bool keeps_all(const char *path) {
  return ask(path, sl_sql_keeps_all);
}

static bool is_outdated(const char *path) {
  int64_t version = ask(path, "PRAGMA user_version");
  return version > 0 && (version < SL_LEDGER_VERSION || ask(path, sl_sql_lacks_tables));
}

/* Failures that say nothing of the older ledger: a newer version's log, and what may work the next time. */
static bool fails_for_now(int r) {
  return r == -EPROTO || r == -ENOMEM || r == -SL_LOG_UNREADABLE;
}

/*
 * Where the ledger of a run directory goes that can't be written, such as one on a mount of somebody else's: beside the
 * user's other caches, under the directory's own path, which no two have in common. NULL without a cache directory or
 * memory.
 */
static char *cached_place(const char *directory, const char *own_place) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *name = strrchr(own_place, '/');
  char *real = realpath(directory, NULL), *place = NULL;
  if (!real || (!(cache && *cache) && !(home && *home)) ||
      asprintf(&place, "%s%s/shardledger/ledgers%s", cache && *cache ? cache : home, cache && *cache ? "" : "/.cache",
               real) < 0)
    place = NULL;
  free(real);
  char *file = NULL;
  /* Where it can't be made, the ledger can't be written, which is said then. */
  if (place && (sl_make_directories(place), asprintf(&file, "%s%s", place, name ? name : "/ledger.sqlite") < 0))
    file = NULL;
  free(place);
  return file;
}

int sl_open_ledger(const char *path, struct sl_db **out, struct sl_error *error) {
  return sl_open_run(path, NULL, out, error);
}

int sl_open_run(const char *path, const char *run, struct sl_db **out, struct sl_error *error) {
  struct stat status;
  char *ledger = NULL;
  int r = 0;

  *out = NULL;
  if (stat(path, &status) != 0) {
    r = -errno;
    if (r == -ENOENT)
      return sl_error_set(error, r, "%s: no such file or directory; record a run with 'shardledger run -- CMD'", path);
    return sl_error_set(error, r, "%s: %s", path, strerror(-r));
  }
  const bool is_recorded = S_ISDIR(status.st_mode) || sl_snapshot_is(path);
  if (!is_recorded && run)
    return sl_error_set(error, -EINVAL, "%s is the ledger of one run; --run chooses among those of a run directory",
                        path);
  if (!is_recorded)
    return open_file(path, SL_DB_READ, out, error);

  r = sl_ledger_place(path, run, &ledger, error);
  if (r < 0)
    return r;
  bool has_ledger = lstat(ledger, &status) == 0;
  if (access(path, W_OK) != 0 && (!has_ledger || is_outdated(ledger))) {
    char *elsewhere = cached_place(path, ledger);
    if (elsewhere) {
      free(ledger);
      ledger = elsewhere;
      has_ledger = lstat(ledger, &status) == 0;
      if (!has_ledger)
        sl_complain("%s can't be written; its ledger is %s", path, ledger);
    }
  }
  if (has_ledger && !S_ISREG(status.st_mode)) {
    r = sl_error_set(error, -EINVAL, "%s is %s, and is not read; remove it, and it is made again from the logs", ledger,
                     S_ISLNK(status.st_mode) ? "a link" : "no file");
    goto finish;
  }
  int process_count = sl_run_paths(path, NULL);
  if (process_count < 0) {
    r = sl_error_set(error, process_count, "%s can't be read: %s", path, strerror(-process_count));
    goto finish;
  }
  if (process_count == 0 && !has_ledger) {
    r = explain_build(path, ledger, -ENODATA, error);
    goto finish;
  }
  const bool current = has_ledger && !is_outdated(ledger) && (run || !ask(ledger, sl_sql_is_of_older_run));
  int stale = process_count > 0 && current ? sl_ledger_is_stale(path, ledger) : 1;
  if (stale < 0) {
    r = sl_error_set(error, stale, "%s can't be read: %s", path, strerror(-stale));
    goto finish;
  }
  if (process_count > 0 && stale) {
    const struct sl_ledger_options options = {.keep_all = has_ledger && keeps_all(ledger), .attempt = run};
    r = sl_ingest(path, ledger, &options, error);
    /* What was built before is better than nothing where nothing can be built. */
    if (r < 0 && has_ledger && !fails_for_now(r)) {
      sl_complain("using the older ledger: %s", error->text);
      r = 0;
    }
  }
  if (r == 0)
    r = open_file(ledger, SL_DB_READ_FILE, out, error);

finish:
  free(ledger);
  return r;
}

int sl_attach_run(struct sl_db *db, const char *path, const char *run, const char *name, struct sl_error *error) {
  struct sl_db *other = NULL;
  /* Opening it alone first ingests it where needed, and refuses what is no ledger in words. */
  int r = sl_open_run(path, run, &other, error);
  return r < 0 ? r : sl_db_attach(db, other, name, error);
}

int sl_attach_ledger(struct sl_db *db, const char *path, const char *name, struct sl_error *error) {
  return sl_attach_run(db, path, NULL, name, error);
}
