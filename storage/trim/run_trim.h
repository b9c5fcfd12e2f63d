/*
 * Keeps all logs of a run that this host records within their limits while they grow: looks how large they are, and
 * has each that comes near its limit trimmed by a process of its own. So several are trimmed at once, and what one
 * can't do or dies of is no other's concern. A kill at any moment leaves logs that are whole.
 */
#ifndef SHARDLEDGER_RUN_TRIM_H
#define SHARDLEDGER_RUN_TRIM_H

#include "storage/error.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct sl_trim_options {
  const char *directory;         /* of the run, which need not be there yet */
  pid_t parent;                  /* goes on while this process is our parent, whatever ends meanwhile; 0: no matter */
  volatile sig_atomic_t *stop;   /* ends soon once it is set by a signal */
  const sigset_t *while_waiting; /* the signals that are blocked then, and only then: the caller has blocked more */
  void (*say)(const char *directory, const char *text); /* of a log, why nothing of it can be dropped; once for each */
};

/* Until every log has ended, or options say so. 0 or -ENOMEM. */
int sl_run_trim(const struct sl_trim_options *options);

/* Once, one after the other. 0 or the first negative errno; what can't be dropped yet is no error. */
int sl_run_trim_once(const char *directory, void (*say)(const char *directory, const char *text));

#endif
