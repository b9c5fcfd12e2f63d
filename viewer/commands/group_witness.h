/*
 * Tells whether a signal was sent to this process alone or to its whole process group, which the kernel does not say: a
 * small process in the same group is asked whether it has got the signal too.
 */
#ifndef SHARDLEDGER_GROUP_WITNESS_H
#define SHARDLEDGER_GROUP_WITNESS_H

#include <stdbool.h>
#include <sys/types.h>

struct sl_group_witness {
  pid_t process; /* -1: there is none */
  int channel;   /* it ends when this is closed, so also when we are killed */
};

/*
 * Starts it. All signals that it will be asked about have to be blocked here already, and last_argument is the last of
 * the command line. Where no process can be had there is no witness.
 */
struct sl_group_witness sl_group_witness_start(char *last_argument);

/* Has it got this signal, which we have just got? Takes up to 50 ms where it has not. */
bool sl_group_witness_got(const struct sl_group_witness *witness, int signal);

/* Returns no witness, so that a second end does nothing. */
struct sl_group_witness sl_group_witness_end(struct sl_group_witness witness);

#endif
