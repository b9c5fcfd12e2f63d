/* The log of this process as its parts share it, and why it takes no events. */
#ifndef SHARDLEDGER_LOG_STATE_H
#define SHARDLEDGER_LOG_STATE_H

#include "log_chain.h"
#include "plugin/format/clock.h"
#include "plugin/format/name.h"
#include "plugin/process/undisturbed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Why nothing is taken; recording is on while no bit is set. */
enum { OFF_PAUSED = 1, OFF_FAILED = 2, OFF_ENDED = 4, OFF_FORKED = 8 };
#define OFF_FOR_GOOD (OFF_FAILED | OFF_ENDED | OFF_FORKED)

/* OPENING: the helper thread makes the first files. */
enum log_opening { NOT_OPEN, OPENING, OPEN, OVER };

/* Why no events are taken: 0, or bits of the above. */
extern __attribute__((visibility("hidden"))) unsigned sl_log_off;

struct log_state {
  atomic_bool exhausted; /* the size limit: segments run out and every event is lost, for good or until there is room */
  pthread_mutex_t lock;  /* definitions, names, opening and ending; held undisturbed, and never across a file's call */
  _Atomic enum log_opening state;
  struct chain definitions; /* ordinal 0 */
  struct chain *_Atomic chains;
  uint32_t next_ordinal;
  bool have_barrier, helper_ended;
  atomic_bool ending;
  atomic_bool has_directory, is_given_up;
  char directory[4096]; /* the helper thread's until has_directory */
  uint64_t start_ns;
  uint32_t name_log, name_no_segment, name_limit; /* what gap records need, where nothing can be looked up */
  char clean[SL_NAME_MAX];                        /* a name on its way into the table */

  struct sl_undisturbed before_fork;
  bool fork_locked;
  struct chain *forking; /* the forking thread's, NULL without one, and as it was: it is zero in the child */
  struct chain forking_was;
};

extern __attribute__((visibility("hidden"))) struct log_state sl_the_log;

static inline unsigned sl_off_set(unsigned bit) {
  return __atomic_fetch_or(&sl_log_off, bit, __ATOMIC_SEQ_CST);
}

static inline bool sl_is_over(void) {
  return (__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & OFF_FOR_GOOD) != 0;
}

/*
 * The lock, after sl_log_init. False in a child that this log is not of, also one that ran no handler of fork: there
 * the lock may be held for ever.
 */
bool sl_log_lock(struct sl_undisturbed *before);
void sl_log_unlock(const struct sl_undisturbed *before);

/* Recording ends for good, in words for the user; what is in the log already stays. Called once, without the lock. */
void sl_log_fail(const char *what, int error);

#endif
