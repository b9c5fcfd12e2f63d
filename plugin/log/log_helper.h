/*
 * The log's helper thread: makes the log's directory, keeps segments ready, seals full ones, ticks the sources once a
 * second. It runs at low priority with all signals blocked, so the host's handlers never run on it. All of the log's
 * files are its own, so that nobody else waits for a file system.
 */
#ifndef SHARDLEDGER_LOG_HELPER_H
#define SHARDLEDGER_LOG_HELPER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * For users of the helper thread, which starts when the log opens: tick is called there about once a second, end once
 * in sl_log_end, before the last record. At most 8 of each; a caller registers each one once.
 */
typedef void sl_log_callback(void);
void sl_log_on_tick(sl_log_callback *tick);
void sl_log_on_end(sl_log_callback *end);

/*
 * Starts the thread. open is called there first: 0, or a negative errno with which the thread ends. work does one piece
 * of work and returns whether there may be more. tick is called before the callbacks of a tick, and at the end after
 * those of the end. 0 or a negative errno.
 */
int sl_log_helper_start(int (*open)(void), bool (*work)(void), void (*tick)(void));

/* Waits until open has returned, or so long. Returns whether it has. */
bool sl_log_helper_wait_for_open(unsigned ms);

/*
 * Whether the thread would run if there were a processor for it. Then a wait for it says nothing of the file system.
 * The waits below go on so long, at most five seconds. Opens a file of /proc.
 */
bool sl_log_helper_is_starved(void);

/* There is work. One system call when the thread sleeps, else none. */
void sl_log_helper_wake(void);

/*
 * Runs the end callbacks and what work is left, until an instant of CLOCK_MONOTONIC. Returns whether the thread has
 * ended.
 */
bool sl_log_helper_stop(uint64_t until_ns);

/*
 * Starts a thread of ours: detached, since nobody may wait for it, and with all signals blocked. It may give itself our
 * name and low priority. 0 or a negative errno.
 */
int sl_log_thread_start(void *(*body)(void *));
void sl_log_thread_is_ours(void);

/* Calls function on one more thread, and waits for it until then: what it does may hang. Once in a process. */
void sl_log_helper_finish(void (*function)(void), uint64_t until_ns);

#endif
