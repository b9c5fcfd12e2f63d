/*
 * Writing may raise a signal that would end the host: SIGPIPE when nobody reads its stderr any more, SIGXFSZ beyond
 * RLIMIT_FSIZE. On threads of the host they are held back for the time of a call, and taken back when it raised one.
 */
#ifndef SHARDLEDGER_HELD_SIGNALS_H
#define SHARDLEDGER_HELD_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

struct sl_held_signals {
  sigset_t pending, before;
  int cancellation; /* writing is a cancellation point as well */
};

void sl_signals_hold(struct sl_held_signals *held);
void sl_signals_release(const struct sl_held_signals *held, bool call_failed);

#endif
