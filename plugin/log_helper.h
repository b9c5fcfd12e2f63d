/*
 * The log's helper thread: keeps segments ready, seals full ones, ticks the sources once a second. It runs at low
 * priority with all signals blocked, so the host's handlers never run on it.
 */
#ifndef SHARDLEDGER_LOG_HELPER_H
#define SHARDLEDGER_LOG_HELPER_H

#include <stdbool.h>

/* Starts the thread. work does one piece of work and returns whether there may be more. 0 or a negative errno. */
int sl_log_helper_start(bool (*work)(void));

/* There is work. One system call when the thread sleeps, else none. */
void sl_log_helper_wake(void);

/* Runs the end callbacks and what work is left, at most deadline_ms long. Returns whether the thread has ended. */
bool sl_log_helper_stop(unsigned deadline_ms);

#endif
