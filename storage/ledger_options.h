/* What a ledger is made by: its version, and what a build of one is asked for. */
#ifndef SHARDLEDGER_LEDGER_OPTIONS_H
#define SHARDLEDGER_LEDGER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_LEDGER_VERSION 11  /* PRAGMA user_version */
#define SL_LEDGER_JOBS_MAX 16 /* each takes memory of its own: that of two steps */

/* Called now and then during a build, by one thread at a time; done and total are bytes of log. */
typedef void sl_progress(void *context, uint64_t done, uint64_t total);

struct sl_user_rules;

struct sl_ledger_options {
  sl_progress *progress;  /* NULL: silent */
  void *progress_context; /* handed to progress */
  /*
   * Rules of the user's, which stay the caller's; a copy is kept in the directory when the ledger is built. NULL: those
   * kept there, if there are any.
   */
  const struct sl_user_rules *rules;
  bool keep_all;       /* also the rows of steps that repeat another one */
  const char *attempt; /* of several runs in the directory: its number or id (run_directory.h); NULL: the newest */
  size_t jobs;         /* ranks that are read at once; 0: as many as there are processors, at most SL_LEDGER_JOBS_MAX */
};

#endif
