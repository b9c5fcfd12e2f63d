/*
 * The producers' side of the event log, and its beginning and end. One file above the usual size, because the state
 * of a thread, of the process and of the end belong together: each relies on what the others promise.
 */
#include "event_log.h"

#include "config.h"
#include "format/name.h"
#include "format/record_check.h"
#include "log_directory.h"
#include "log_helper.h"
#include "own_memory.h"
#include "pending_definitions.h"
#include "process_description.h"
#include "sealed_files.h"
#include "segment_pool.h"
#include "segment_written.h"
#include "string_table.h"
#include "thread_state.h"
#include "tsan_host.h"
#include "undisturbed.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define HEADER_BYTES sizeof(struct sl_record_header)
#define WORDS_MAX 255u
/* Room for what may have to go before an event: a time base and a gap. */
#define PRELUDE_BYTES (2 * HEADER_BYTES + sizeof(struct sl_event_time_base) + sizeof(struct sl_event_gap))
#define THREAD_BYTES (HEADER_BYTES + sizeof(struct sl_event_thread)) /* told where a thread goes on in a chain */
#define OPEN_WAIT_MS 500u      /* for the first files, once in a process; again while they come, but slowly, */
#define OPEN_WAITS 4u          /* so often. From then on events go to memory */
#define IDLE_WAIT_NS 50000000u /* for threads that are inside an append when the log ends */
#define FINISH_NS 100000000u   /* of the end's time, for the files */

/* Why nothing is taken; recording is on while no bit is set. */
enum { OFF_PAUSED = 1, OFF_FAILED = 2, OFF_ENDED = 4, OFF_FORKED = 8 };
#define OFF_FOR_GOOD (OFF_FAILED | OFF_ENDED | OFF_FORKED)

/*
 * A thread's place in the log. Made once, never freed: a late event may still look at it. When its thread ends, the
 * next new thread goes on in it, also in its segment: threads that live for a few events cost a few bytes each.
 */
struct chain {
  /*
   * Where the next record goes; both NULL without a segment. The helper thread may set `end` to NULL too: then the
   * thread looks for another segment at its next event.
   */
  char *cursor, *end;
  uint64_t base_ns; /* what delta_ns counts from */
  struct sl_segment *segment;
  uint32_t ordinal, sequence;  /* of its segments: the ordinal is that of its first thread */
  uint32_t thread, thread_tid; /* whose it is now, or was last */
  /*
   * Set while its thread writes. The thread sets it, then looks at `off`; sl_log_end sets `off`, makes every thread's
   * stores visible (membarrier), then waits for busy: so the thread needs no fence. It also turns away events from
   * a signal handler that interrupts an append. A handler that jumps out of one (longjmp) leaves it set: nothing tells
   * an append that will go on from one that won't, so what follows on that thread is counted as lost.
   */
  atomic_bool busy;
  atomic_bool owned;
  bool is_left;              /* it has a segment that no thread has gone on in since the last tick */
  bool is_new;               /* its thread has recorded nothing yet */
  bool is_at_rest;           /* at the end: nobody writes to it any more */
  atomic_uint_fast32_t lost; /* since the last gap record */
  struct chain *next;
  struct sl_thread state; /* its thread's */
};

/* OPENING: the helper thread makes the first files. */
enum state { NOT_OPEN, OPENING, OPEN, OVER };

unsigned sl_log_off;

static struct {
  atomic_bool exhausted; /* the size limit: segments run out and every event is lost, for good or until there is room */
  pthread_mutex_t lock;  /* definitions, names, opening and ending; held undisturbed, and never across a file's call */
  _Atomic enum state state;
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
} the = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_ordinal = 1};

pthread_key_t sl_thread_key = (pthread_key_t)-1; /* until it is made, no thread has anything */

static struct sl_once init_once = SL_ONCE_INIT;

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static unsigned off_set(unsigned bit) {
  return __atomic_fetch_or(&sl_log_off, bit, __ATOMIC_SEQ_CST);
}

static bool is_over(void) {
  return (__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & OFF_FOR_GOOD) != 0;
}

static inline struct chain *chain_of(struct sl_thread *thread) {
  return (struct chain *)((char *)thread - offsetof(struct chain, state));
}

static inline struct chain *mine(void) {
  struct sl_thread *thread = pthread_getspecific(sl_thread_key);
  return LIKELY(thread) ? chain_of(thread) : NULL;
}

uint32_t sl_log_tid(void) {
  const struct chain *chain = mine();
  return chain && chain->thread_tid ? chain->thread_tid : (uint32_t)syscall(SYS_gettid);
}

/* False in a child that this log is not of, also one that ran no handler of fork: there the lock may be held for ever.
 */
static bool lock(struct sl_undisturbed *before) {
  sl_log_init();
  sl_undisturbed_begin(before);
  if (!sl_own_process()) {
    off_set(OFF_FORKED);
    sl_undisturbed_end(before);
    return false;
  }
  pthread_mutex_lock(&the.lock);
  return true;
}

static void unlock(const struct sl_undisturbed *before) {
  pthread_mutex_unlock(&the.lock);
  sl_undisturbed_end(before);
}

/* ---- records ---- */

/* Writes one record at the cursor; the caller has made sure of the room. The commit word goes last. */
static inline void put(struct chain *chain, uint64_t now, enum sl_event_type type, const void *fields, size_t bytes,
                       const void *tail, size_t tail_bytes) {
  size_t payload = bytes + ((tail_bytes + 7) & ~(size_t)7);
  uint64_t words = (HEADER_BYTES + payload) / 8;
  char *at = chain->cursor;
  memcpy(at + HEADER_BYTES, fields, bytes);
  if (tail_bytes)
    memcpy(at + HEADER_BYTES + bytes, tail, tail_bytes); /* The padding is zero already: segments come zeroed. */
  uint64_t delta = now - chain->base_ns;
  uint64_t check = sl_record_check(type, words, delta, tail_bytes ? at + HEADER_BYTES : fields, payload);
  uint64_t commit = (uint64_t)type | words << 8 | check << 16 | delta << 32;
  chain->cursor = at + HEADER_BYTES + payload;
  __atomic_store_n((uint64_t *)(void *)at, commit, __ATOMIC_RELEASE);
}

/* As put, after a time base where the delta would not fit, also because the clock went back. */
static inline void put_timed(struct chain *chain, uint64_t now, enum sl_event_type type, const void *fields,
                             size_t bytes, const void *tail, size_t tail_bytes) {
  if (UNLIKELY(now - chain->base_ns > UINT32_MAX)) {
    const struct sl_event_time_base base = {now};
    chain->base_ns = now;
    put(chain, now, SL_EVENT_time_base, &base, sizeof(base), NULL, 0);
  }
  put(chain, now, type, fields, bytes, tail, tail_bytes);
}

static void put_gap(struct chain *chain, uint64_t now) {
  uint64_t lost = atomic_exchange_explicit(&chain->lost, 0, memory_order_relaxed);
  const struct sl_event_gap gap = {
      .source = the.name_log,
      .reason = atomic_load_explicit(&the.exhausted, memory_order_relaxed) ? the.name_limit : the.name_no_segment,
      .lost = lost};
  put_timed(chain, now, SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
}

/* Tells that the chain is another thread's than the one it is named after. There is room. */
static void put_thread(struct chain *chain, uint64_t now) {
  const struct sl_event_thread thread = {chain->thread, chain->thread_tid};
  put_timed(chain, now, SL_EVENT_thread, &thread, sizeof(thread), NULL, 0);
}

/* Bytes that the chain's segment has left; less than none when it is to go on in another. */
static inline intptr_t chain_room(const struct chain *chain) {
  return (intptr_t)((uintptr_t)__atomic_load_n(&chain->end, __ATOMIC_RELAXED) - (uintptr_t)chain->cursor);
}

static void chain_set_end(struct chain *chain, char *end) {
  __atomic_store_n(&chain->end, end, __ATOMIC_RELAXED);
}

/* Gives the chain its next segment. `segment` is taken over; NULL leaves it without one. */
static void chain_continue(struct chain *chain, struct sl_segment *segment, uint64_t now) {
  struct sl_segment *before = chain->segment;
  __atomic_store_n(&chain->segment, segment, __ATOMIC_RELEASE);
  if (before)
    sl_pool_retire(before, (uint32_t)(chain->cursor - (char *)before->map));
  chain->cursor = NULL;
  chain_set_end(chain, NULL);
  if (!segment)
    return;
  struct sl_segment_header *header = segment->map;
  header->thread = chain->ordinal;
  header->sequence = chain->sequence++;
  header->tid = chain->thread_tid;
  header->base_ns = now;
  uint64_t check = XXH3_64bits(header, offsetof(struct sl_segment_header, check));
  __atomic_store_n(&header->check, check, __ATOMIC_RELEASE);
  chain->base_ns = now;
  chain->cursor = (char *)(header + 1);
  chain_set_end(chain, (char *)header + SL_SEGMENT_BYTES);
  if (chain->thread != chain->ordinal)
    put_thread(chain, now);
}

static void log_open(void);

/* A stopgap that the helper thread wants given up does for a while longer. */
static bool chain_stays(struct chain *chain, intptr_t need) {
  struct sl_segment *segment = chain->segment;
  if (!segment || !segment->stopgap)
    return false;
  chain_set_end(chain, (char *)segment->map + SL_SEGMENT_BYTES);
  return chain_room(chain) >= need;
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
    off_set(OFF_FORKED);
  log_open();
  const bool is_off = is_over() || atomic_load_explicit(&the.exhausted, memory_order_relaxed);
  const bool is_early = !is_off && (chain->is_new || !sl_pool_has_supplied());
  const bool waits = is_early && sl_pool_has_started() && !the.ending;
  struct sl_segment *segment = is_over() ? NULL : waits ? sl_pool_take_waiting() : sl_pool_take();
  bool found = segment || (!is_over() && chain_stays(chain, need));
  if (!found && is_early)
    found = (segment = sl_pool_stopgap(false)) != NULL;
  chain->is_new = false;
  if (segment || !found)
    chain_continue(chain, segment, now);
  sl_undisturbed_end(&before);
  errno = host_errno;
  return found;
}

/* ---- threads ---- */

static bool append_lost(struct chain *chain, enum sl_event_type type) {
  if (type != SL_EVENT_allocator)
    atomic_fetch_add_explicit(&chain->lost, 1, memory_order_relaxed);
  return false;
}

static bool chain_take(struct chain *chain) {
  bool owned = false;
  if (!atomic_compare_exchange_strong_explicit(&chain->owned, &owned, true, memory_order_acquire, memory_order_relaxed))
    return false;
  sl_tsan_acquire(chain);
  return true;
}

static void chain_give_up(struct chain *chain) {
  sl_tsan_release(chain);
  atomic_store_explicit(&chain->owned, false, memory_order_release);
}

/*
 * The thread ends: its chain is free for another. Losses that no gap record has told yet stay with it: its next owner,
 * or the end, tells them. Events that still follow are those of a new thread. One that was cancelled inside an append
 * has left a record half made: its segment is given up behind the last whole one.
 */
static void thread_leave(void *value) {
  struct chain *chain = chain_of(value);
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  if (atomic_load_explicit(&chain->busy, memory_order_relaxed) && sl_own_process() && !is_over()) {
    if (chain->segment) {
      chain->cursor = (char *)chain->segment->map + sl_written_committed(chain->segment);
      chain_continue(chain, NULL, 0);
    }
    append_lost(chain, SL_EVENT_gap);
    atomic_store_explicit(&chain->busy, false, memory_order_release);
  }
  chain->is_left = false;
  chain_give_up(chain);
  sl_undisturbed_end(&before);
}

/* On the helper thread, every second: a segment that no thread went on in is sealed like a full one. */
static void retire_left_segments(void) {
  for (struct chain *chain = atomic_load(&the.chains); chain; chain = chain->next) {
    if (!chain_take(chain))
      continue;
    atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (chain->is_left && !is_over())
      chain_continue(chain, NULL, 0);
    chain->is_left = chain->segment != NULL;
    atomic_store_explicit(&chain->busy, false, memory_order_release);
    chain_give_up(chain);
  }
}

/* Under the lock. */
static struct chain *chain_find(uint32_t ordinal) {
  for (struct chain *c = atomic_load_explicit(&the.chains, memory_order_acquire); c; c = c->next)
    if (chain_take(c))
      return c;
  struct chain *chain = sl_own_memory(sizeof(*chain));
  if (!chain)
    return NULL;
  chain->ordinal = ordinal;
  atomic_store_explicit(&chain->owned, true, memory_order_relaxed);
  chain->next = atomic_load_explicit(&the.chains, memory_order_relaxed);
  atomic_store_explicit(&the.chains, chain, memory_order_release);
  return chain;
}

/* The thread goes on in the segment of the one before it; without the room for saying so it begins one of its own. */
static void chain_enter(struct chain *chain) {
  atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  if (!is_over() && chain_room(chain) >= (intptr_t)(THREAD_BYTES + PRELUDE_BYTES))
    put_thread(chain, clock_ns(CLOCK_REALTIME));
  atomic_store_explicit(&chain->busy, false, memory_order_release);
}

static struct chain *thread_enter_locked(void) {
  struct chain *chain = chain_find(the.next_ordinal);
  if (!chain)
    return NULL;
  chain->thread = the.next_ordinal++;
  chain->thread_tid = (uint32_t)syscall(SYS_gettid);
  chain->is_new = true;
  chain->state = (struct sl_thread){0};
  chain_enter(chain);
  if (pthread_setspecific(sl_thread_key, &chain->state) != 0) {
    chain_give_up(chain);
    return NULL;
  }
  return chain;
}

static void fail(const char *what, int error);

static __attribute__((noinline)) struct chain *thread_enter(void) {
  const int host_errno = errno; /* the host may be between a failed call and its question why */
  struct sl_undisturbed before;
  struct chain *chain = NULL;
  bool is_hopeless = false;
  if (lock(&before)) {
    chain = mine(); /* a handler that came in between may have made it */
    if (!chain)
      chain = thread_enter_locked();
    is_hopeless = !chain && the.state == NOT_OPEN; /* later what is lost can be told in the log */
    unlock(&before);
  }
  if (is_hopeless)
    fail("cannot record to a log", -ENOMEM);
  errno = host_errno;
  return chain;
}

struct sl_thread *sl_thread_begin(void) {
  struct chain *chain = thread_enter();
  return chain ? &chain->state : NULL;
}

/*
 * One body, compiled for events of any type and once more for those of the allocator, of which there are most: their
 * type and size are known then.
 */
static inline __attribute__((always_inline)) bool append(struct chain *chain, enum sl_event_type type,
                                                         const void *fields, size_t bytes, const void *tail,
                                                         size_t tail_bytes) {
  if (UNLIKELY(!chain) && (!sl_log_active() || !(chain = thread_enter())))
    return sl_log_active() && append_lost(&the.definitions, type);
  if (UNLIKELY(atomic_load_explicit(&chain->busy, memory_order_relaxed)))
    return append_lost(chain, type);
  atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  bool recorded = false;
  const size_t need = HEADER_BYTES + bytes + ((tail_bytes + 7) & ~(size_t)7);
  if (UNLIKELY(!sl_log_active()))
    goto finish;
  uint64_t now = clock_ns(CLOCK_REALTIME);
  if (UNLIKELY(chain_room(chain) < (intptr_t)(need + PRELUDE_BYTES)) &&
      (need > WORDS_MAX * 8 || !chain_next_segment(chain, now, (intptr_t)(need + PRELUDE_BYTES)))) {
    append_lost(chain, type);
    goto finish;
  }
  if (UNLIKELY(atomic_load_explicit(&chain->lost, memory_order_relaxed)))
    put_gap(chain, now);
  put_timed(chain, now, type, fields, bytes, tail, tail_bytes);
  recorded = true;

finish:
  atomic_store_explicit(&chain->busy, false, memory_order_release);
  return recorded;
}

bool sl_log_append(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes) {
  return append(mine(), type, fields, bytes, tail, tail_bytes);
}

bool sl_log_append_on(struct sl_thread *thread, enum sl_event_type type, const void *fields, size_t bytes) {
  return append(chain_of(thread), type, fields, bytes, NULL, 0);
}

/* Flat, since the checksum of a known size takes fewer instructions than the choice of how to make it. */
__attribute__((flatten)) bool sl_log_append_allocator(const struct sl_event_allocator *event) {
  return append(mine(), SL_EVENT_allocator, event, sizeof(*event), NULL, 0);
}

/* ---- definitions ---- */

/* All of these run under the lock. */

/* A lost definition would leave events without meaning, so a system call is the lesser evil. */
static struct sl_segment *segment_for_definitions(void) {
  struct sl_segment *segment = sl_pool_take();
  return segment ? segment : sl_pool_stopgap(true);
}

static void define_locked(enum sl_event_type type, const void *fields, size_t bytes, const void *tail,
                          size_t tail_bytes) {
  struct chain *chain = &the.definitions;
  if (the.state < OPEN && !sl_pending_add(type, fields, bytes, tail, tail_bytes))
    append_lost(chain, type);
  if (the.state != OPEN)
    return;
  size_t need = HEADER_BYTES + bytes + ((tail_bytes + 7) & ~(size_t)7);
  uint64_t now = clock_ns(CLOCK_REALTIME);
  if (chain_room(chain) < (intptr_t)(need + PRELUDE_BYTES)) {
    struct sl_segment *segment = need <= WORDS_MAX * 8 ? segment_for_definitions() : NULL;
    if (!segment) {
      append_lost(chain, type);
      return;
    }
    chain_continue(chain, segment, now);
  }
  put_timed(chain, now, type, fields, bytes, tail, tail_bytes);
}

static uint32_t name_locked(const char *text, size_t length) {
  uint32_t id = sl_names_find(text, length);
  if (id)
    return id;
  id = sl_names_next();
  if (!id)
    return 0;
  /* Defined before it is published: no event can refer to an id that a kill could keep from the log. */
  const struct sl_event_string string = {id, (uint32_t)length};
  define_locked(SL_EVENT_string, &string, sizeof(string), text, length);
  id = sl_names_add(text, length);
  if (!id) /* memory is short: what it names is without a name, and that is told */
    append_lost(&the.definitions, SL_EVENT_string);
  return id;
}

void sl_log_define(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes) {
  struct sl_undisturbed before;
  const int host_errno = errno;
  if (is_over() || !lock(&before))
    return;
  define_locked(type, fields, bytes, tail, tail_bytes);
  unlock(&before);
  errno = host_errno;
}

uint32_t sl_log_name_n(const char *text, size_t length) {
  if (!text || length == 0)
    return 0;
  length = sl_name_clip(text, length);
  uint32_t id = sl_names_find(text, length);
  struct sl_undisturbed before;
  if (LIKELY(id))
    return id;
  const int host_errno = errno;
  if (is_over() || !lock(&before))
    return 0;
  length = sl_name_clean(text, length, the.clean);
  id = name_locked(the.clean, length);
  unlock(&before);
  errno = host_errno;
  return id;
}

uint32_t sl_log_name(const char *text) {
  return text ? sl_log_name_n(text, strnlen(text, SL_NAME_MAX + 1)) : 0;
}

void sl_log_gap(const char *source, const char *reason, uint64_t lost) {
  const struct sl_event_gap gap = {sl_log_name(source), sl_log_name(reason), lost};
  sl_log_append(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
}

/* ---- beginning ---- */

static void info_locked(const char *key, const char *value) {
  if (!value || !*value)
    return;
  size_t length = sl_name_clean(value, sl_name_clip(value, strnlen(value, SL_NAME_MAX + 1)), the.clean);
  const struct sl_event_info info = {name_locked(key, strlen(key)), name_locked(the.clean, length)};
  define_locked(SL_EVENT_info, &info, sizeof(info), NULL, 0);
}

/* Recording ends for good, in words for the user; what is in the log already stays. Called once, without the lock. */
static void fail(const char *what, int error) {
  unsigned before = off_set(OFF_FAILED);
  if (before & OFF_FOR_GOOD)
    return;
  if (error == -E2BIG)
    sl_say("%s: SHARDLEDGER_MAX_BYTES is too small, it takes %u KiB at least; recording is off, training goes on", what,
           SL_POOL_BYTES_MIN >> 10);
  else if (error == -ENOSPC || error == -EDQUOT)
    sl_say("%s: %s; recording is off, training goes on. Free some space or set SHARDLEDGER_DIR to another file system",
           what, strerror(-error));
  else
    sl_say("%s: %s; recording is off, training goes on. Set SHARDLEDGER_DIR to a directory of yours on a local disk",
           what, error == -EPERM ? "its directory is another user's, or everybody may write to it" : strerror(-error));
}

/* The same, written into the room that the definitions chain still has. */
static void fail_open_log(const char *what, int error) {
  char reason[200];
  struct sl_undisturbed before;
  snprintf(reason, sizeof(reason), "%s: %s", what, strerror(-error));
  if (lock(&before)) {
    const struct sl_event_gap gap = {the.name_log, name_locked(reason, strlen(reason)), 0};
    define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
    unlock(&before);
  }
  fail(what, error);
}

static void reach_limit(void) {
  static bool said;
  struct sl_undisturbed before;
  if (atomic_exchange(&the.exhausted, true))
    return;
  if (sl_pool_may_get_room()) {
    if (!said)
      sl_say("the log in %s has reached SHARDLEDGER_MAX_BYTES before 'shardledger trim' has dropped older steps of it; "
             "what follows is counted, not recorded, until there is room",
             the.directory);
    said = true;
    return;
  }
  if (!lock(&before))
    return;
  const struct sl_event_gap gap = {the.name_log, the.name_limit, 0};
  define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
  unlock(&before);
  sl_say("the log in %s has reached SHARDLEDGER_MAX_BYTES; what follows is counted, not recorded", the.directory);
}

/*
 * Where files are mapped only they survive a kill, so nobody is to stay in a stopgap: each thread takes another segment
 * at its next event.
 */
static void leave_stopgaps(void) {
  struct sl_undisturbed before;
  if (!lock(&before))
    return;
  struct sl_segment *segment = the.definitions.segment && the.definitions.segment->stopgap ? sl_pool_take() : NULL;
  if (segment)
    chain_continue(&the.definitions, segment, clock_ns(CLOCK_REALTIME));
  unlock(&before);
  for (struct chain *chain = atomic_load(&the.chains); chain; chain = chain->next) {
    const struct sl_segment *current = __atomic_load_n(&chain->segment, __ATOMIC_ACQUIRE);
    if (current && current->stopgap)
      chain_set_end(chain, NULL);
  }
}

/* The log could not begin: its first files are taken back. */
static void give_up_files(void) {
  if (!atomic_exchange(&the.is_given_up, false))
    return;
  sl_pool_end();
  rmdir(the.directory);
}

/* The helper thread's supply and sealing, and what to do when it fails. */
static bool helper_work(void) {
  const bool exhausted = atomic_load_explicit(&the.exhausted, memory_order_relaxed);
  if (is_over() || (exhausted && !sl_pool_may_get_room())) {
    give_up_files();
    return false;
  }
  if (sl_pool_has_new_stopgaps())
    leave_stopgaps();
  int r = sl_pool_work();
  if (r == -E2BIG)
    reach_limit();
  else if (r == 0 && exhausted) /* there was room: segments are ready again */
    atomic_store(&the.exhausted, false);
  else if (r < 0 && !sl_pool_is_short(r)) /* else events are lost, and counted, until there is something again */
    fail_open_log("cannot extend the log", r);
  return r > 0;
}

static void write_what_is_in_memory(void) {
  int r = is_over() ? 0 : sl_pool_write();
  if (r < 0 && !sl_pool_is_short(r))
    fail_open_log("cannot write the log", r);
}

static void at_exit(void) {
  sl_log_end(500);
}

/* On the helper thread, which may take as long as the file system does. */
static int open_files(void) {
  int r = sl_log_directory_make(sl_option_text(SL_OPTION_dir), the.directory, sizeof(the.directory));
  if (r == 0 && (r = sl_pool_start(the.directory)) < 0) {
    sl_pool_end();
    rmdir(the.directory); /* Fails, and rightly, when something is in it. */
  }
  if (r < 0)
    fail("cannot record to a log", r);
  else
    atomic_store_explicit(&the.has_directory, true, memory_order_release);
  return r;
}

/* The helper thread has begun, and its files are there or late: then the first segments are stopgaps. */
static void open_locked(void) {
  struct sl_segment *segment = segment_for_definitions();
  if (!segment) {
    the.state = OVER;
    atomic_store(&the.is_given_up, true);
    fail("cannot record to a log", -ENOMEM);
    sl_log_helper_wake();
    return;
  }
  the.state = OPEN;
  chain_continue(&the.definitions, segment, clock_ns(CLOCK_REALTIME));
  sl_pending_replay(define_locked);
  the.name_log = name_locked("log", 3);
  the.name_no_segment = name_locked("no segment was ready", 20);
  the.name_limit = name_locked("SHARDLEDGER_MAX_BYTES reached", 29);
  sl_process_describe(the.start_ns, sl_sealed_keep_last_bytes(), info_locked);
  the.have_barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  atexit(at_exit);
  sl_log_on_tick(retire_left_segments);
  sl_log_on_tick(write_what_is_in_memory);
}

static void start_locked(void) {
  sl_pool_begin(sl_option_max_bytes(), sl_log_helper_wake, sl_log_helper_is_starved);
  int r = sl_log_helper_start(open_files, helper_work);
  the.state = r < 0 ? OVER : OPENING;
  if (r < 0)
    fail("cannot record to a log", r);
}

/* Only files survive a kill, so the first event waits for them, but not for a file system that does not answer. */
static void wait_for_files(void) {
  for (unsigned i = 0; i < OPEN_WAITS; i++) {
    const unsigned made = sl_pool_made();
    if (sl_log_helper_wait_for_open(OPEN_WAIT_MS) || sl_pool_made() == made)
      return;
  }
}

/* The first event of the process. */
static void log_open(void) {
  struct sl_undisturbed before;
  if (the.state >= OPEN || !lock(&before))
    return;
  if (the.state == NOT_OPEN && !is_over())
    start_locked();
  unlock(&before);
  if (the.state == OPENING)
    wait_for_files();
  if (!lock(&before))
    return;
  if (the.state == OPENING && !is_over())
    open_locked();
  unlock(&before);
}

/* Of the calling thread's own: the helper thread looks at some of it, and may end the segment. */
static void chain_copy(struct chain *to, struct chain *from) {
  to->cursor = from->cursor;
  chain_set_end(to, __atomic_load_n(&from->end, __ATOMIC_RELAXED));
  to->base_ns = from->base_ns;
  to->segment = from->segment;
  to->ordinal = from->ordinal;
  to->sequence = from->sequence;
  to->thread = from->thread;
  to->thread_tid = from->thread_tid;
  atomic_store_explicit(&to->busy, atomic_load_explicit(&from->busy, memory_order_relaxed), memory_order_relaxed);
  atomic_store_explicit(&to->owned, true, memory_order_relaxed);
  to->state = from->state;
}

/* Held across fork, so that the child finds definitions and names whole. */
static void before_fork(void) {
  struct sl_undisturbed before;
  if (!lock(&before))
    return;
  the.fork_locked = true;
  the.before_fork = before;
  the.forking = mine();
  if (the.forking)
    chain_copy(&the.forking_was, the.forking);
}

static void after_fork_in_parent(void) {
  const struct sl_undisturbed before = the.before_fork;
  if (!the.fork_locked)
    return;
  the.fork_locked = false;
  unlock(&before);
}

/*
 * Where a signal handler has forked inside an append, that goes on in the child: into memory that nobody reads, and its
 * thread goes on in another chain. NVTX wants to know its open ranges.
 */
static void child_enter_locked(void) {
  if (!the.forking)
    return;
  if (the.forking_was.busy && the.forking_was.segment) {
    mmap(the.forking_was.segment->map, SL_SEGMENT_BYTES, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    chain_copy(the.forking, &the.forking_was);
  }
  struct chain *chain = thread_enter_locked();
  if (chain)
    chain->state = the.forking_was.state;
}

/* The child has the parent's log, but not its segments (MADV_DONTFORK) nor its helper thread: it writes nothing. */
static void after_fork_in_child(void) {
  const struct sl_undisturbed before = the.before_fork;
  if (!the.fork_locked)
    return;
  the.fork_locked = false;
  if (the.state == NOT_OPEN)
    sl_own_process_set();
  else
    off_set(OFF_FORKED);
  atomic_store(&the.chains, NULL); /* zero by now, see own_memory.h */
  the.next_ordinal = 1;
  pthread_setspecific(sl_thread_key, NULL);
  child_enter_locked();
  the.start_ns = clock_ns(CLOCK_REALTIME);
  unlock(&before);
}

static void init(void) {
  the.start_ns = clock_ns(CLOCK_REALTIME);
  sl_log_directory_resolve(sl_option_text(SL_OPTION_dir));
  sl_own_process_set();
  pthread_key_create(&sl_thread_key, thread_leave);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void sl_log_init(void) {
  sl_once(&init_once, init);
}

const char *sl_log_directory(void) {
  return atomic_load_explicit(&the.has_directory, memory_order_acquire) ? the.directory : "";
}

void sl_log_pause(bool paused) {
  if (paused == ((__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & OFF_PAUSED) != 0))
    return;
  if (!paused)
    __atomic_fetch_and(&sl_log_off, ~(unsigned)OFF_PAUSED, __ATOMIC_SEQ_CST);
  if (the.state == OPEN)
    sl_log_gap("log", paused ? "paused" : "resumed", 0);
  if (paused)
    off_set(OFF_PAUSED);
}

/* ---- end ---- */

/*
 * Waits until the chain's thread is outside sl_log_append, where it will not write again. False when it takes too long
 * (a thread stopped by a debugger), or when the kernel has no membarrier: then its file keeps its full size.
 */
static bool chain_is_idle(const struct chain *chain, uint64_t until_ns) {
  if (!the.have_barrier && chain != mine())
    return false;
  while (atomic_load_explicit(&chain->busy, memory_order_acquire)) {
    if (clock_ns(CLOCK_MONOTONIC) > until_ns)
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
  for (const struct chain *chain = atomic_load(&the.chains); chain; chain = chain->next)
    chain_truncate(chain);
  chain_truncate(&the.definitions);
  if (the.helper_ended)
    sl_pool_end();
}

/* Brings all threads to rest. Returns how many events they have lost and not told. */
static uint64_t chains_stop(void) {
  uint64_t lost = 0;
  off_set(OFF_ENDED);
  if (the.have_barrier)
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  const uint64_t until = clock_ns(CLOCK_MONOTONIC) + IDLE_WAIT_NS;
  for (struct chain *chain = atomic_load(&the.chains); chain; chain = chain->next) {
    chain->is_at_rest = chain_is_idle(chain, until);
    lost += atomic_exchange(&chain->lost, 0);
  }
  return lost;
}

/* Into the definitions chain goes what the threads' own segments had no room for. */
static void definitions_end(uint64_t lost, const struct sl_event_process_end *end) {
  struct sl_undisturbed before;
  if (!lock(&before))
    return;
  lost += atomic_exchange(&the.definitions.lost, 0);
  if (lost) {
    const struct sl_event_gap gap = {the.name_log, the.exhausted ? the.name_limit : the.name_no_segment, lost};
    define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
  }
  if (end)
    define_locked(SL_EVENT_process_end, end, sizeof(*end), NULL, 0);
  the.state = OVER;
  the.definitions.is_at_rest = true;
  unlock(&before);
}

static void log_end(uint64_t until_ns) {
  struct sl_undisturbed before;
  if (!lock(&before))
    return;
  const bool first =
      the.state == OPEN && !the.ending && !(__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & (OFF_FORKED | OFF_ENDED));
  the.ending = true;
  if (!first)
    off_set(OFF_ENDED);
  unlock(&before);
  if (!first)
    return;
  the.helper_ended = sl_log_helper_stop(until_ns - FINISH_NS);
  const struct sl_event_process_end end = {clock_ns(CLOCK_REALTIME)};
  /* Where it finds a mapped segment: a new one might be a stopgap, which has to be written yet. */
  const struct chain *chain = mine();
  const bool end_recorded = chain && chain_room(chain) >= (intptr_t)(sizeof(end) + HEADER_BYTES + PRELUDE_BYTES) &&
                            sl_log_append(SL_EVENT_process_end, &end, sizeof(end), NULL, 0);
  const uint64_t lost = chains_stop();
  definitions_end(lost, end_recorded ? NULL : &end);
  if (!sl_pool_has_started() && !(__atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) & OFF_FAILED))
    sl_say("the file system of SHARDLEDGER_DIR=%s does not answer: there is no log", sl_option_text(SL_OPTION_dir));
  else
    sl_log_helper_finish(finish_files, until_ns);
}

void sl_log_end(unsigned deadline_ms) {
  int cancellation;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
  log_end(clock_ns(CLOCK_MONOTONIC) + deadline_ms * UINT64_C(1000000));
  pthread_setcancelstate(cancellation, NULL);
}
