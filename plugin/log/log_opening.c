/*
 * The log's files are the helper thread's: nobody of the host waits long for them. Where they are late, the log begins
 * in memory; where they can't be made or get no longer, it ends.
 */
#include "log_opening.h"

#include "log_definitions.h"
#include "log_directory.h"
#include "log_helper.h"
#include "log_state.h"
#include "pending_definitions.h"
#include "plugin/process/config.h"
#include "plugin/process/process_description.h"
#include "sealed_files.h"
#include "segment_pool.h"
#include "thread_state.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPEN_WAIT_MS 500u /* for the first files, once in a process; again while they come, but slowly, */
#define OPEN_WAITS 4u     /* so often. From then on events go to memory */

/* Recording ends, which is written into the room that the definitions chain still has. */
static void fail_open_log(const char *what, int error) {
  char reason[200];
  struct sl_undisturbed before;
  snprintf(reason, sizeof(reason), "%s: %s", what, strerror(-error));
  if (sl_log_lock(&before)) {
    const struct sl_event_gap gap = {sl_the_log.name_log, sl_name_locked(reason, strlen(reason)), 0};
    sl_define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
    sl_log_unlock(&before);
  }
  sl_log_fail(what, error);
}

static void reach_limit(void) {
  static bool said;
  struct sl_undisturbed before;
  if (atomic_exchange(&sl_the_log.exhausted, true))
    return;
  if (sl_pool_may_get_room()) {
    if (!said)
      sl_say("the log in %s has reached SHARDLEDGER_MAX_BYTES before 'shardledger trim' has dropped older steps of it; "
             "what follows is counted, not recorded, until there is room",
             sl_the_log.directory);
    said = true;
    return;
  }
  if (!sl_log_lock(&before))
    return;
  const struct sl_event_gap gap = {sl_the_log.name_log, sl_the_log.name_limit, 0};
  sl_define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
  sl_log_unlock(&before);
  sl_say("the log in %s has reached SHARDLEDGER_MAX_BYTES; what follows is counted, not recorded",
         sl_the_log.directory);
}

/*
 * Where files are mapped only they survive a kill, so nobody is to stay in a stopgap: each thread takes another segment
 * at its next event.
 */
static void leave_stopgaps(void) {
  struct sl_undisturbed before;
  if (!sl_log_lock(&before))
    return;
  struct sl_segment *segment =
      sl_the_log.definitions.segment && sl_the_log.definitions.segment->stopgap ? sl_pool_take() : NULL;
  if (segment)
    sl_chain_continue(&sl_the_log.definitions, segment, sl_clock_ns(CLOCK_REALTIME));
  sl_log_unlock(&before);
  for (struct chain *chain = atomic_load(&sl_the_log.chains); chain; chain = chain->next) {
    const struct sl_segment *current = __atomic_load_n(&chain->segment, __ATOMIC_ACQUIRE);
    if (current && current->stopgap)
      sl_chain_set_end(chain, NULL);
  }
}

/* The log could not begin: its first files are taken back. */
static void give_up_files(void) {
  if (!atomic_exchange(&sl_the_log.is_given_up, false))
    return;
  sl_pool_end();
  rmdir(sl_the_log.directory);
}

/* The helper thread's supply and sealing, and what to do when it fails. */
static bool helper_work(void) {
  const bool exhausted = atomic_load_explicit(&sl_the_log.exhausted, memory_order_relaxed);
  if (sl_is_over() || (exhausted && !sl_pool_may_get_room())) {
    give_up_files();
    return false;
  }
  if (sl_pool_has_new_stopgaps())
    leave_stopgaps();
  int r = sl_pool_work();
  if (r == -E2BIG)
    reach_limit();
  else if (r == 0 && exhausted) /* there was room: segments are ready again */
    atomic_store(&sl_the_log.exhausted, false);
  else if (r < 0 && !sl_pool_is_short(r)) /* else events are lost, and counted, until there is something again */
    fail_open_log("cannot extend the log", r);
  return r > 0;
}

static void write_what_is_in_memory(void) {
  int r = sl_is_over() ? 0 : sl_pool_write();
  if (r < 0 && !sl_pool_is_short(r))
    fail_open_log("cannot write the log", r);
}

/* On the helper thread, which may take as long as the file system does. */
static int open_files(void) {
  int r = sl_log_directory_make(sl_option_text(SL_OPTION_dir), sl_the_log.directory, sizeof(sl_the_log.directory));
  if (r == 0 && (r = sl_pool_start(sl_the_log.directory)) < 0) {
    sl_pool_end();
    rmdir(sl_the_log.directory); /* Fails, and rightly, when something is in it. */
  }
  if (r < 0)
    sl_log_fail("cannot record to a log", r);
  else
    atomic_store_explicit(&sl_the_log.has_directory, true, memory_order_release);
  return r;
}

/* The helper thread has begun, and its files are there or late: then the first segments are stopgaps. */
static void open_locked(void (*at_exit)(void)) {
  struct sl_segment *segment = sl_segment_for_definitions();
  if (!segment) {
    sl_the_log.state = OVER;
    atomic_store(&sl_the_log.is_given_up, true);
    sl_log_fail("cannot record to a log", -ENOMEM);
    sl_log_helper_wake();
    return;
  }
  sl_the_log.state = OPEN;
  sl_chain_continue(&sl_the_log.definitions, segment, sl_clock_ns(CLOCK_REALTIME));
  sl_pending_replay(sl_define_locked);
  sl_the_log.name_log = sl_name_locked("log", 3);
  sl_the_log.name_no_segment = sl_name_locked("no segment was ready", 20);
  sl_the_log.name_limit = sl_name_locked("SHARDLEDGER_MAX_BYTES reached", 29);
  sl_process_describe(sl_the_log.start_ns, sl_sealed_keep_last_bytes(), sl_info_locked);
  sl_the_log.have_barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  atexit(at_exit);
  sl_log_on_tick(sl_threads_retire_left);
  sl_log_on_tick(write_what_is_in_memory);
}

static void start_locked(void (*tick)(void)) {
  sl_pool_begin(sl_option_max_bytes(), sl_log_helper_wake, sl_log_helper_is_starved);
  int r = sl_log_helper_start(open_files, helper_work, tick);
  sl_the_log.state = r < 0 ? OVER : OPENING;
  if (r < 0)
    sl_log_fail("cannot record to a log", r);
}

/* Only files survive a kill, so the first event waits for them, but not for a file system that does not answer. */
static void wait_for_files(void) {
  for (unsigned i = 0; i < OPEN_WAITS; i++) {
    const unsigned made = sl_pool_made();
    if (sl_log_helper_wait_for_open(OPEN_WAIT_MS) || sl_pool_made() == made)
      return;
  }
}

void sl_log_open_once(void (*tick)(void), void (*at_exit)(void)) {
  struct sl_undisturbed before;
  if (sl_the_log.state >= OPEN || !sl_log_lock(&before))
    return;
  if (sl_the_log.state == NOT_OPEN && !sl_is_over())
    start_locked(tick);
  sl_log_unlock(&before);
  if (sl_the_log.state == OPENING)
    wait_for_files();
  if (!sl_log_lock(&before))
    return;
  if (sl_the_log.state == OPENING && !sl_is_over())
    open_locked(at_exit);
  sl_log_unlock(&before);
}
