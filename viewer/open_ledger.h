/* From what the user named (a run directory, a process directory, a .sqlite file) to an open ledger. */
#ifndef SHARDLEDGER_OPEN_LEDGER_H
#define SHARDLEDGER_OPEN_LEDGER_H

#include "storage/error.h"
#include "storage/ledger.h"
#include "storage/tables/db.h"

#include <stdbool.h>

/* $SHARDLEDGER_DIR, else shardledger-out. */
const char *sl_default_directory(void);

/* The directory that the user named, else the default one; then a note on stderr says when a newer run lies beside it.
 */
const char *sl_chosen_directory(const char *named);

/* True when the path is there, whatever it is: tells DIR from other words of a command line. */
bool sl_path_exists(const char *path);

/* A directory with all that it lies in. 1: made; 0: it was there; or a negative errno. path is as it was, afterwards.
 */
int sl_make_directories(char *path);

/*
 * Builds the ledger of directory at output, or at its own place when output is NULL, with a progress bar on terminals,
 * whatever options says about progress. Notes go to stderr. 0, or a negative errno with the sentence in error.
 */
int sl_ingest(const char *directory, const char *output, const struct sl_ledger_options *options,
              struct sl_error *error);

/* The same of the directories of one job on several nodes. */
int sl_ingest_job(const char *const *directories, int count, const char *output,
                  const struct sl_ledger_options *options, struct sl_error *error);

/*
 * Opens a ledger for reading; a run directory is ingested first when its ledger is missing or old. *out belongs to the
 * caller. The ledger of a directory that can't be written is made in the user's cache directory, which a note says.
 * -ENOENT, -ENODATA, -EBADMSG, -EPROTO, -EACCES … with the sentence, next step included, in error.
 */
int sl_open_ledger(const char *path, struct sl_db **out, struct sl_error *error);

/*
 * The same of one of several runs in a run directory: run is its number or an id of its launcher, NULL the newest. A
 * file is of one run only: -EINVAL with another word than NULL, as where there is no such run.
 */
int sl_open_run(const char *path, const char *run, struct sl_db **out, struct sl_error *error);

/*
 * A second ledger beside an open one, found as by sl_open_ledger and sl_open_run: its tables are then name.step and so
 * on. name is a plain SQL name. Reading only, as the first.
 */
int sl_attach_ledger(struct sl_db *db, const char *path, const char *name, struct sl_error *error);
int sl_attach_run(struct sl_db *db, const char *path, const char *run, const char *name, struct sl_error *error);

#endif
