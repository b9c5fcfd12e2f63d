/*
 * Threads come, go and are forked at any moment, also inside of a signal handler. Each has a chain while it lives; the
 * next new thread goes on in it.
 */
#include "thread_state.h"

#include "log_directory.h"
#include "log_state.h"
#include "own_memory.h"
#include "plugin/process/config.h"
#include "plugin/process/undisturbed.h"
#include "segment_written.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREAD_BYTES (HEADER_BYTES + sizeof(struct sl_event_thread)) /* told where a thread goes on in a chain */

static struct sl_once init_once = SL_ONCE_INIT;

uint32_t sl_log_tid(void) {
  const struct chain *chain = sl_chain_mine();
  return chain && chain->thread_tid ? chain->thread_tid : (uint32_t)syscall(SYS_gettid);
}

/*
 * The thread ends: its chain is free for another. Losses that no gap record has told yet stay with it: its next owner,
 * or the end, tells them. Events that still follow are those of a new thread. One that was cancelled inside an append
 * has left a record half made: its segment is given up behind the last whole one.
 */
static void thread_leave(void *value) {
  struct chain *chain = sl_chain_of(value);
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  if (atomic_load_explicit(&chain->busy, memory_order_relaxed) && sl_own_process() && !sl_is_over()) {
    if (chain->segment) {
      chain->cursor = (char *)chain->segment->map + sl_written_committed(chain->segment);
      sl_chain_continue(chain, NULL, 0);
    }
    sl_chain_lose(chain, SL_EVENT_gap);
    atomic_store_explicit(&chain->busy, false, memory_order_release);
  }
  chain->is_left = false;
  sl_chain_give_up(chain);
  sl_undisturbed_end(&before);
}

void sl_threads_retire_left(void) {
  for (struct chain *chain = atomic_load(&sl_the_log.chains); chain; chain = chain->next) {
    if (!sl_chain_take(chain))
      continue;
    atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (chain->is_left && !sl_is_over())
      sl_chain_continue(chain, NULL, 0);
    chain->is_left = chain->segment != NULL;
    atomic_store_explicit(&chain->busy, false, memory_order_release);
    sl_chain_give_up(chain);
  }
}

/* Under the lock. */
static struct chain *chain_find(uint32_t ordinal) {
  for (struct chain *c = atomic_load_explicit(&sl_the_log.chains, memory_order_acquire); c; c = c->next)
    if (sl_chain_take(c))
      return c;
  struct chain *chain = sl_own_memory(sizeof(*chain));
  if (!chain)
    return NULL;
  chain->ordinal = ordinal;
  atomic_store_explicit(&chain->owned, true, memory_order_relaxed);
  chain->next = atomic_load_explicit(&sl_the_log.chains, memory_order_relaxed);
  atomic_store_explicit(&sl_the_log.chains, chain, memory_order_release);
  return chain;
}

/* The thread goes on in the segment of the one before it; without the room for saying so it begins one of its own. */
static void chain_enter(struct chain *chain) {
  atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  if (!sl_is_over() && sl_chain_room(chain) >= (intptr_t)(THREAD_BYTES + PRELUDE_BYTES))
    sl_chain_put_thread(chain, sl_clock_ns(CLOCK_REALTIME));
  atomic_store_explicit(&chain->busy, false, memory_order_release);
}

static struct chain *thread_enter_locked(void) {
  struct chain *chain = chain_find(sl_the_log.next_ordinal);
  if (!chain)
    return NULL;
  chain->thread = sl_the_log.next_ordinal++;
  chain->thread_tid = (uint32_t)syscall(SYS_gettid);
  chain->is_new = true;
  chain->state = (struct sl_thread){0};
  chain_enter(chain);
  if (pthread_setspecific(sl_thread_key, &chain->state) != 0) {
    sl_chain_give_up(chain);
    return NULL;
  }
  return chain;
}

struct chain *sl_thread_enter(void) {
  const int host_errno = errno; /* the host may be between a failed call and its question why */
  struct sl_undisturbed before;
  struct chain *chain = NULL;
  bool is_hopeless = false;
  sl_log_init();
  if (sl_log_lock(&before)) {
    chain = sl_chain_mine(); /* a handler that came in between may have made it */
    if (!chain)
      chain = thread_enter_locked();
    is_hopeless = !chain && sl_the_log.state == NOT_OPEN; /* later what is lost can be told in the log */
    sl_log_unlock(&before);
  }
  if (is_hopeless)
    sl_log_fail("cannot record to a log", -ENOMEM);
  errno = host_errno;
  return chain;
}

struct sl_thread *sl_thread_begin(void) {
  struct chain *chain = sl_thread_enter();
  return chain ? &chain->state : NULL;
}

/* ---- fork ---- */

/* Held across fork, so that the child finds definitions and names whole. */
static void before_fork(void) {
  struct sl_undisturbed before;
  if (!sl_log_lock(&before))
    return;
  sl_the_log.fork_locked = true;
  sl_the_log.before_fork = before;
  sl_the_log.forking = sl_chain_mine();
  if (sl_the_log.forking)
    sl_chain_copy(&sl_the_log.forking_was, sl_the_log.forking);
}

static void after_fork_in_parent(void) {
  const struct sl_undisturbed before = sl_the_log.before_fork;
  if (!sl_the_log.fork_locked)
    return;
  sl_the_log.fork_locked = false;
  sl_log_unlock(&before);
}

/*
 * Where a signal handler has forked inside an append, that goes on in the child: into memory that nobody reads, and its
 * thread goes on in another chain. NVTX wants to know its open ranges.
 */
static void child_enter_locked(void) {
  if (!sl_the_log.forking)
    return;
  if (sl_the_log.forking_was.busy && sl_the_log.forking_was.segment) {
    mmap(sl_the_log.forking_was.segment->map, SL_SEGMENT_BYTES, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    sl_chain_copy(sl_the_log.forking, &sl_the_log.forking_was);
  }
  struct chain *chain = thread_enter_locked();
  if (chain)
    chain->state = sl_the_log.forking_was.state;
}

/* The child has the parent's log, but not its segments (MADV_DONTFORK) nor its helper thread: it writes nothing. */
static void after_fork_in_child(void) {
  const struct sl_undisturbed before = sl_the_log.before_fork;
  if (!sl_the_log.fork_locked)
    return;
  sl_the_log.fork_locked = false;
  if (sl_the_log.state == NOT_OPEN)
    sl_own_process_set();
  else
    sl_off_set(OFF_FORKED);
  atomic_store(&sl_the_log.chains, NULL); /* zero by now, see own_memory.h */
  sl_the_log.next_ordinal = 1;
  pthread_setspecific(sl_thread_key, NULL);
  child_enter_locked();
  sl_the_log.start_ns = sl_clock_ns(CLOCK_REALTIME);
  sl_log_unlock(&before);
}

static void init(void) {
  sl_the_log.start_ns = sl_clock_ns(CLOCK_REALTIME);
  sl_log_directory_resolve(sl_option_text(SL_OPTION_dir));
  sl_own_process_set();
  pthread_key_create(&sl_thread_key, thread_leave);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void sl_log_init(void) {
  sl_once(&init_once, init);
}
