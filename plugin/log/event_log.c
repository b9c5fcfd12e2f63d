/*
 * Appending to the log, which may happen at any moment on any thread, and its end, which all of these must survive: an
 * append promises to be short, and the end waits for it.
 */
#include "event_log.h"

#include "log_chain.h"
#include "log_definitions.h"
#include "log_helper.h"
#include "log_opening.h"
#include "log_state.h"
#include "own_memory.h"
#include "plugin/process/config.h"
#include "plugin/process/undisturbed.h"
#include "segment_pool.h"
#include "thread_state.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define IDLE_WAIT_NS 50000000u /* for threads that are inside an append when the log ends */
#define FINISH_NS 100000000u   /* of the end's time, for the files */

static void record_clocks(void);
static void at_exit(void);

/* Why the chain has lost what no gap record tells yet. */
static uint32_t gap_reason(struct chain *chain) {
  const bool at_limit = atomic_exchange_explicit(&chain->lost_at_limit, false, memory_order_relaxed) ||
                        atomic_load_explicit(&sl_the_log.exhausted, memory_order_relaxed);
  return at_limit ? sl_the_log.name_limit : sl_the_log.name_no_segment;
}

static void put_gap(struct chain *chain, uint64_t now) {
  uint64_t lost = atomic_exchange_explicit(&chain->lost, 0, memory_order_relaxed);
  const struct sl_event_gap gap = {.source = sl_the_log.name_log, .reason = gap_reason(chain), .lost = lost};
  sl_chain_put_timed(chain, now, SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
}

/*
 * A thread's first event may cost about what starting the thread did, rather than be lost: where no segment is ready it
 * waits for one, and where the file system stalls it gets a stopgap. A burst of threads that live for a few events
 * needs that. So does everybody until the first files are made. What goes on like that is lost in part.
 */
static __attribute__((noinline)) bool chain_next_segment(struct chain *chain, uint64_t now, intptr_t need) {
  struct sl_undisturbed before;
  const int host_errno = errno;
  if (!chain->segment && !chain->is_new && sl_pool_is_dry() && sl_pool_has_supplied())
    return false;
  sl_undisturbed_begin(&before);
  if (!sl_own_process())
    sl_off_set(OFF_FORKED);
  sl_log_open_once(record_clocks, at_exit);
  const bool is_off = sl_is_over() || atomic_load_explicit(&sl_the_log.exhausted, memory_order_relaxed);
  const bool is_early = !is_off && (chain->is_new || !sl_pool_has_supplied());
  const bool waits = is_early && sl_pool_has_started() && !sl_the_log.ending;
  struct sl_segment *segment = sl_is_over() ? NULL : waits ? sl_pool_take_waiting() : sl_pool_take();
  bool found = segment || (!sl_is_over() && sl_chain_stays(chain, need));
  if (!found && is_early)
    found = (segment = sl_pool_stopgap(false)) != NULL;
  chain->is_new = false;
  if (segment || !found)
    sl_chain_continue(chain, segment, now);
  sl_undisturbed_end(&before);
  errno = host_errno;
  return found;
}

/*
 * One body, compiled for events of any type and once more for those of the allocator, of which there are most: their
 * type and size are known then.
 */
static inline __attribute__((always_inline)) bool append(struct chain *chain, enum sl_event_type type,
                                                         const void *fields, size_t bytes, const void *tail,
                                                         size_t tail_bytes) {
  if (UNLIKELY(!chain) && (!sl_log_active() || !(chain = sl_thread_enter())))
    return sl_log_active() && sl_chain_lose(&sl_the_log.definitions, type);
  if (UNLIKELY(atomic_load_explicit(&chain->busy, memory_order_relaxed)))
    return sl_chain_lose(chain, type);
  atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  bool recorded = false;
  const size_t need = HEADER_BYTES + bytes + ((tail_bytes + 7) & ~(size_t)7);
  if (UNLIKELY(!sl_log_active()))
    goto finish;
  uint64_t now = sl_clock_ns(CLOCK_REALTIME);
  if (UNLIKELY(sl_chain_room(chain) < (intptr_t)(need + PRELUDE_BYTES)) &&
      (need > WORDS_MAX * 8 || !chain_next_segment(chain, now, (intptr_t)(need + PRELUDE_BYTES)))) {
    if (type != SL_EVENT_allocator && atomic_load_explicit(&sl_the_log.exhausted, memory_order_relaxed))
      atomic_store_explicit(&chain->lost_at_limit, true, memory_order_relaxed);
    sl_chain_lose(chain, type);
    goto finish;
  }
  if (UNLIKELY(atomic_load_explicit(&chain->lost, memory_order_relaxed)))
    put_gap(chain, now);
  sl_chain_put_timed(chain, now, type, fields, bytes, tail, tail_bytes);
  recorded = true;

finish:
  atomic_store_explicit(&chain->busy, false, memory_order_release);
  return recorded;
}

bool sl_log_append(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes) {
  return append(sl_chain_mine(), type, fields, bytes, tail, tail_bytes);
}

bool sl_log_append_on(struct sl_thread *thread, enum sl_event_type type, const void *fields, size_t bytes) {
  return append(sl_chain_of(thread), type, fields, bytes, NULL, 0);
}

/* Flat, since the checksum of a known size takes fewer instructions than the choice of how to make it. */
__attribute__((flatten)) bool sl_log_append_allocator(const struct sl_event_allocator *event) {
  return append(sl_chain_mine(), SL_EVENT_allocator, event, sizeof(*event), NULL, 0);
}

void sl_log_gap(const char *source, const char *reason, uint64_t lost) {
  const struct sl_event_gap gap = {sl_log_name(source), sl_log_name(reason), lost};
  sl_log_append(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
}

static void record_clocks(void) {
  const struct sl_event_clock clock = {.realtime_ns = sl_clock_ns(CLOCK_REALTIME),
                                       .monotonic_ns = sl_clock_ns(CLOCK_MONOTONIC)};
  sl_log_append(SL_EVENT_clock, &clock, sizeof(clock), NULL, 0);
}

const char *sl_log_directory(void) {
  return atomic_load_explicit(&sl_the_log.has_directory, memory_order_acquire) ? sl_the_log.directory : "";
}

void sl_log_pause(bool paused) {
  if (paused == ((__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & OFF_PAUSED) != 0))
    return;
  if (!paused)
    __atomic_fetch_and(&sl_log_off, ~(unsigned)OFF_PAUSED, __ATOMIC_SEQ_CST);
  if (sl_the_log.state == OPEN)
    sl_log_gap("log", paused ? "paused" : "resumed", 0);
  if (paused)
    sl_off_set(OFF_PAUSED);
}

/* ---- end ---- */

/*
 * Waits until the chain's thread is outside sl_log_append, where it will not write again. False when it takes too long
 * (a thread stopped by a debugger), or when the kernel has no membarrier: then its file keeps its full size.
 */
static bool chain_is_idle(const struct chain *chain, uint64_t until_ns) {
  if (!sl_the_log.have_barrier && chain != sl_chain_mine())
    return false;
  while (atomic_load_explicit(&chain->busy, memory_order_acquire)) {
    if (sl_clock_ns(CLOCK_MONOTONIC) > until_ns)
      return false;
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
  return true;
}

static void chain_truncate(const struct chain *chain) {
  if (chain->segment && (chain->is_at_rest || chain->segment->in_memory))
    sl_pool_truncate(chain->segment, (uint32_t)(chain->cursor - (char *)chain->segment->map));
}

/* On a thread of its own. The helper thread may hang, in a callback or in a file system. */
static void finish_files(void) {
  if (!sl_pool_has_started())
    return;
  sl_pool_write();
  for (const struct chain *chain = atomic_load(&sl_the_log.chains); chain; chain = chain->next)
    chain_truncate(chain);
  chain_truncate(&sl_the_log.definitions);
  if (sl_the_log.helper_ended)
    sl_pool_end();
}

/* Brings all threads to rest. Adds what they have lost and not told to what the definitions have. */
static void chains_stop(void) {
  struct chain *const definitions = &sl_the_log.definitions;
  sl_off_set(OFF_ENDED);
  if (sl_the_log.have_barrier)
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  const uint64_t until = sl_clock_ns(CLOCK_MONOTONIC) + IDLE_WAIT_NS;
  for (struct chain *chain = atomic_load(&sl_the_log.chains); chain; chain = chain->next) {
    chain->is_at_rest = chain_is_idle(chain, until);
    atomic_fetch_add(&definitions->lost, atomic_exchange(&chain->lost, 0));
    if (atomic_exchange(&chain->lost_at_limit, false))
      atomic_store(&definitions->lost_at_limit, true);
  }
}

/* Into the definitions chain goes what the threads' own segments had no room for. */
static void definitions_end(const struct sl_event_process_end *end) {
  struct sl_undisturbed before;
  if (!sl_log_lock(&before))
    return;
  const uint64_t lost = atomic_exchange(&sl_the_log.definitions.lost, 0);
  if (lost) {
    const struct sl_event_gap gap = {sl_the_log.name_log, gap_reason(&sl_the_log.definitions), lost};
    sl_define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
  }
  if (end)
    sl_define_locked(SL_EVENT_process_end, end, sizeof(*end), NULL, 0);
  sl_the_log.state = OVER;
  sl_the_log.definitions.is_at_rest = true;
  sl_log_unlock(&before);
}

static void log_end(uint64_t until_ns) {
  struct sl_undisturbed before;
  sl_log_init();
  if (!sl_log_lock(&before))
    return;
  const bool first = sl_the_log.state == OPEN && !sl_the_log.ending &&
                     !(__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & (OFF_FORKED | OFF_ENDED));
  sl_the_log.ending = true;
  if (!first)
    sl_off_set(OFF_ENDED);
  sl_log_unlock(&before);
  if (!first)
    return;
  sl_the_log.helper_ended = sl_log_helper_stop(until_ns - FINISH_NS);
  const struct sl_event_process_end end = {sl_clock_ns(CLOCK_REALTIME)};
  /* Where it finds a mapped segment: a new one might be a stopgap, which has to be written yet. */
  const struct chain *chain = sl_chain_mine();
  const bool end_recorded = chain && sl_chain_room(chain) >= (intptr_t)(sizeof(end) + HEADER_BYTES + PRELUDE_BYTES) &&
                            sl_log_append(SL_EVENT_process_end, &end, sizeof(end), NULL, 0);
  chains_stop();
  definitions_end(end_recorded ? NULL : &end);
  if (!sl_pool_has_started() && !(__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & OFF_FAILED))
    sl_say("the file system of SHARDLEDGER_DIR=%s does not answer: there is no log", sl_option_text(SL_OPTION_dir));
  else
    sl_log_helper_finish(finish_files, until_ns);
}

void sl_log_end(unsigned deadline_ms) {
  int cancellation;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
  log_end(sl_clock_ns(CLOCK_MONOTONIC) + deadline_ms * UINT64_C(1000000));
  pthread_setcancelstate(cancellation, NULL);
}

static void at_exit(void) {
  sl_log_end(500);
}
