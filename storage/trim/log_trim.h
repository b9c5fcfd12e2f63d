/*
 * Keeps one process's log within its limit, from outside of the process: which of its sealed files are to be dropped,
 * and when. How that is done so that a reader can go on is log_drop.h.
 */
#ifndef SHARDLEDGER_LOG_TRIM_H
#define SHARDLEDGER_LOG_TRIM_H

#include "storage/error.h"

#include <stdbool.h>
#include <stdint.h>

/* What a log says of itself. */
struct sl_log_limit {
  uint64_t bytes; /* with SHARDLEDGER_AT_MAX=keep-last; 0: it is not a log to be trimmed */
  int64_t pid;    /* of the process that records it, on its host */
  char host[256];
};

/* -EAGAIN: the process has only begun with it. Other negative errnos: as of sl_log_open. */
int sl_log_limit_read(const char *directory, struct sl_log_limit *out, struct sl_error *error);

/* So many bytes are in its files now, and the last change of one; false: it has gone. */
bool sl_log_size(const char *directory, uint64_t *bytes, uint64_t *changed_ns);

/* Is so little of the limit left that something is to be dropped? */
bool sl_log_is_near_limit(uint64_t bytes, uint64_t limit);

/*
 * Drops a quarter of the limit, or what can be. 0: some files have gone. -EAGAIN: there may be something later: no file
 * is full, no step has begun since, or another trimmer is at work. Other negative errnos: the error says why not;
 * nothing has changed.
 */
int sl_log_trim(const char *directory, uint64_t limit, struct sl_error *error);

/* Removes what sl_log_trim has left when it was killed: a file that nobody reads. */
void sl_log_trim_clean(const char *directory);

#endif
