/*
 * The producers' side of the event log, and its beginning and end. One file above the usual size, because the state
 * of a thread, of the process and of the end belong together: each relies on what the others promise.
 */
#include "event_log.h"

#include "config.h"
#include "log_directory.h"
#include "log_helper.h"
#include "name.h"
#include "segment_pool.h"
#include "string_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
#define PENDING_MAX (16u * 1024 * 1024)
#define IDLE_WAIT_NS 50000000u /* for threads that are inside an append when the log ends */

/* Why nothing is taken; recording is on while no bit is set. */
enum { OFF_PAUSED = 1, OFF_FAILED = 2, OFF_ENDED = 4, OFF_FORKED = 8 };
#define OFF_FOR_GOOD (OFF_FAILED | OFF_ENDED | OFF_FORKED)

/*
 * A thread's place in the log. Made once, never freed: a late event may still look at it. When its thread ends, the
 * next new thread goes on in it, also in its segment: threads that live for a few events cost a few bytes each.
 */
struct chain {
  char *cursor, *end; /* where the next record goes; both NULL without a segment */
  uint64_t base_ns;   /* what delta_ns counts from */
  struct sl_segment *segment;
  uint32_t ordinal, sequence;  /* of its segments: the ordinal is that of its first thread */
  uint32_t thread, thread_tid; /* whose it is now, or was last */
  /*
   * Set while its thread writes. The thread sets it, then looks at `off`; sl_log_end sets `off`, makes every thread's
   * stores visible (membarrier), then waits for busy: so the thread needs no fence. It also turns away events from
   * a signal handler that interrupts an append.
   */
  atomic_bool busy;
  atomic_bool owned;
  bool is_left;              /* it has a segment that no thread has gone on in since the last tick */
  bool is_new;               /* its thread has recorded nothing yet */
  atomic_uint_fast32_t lost; /* since the last gap record */
  struct chain *next;
};

enum state { NOT_OPEN, OPEN, OVER };

static struct {
  atomic_uint off;
  atomic_bool exhausted; /* the size limit: segments run out, then every event is lost */
  pthread_mutex_t lock;  /* definitions, names, opening and ending */
  _Atomic enum state state;
  struct chain definitions; /* ordinal 0 */
  struct chain *_Atomic chains;
  atomic_uint next_ordinal;
  pthread_key_t key;
  bool have_barrier, ending;
  char directory[4096];
  uint64_t start_ns;
  uint32_t name_log, name_no_segment, name_limit; /* what gap records need, where nothing can be looked up */

  char *pending; /* definitions from before the log opened: struct pending, then its bytes */
  size_t pending_bytes, pending_size;
} the = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_ordinal = 1};

struct pending {
  uint32_t type, bytes, tail_bytes;
};

/*
 * The default model of thread-local storage, not initial-exec: that saves half a nanosecond, but a library that is
 * loaded late then needs room in glibc's small reserve of static storage, and does not load where others took it.
 */
static __thread struct chain *mine;
static __thread uint32_t my_tid;

static pthread_once_t init_once = PTHREAD_ONCE_INIT;

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool sl_log_active(void) {
  return atomic_load_explicit(&the.off, memory_order_relaxed) == 0;
}

static bool is_over(void) {
  return (atomic_load_explicit(&the.off, memory_order_relaxed) & OFF_FOR_GOOD) != 0;
}

uint32_t sl_log_tid(void) {
  if (UNLIKELY(my_tid == 0))
    my_tid = (uint32_t)syscall(SYS_gettid);
  return my_tid;
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
  uint64_t seed = (uint64_t)type | words << 8 | delta << 16;
  uint64_t check = XXH3_64bits_withSeed(tail_bytes ? at + HEADER_BYTES : fields, payload, seed) & 0xffff;
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

/* Gives the chain its next segment. `segment` is taken over; NULL leaves it without one. */
static void chain_continue(struct chain *chain, struct sl_segment *segment, uint64_t now) {
  if (chain->segment)
    sl_pool_retire(chain->segment, (uint32_t)(chain->cursor - (char *)chain->segment->map));
  chain->segment = segment;
  chain->cursor = chain->end = NULL;
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
  chain->end = (char *)header + SL_SEGMENT_BYTES;
  if (chain->thread != chain->ordinal)
    put_thread(chain, now);
}

/*
 * A thread's first event may cost about what starting the thread did, rather than be lost: where no segment is ready
 * one is made on the spot. A burst of threads that live for a few events needs that; what goes on like that is lost in
 * part.
 */
static __attribute__((noinline)) bool chain_next_segment(struct chain *chain, uint64_t now) {
  const int host_errno = errno;
  struct sl_segment *segment = sl_pool_take();
  if (!segment && chain->is_new && !sl_pool_is_behind() && !atomic_load_explicit(&the.exhausted, memory_order_relaxed))
    sl_pool_make(&segment); /* Leaves NULL when it fails; the helper thread meets the same failure, and tells it. */
  chain->is_new = false;
  chain_continue(chain, segment, now);
  errno = host_errno;
  return chain->segment != NULL;
}

/* ---- threads ---- */

/*
 * The thread ends: its chain is free for another. Losses that no gap record has told yet stay with it: its next owner,
 * or the end, tells them. Events that still follow are those of a new thread.
 */
static void thread_leave(void *value) {
  struct chain *chain = value;
  mine = NULL;
  chain->is_left = false;
  atomic_store_explicit(&chain->owned, false, memory_order_release);
}

static bool chain_take(struct chain *chain) {
  bool owned = false;
  return atomic_compare_exchange_strong_explicit(&chain->owned, &owned, true, memory_order_acquire,
                                                 memory_order_relaxed);
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
    atomic_store_explicit(&chain->owned, false, memory_order_release);
  }
}

static struct chain *chain_find(uint32_t ordinal) {
  for (struct chain *c = atomic_load_explicit(&the.chains, memory_order_acquire); c; c = c->next)
    if (chain_take(c))
      return c;
  struct chain *chain = calloc(1, sizeof(*chain));
  if (!chain)
    return NULL;
  chain->ordinal = ordinal;
  atomic_store_explicit(&chain->owned, true, memory_order_relaxed);
  chain->next = atomic_load_explicit(&the.chains, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&the.chains, &chain->next, chain, memory_order_release,
                                                memory_order_relaxed))
    ;
  return chain;
}

/* The thread goes on in the segment of the one before it; without the room for saying so it begins one of its own. */
static void chain_enter(struct chain *chain) {
  atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  if (!is_over() && (size_t)(chain->end - chain->cursor) >= THREAD_BYTES + PRELUDE_BYTES)
    put_thread(chain, clock_ns(CLOCK_REALTIME));
  atomic_store_explicit(&chain->busy, false, memory_order_release);
}

static void log_open(void);

static __attribute__((noinline)) struct chain *thread_enter(void) {
  const int host_errno = errno; /* the host may be between a failed call and its question why */
  log_open();
  const uint32_t ordinal = atomic_fetch_add_explicit(&the.next_ordinal, 1, memory_order_relaxed);
  struct chain *chain = is_over() ? NULL : chain_find(ordinal);
  errno = host_errno;
  if (!chain)
    return NULL;
  chain->thread = ordinal;
  chain->thread_tid = sl_log_tid();
  chain->is_new = true;
  chain_enter(chain);
  mine = chain;
  pthread_setspecific(the.key, chain);
  return chain;
}

static bool append_lost(struct chain *chain, enum sl_event_type type) {
  if (type != SL_EVENT_allocator)
    atomic_fetch_add_explicit(&chain->lost, 1, memory_order_relaxed);
  return false;
}

/*
 * One body, compiled for events of any type and once more for those of the allocator, of which there are most: their
 * type and size are known then.
 */
static inline __attribute__((always_inline)) bool append(enum sl_event_type type, const void *fields, size_t bytes,
                                                         const void *tail, size_t tail_bytes) {
  if (UNLIKELY(!sl_log_active()))
    return false;
  struct chain *chain = mine;
  if (UNLIKELY(!chain) && !(chain = thread_enter()))
    return false;
  if (UNLIKELY(atomic_load_explicit(&chain->busy, memory_order_relaxed)))
    return append_lost(chain, type);
  atomic_store_explicit(&chain->busy, true, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  bool recorded = false;
  const size_t need = HEADER_BYTES + bytes + ((tail_bytes + 7) & ~(size_t)7);
  if (UNLIKELY(!sl_log_active()))
    goto finish;
  uint64_t now = clock_ns(CLOCK_REALTIME);
  if (UNLIKELY((size_t)(chain->end - chain->cursor) < need + PRELUDE_BYTES) &&
      (need > WORDS_MAX * 8 || !chain_next_segment(chain, now))) {
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
  return append(type, fields, bytes, tail, tail_bytes);
}

bool sl_log_append_allocator(const struct sl_event_allocator *event) {
  return append(SL_EVENT_allocator, event, sizeof(*event), NULL, 0);
}

/* ---- definitions ---- */

/* All of these run under the lock. */

static void pending_add(enum sl_event_type type, const void *fields, size_t bytes, const void *tail,
                        size_t tail_bytes) {
  const struct pending entry = {type, (uint32_t)bytes, (uint32_t)tail_bytes};
  size_t need = the.pending_bytes + sizeof(entry) + bytes + tail_bytes;
  if (need > the.pending_size) {
    size_t size = need * 2 < 4096 ? 4096 : need * 2;
    char *larger = size <= PENDING_MAX ? realloc(the.pending, size) : NULL;
    if (!larger) {
      atomic_fetch_add_explicit(&the.definitions.lost, 1, memory_order_relaxed);
      return;
    }
    the.pending = larger;
    the.pending_size = size;
  }
  char *at = the.pending + the.pending_bytes;
  memcpy(at, &entry, sizeof(entry));
  memcpy(at + sizeof(entry), fields, bytes);
  if (tail_bytes)
    memcpy(at + sizeof(entry) + bytes, tail, tail_bytes);
  the.pending_bytes = need;
}

static void define_locked(enum sl_event_type type, const void *fields, size_t bytes, const void *tail,
                          size_t tail_bytes) {
  struct chain *chain = &the.definitions;
  if (the.state == NOT_OPEN)
    pending_add(type, fields, bytes, tail, tail_bytes);
  if (the.state != OPEN)
    return;
  size_t need = HEADER_BYTES + bytes + ((tail_bytes + 7) & ~(size_t)7);
  uint64_t now = clock_ns(CLOCK_REALTIME);
  if ((size_t)(chain->end - chain->cursor) < need + PRELUDE_BYTES) {
    /* A lost definition would leave events without meaning, so here a system call is the lesser evil. */
    struct sl_segment *segment = need <= WORDS_MAX * 8 ? sl_pool_take() : NULL;
    if (need > WORDS_MAX * 8 || (!segment && sl_pool_make(&segment) < 0)) {
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
  return sl_names_add(text, length);
}

void sl_log_define(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes) {
  if (is_over())
    return;
  const int host_errno = errno;
  pthread_mutex_lock(&the.lock);
  define_locked(type, fields, bytes, tail, tail_bytes);
  pthread_mutex_unlock(&the.lock);
  errno = host_errno;
}

uint32_t sl_log_name_n(const char *text, size_t length) {
  if (!text || length == 0)
    return 0;
  length = sl_name_clip(text, length);
  uint32_t id = sl_names_find(text, length);
  if (LIKELY(id) || is_over())
    return id;
  const int host_errno = errno;
  char clean[SL_NAME_MAX];
  length = sl_name_clean(text, length, clean);
  pthread_mutex_lock(&the.lock);
  id = name_locked(clean, length);
  pthread_mutex_unlock(&the.lock);
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
  char clean[SL_NAME_MAX];
  if (!value || !*value)
    return;
  size_t length = sl_name_clean(value, sl_name_clip(value, strnlen(value, SL_NAME_MAX + 1)), clean);
  const struct sl_event_info info = {name_locked(key, strlen(key)), name_locked(clean, length)};
  define_locked(SL_EVENT_info, &info, sizeof(info), NULL, 0);
}

static void info_number_locked(const char *key, uint64_t number) {
  char text[24];
  snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
  info_locked(key, text);
}

static void describe_process_locked(void) {
  static const struct {
    const char *key;
    const char *variables[3]; /* the first one that is set counts: torchrun, Slurm, Open MPI */
  } infos[] = {
      {"rank", {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}},
      {"world_size", {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"}},
      {"local_rank", {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}},
      {"allocator_config", {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", NULL}},
  };
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  info_locked("host", host);
  info_number_locked("pid", (uint64_t)getpid());
  info_number_locked("ppid", (uint64_t)getppid());
  info_number_locked("start_ns", the.start_ns);
  info_locked("shardledger_version", SL_VERSION);
  for (size_t i = 0; i < sizeof(infos) / sizeof(infos[0]); i++) {
    const char *value = NULL;
    for (int v = 0; v < 3 && !(value && *value); v++)
      value = infos[i].variables[v] ? secure_getenv(infos[i].variables[v]) : NULL;
    info_locked(infos[i].key, value);
  }
}

static void replay_pending_locked(void) {
  for (size_t at = 0; at < the.pending_bytes;) {
    struct pending entry;
    memcpy(&entry, the.pending + at, sizeof(entry));
    const char *fields = the.pending + at + sizeof(entry);
    define_locked(entry.type, fields, entry.bytes, fields + entry.bytes, entry.tail_bytes);
    at += sizeof(entry) + entry.bytes + entry.tail_bytes;
  }
  free(the.pending);
  the.pending = NULL;
  the.pending_bytes = the.pending_size = 0;
}

/* Recording ends for good, in words for the user; what is in the log already stays. Called once, without the lock. */
static void fail(const char *what, int error) {
  unsigned before = atomic_fetch_or(&the.off, OFF_FAILED);
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
  snprintf(reason, sizeof(reason), "%s: %s", what, strerror(-error));
  pthread_mutex_lock(&the.lock);
  const struct sl_event_gap gap = {the.name_log, name_locked(reason, strlen(reason)), 0};
  define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
  pthread_mutex_unlock(&the.lock);
  fail(what, error);
}

static void reach_limit(void) {
  if (atomic_exchange(&the.exhausted, true))
    return;
  pthread_mutex_lock(&the.lock);
  const struct sl_event_gap gap = {the.name_log, the.name_limit, 0};
  define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
  pthread_mutex_unlock(&the.lock);
  sl_say("the log in %s has reached SHARDLEDGER_MAX_BYTES; what follows is counted, not recorded", the.directory);
}

/* The helper thread's supply and sealing, and what to do when it fails. */
static bool helper_work(void) {
  int r = is_over() || atomic_load_explicit(&the.exhausted, memory_order_relaxed) ? 0 : sl_pool_work();
  if (r == -E2BIG)
    reach_limit();
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

static int open_locked(void) {
  uint64_t process_key;
  int r = sl_log_directory_make(sl_option_text(SL_OPTION_dir), the.directory, sizeof(the.directory), &process_key);
  if (r == 0)
    r = sl_pool_start(the.directory, process_key, sl_option_max_bytes(), sl_log_helper_wake);
  if (r == 0)
    r = -pthread_key_create(&the.key, thread_leave);
  if (r < 0) {
    sl_pool_end();
    rmdir(the.directory); /* Fails, and rightly, when something is in it. */
    the.directory[0] = '\0';
    return r;
  }
  the.state = OPEN;
  chain_continue(&the.definitions, sl_pool_take(), clock_ns(CLOCK_REALTIME));
  replay_pending_locked();
  the.name_log = name_locked("log", 3);
  the.name_no_segment = name_locked("no segment was ready", 20);
  the.name_limit = name_locked("SHARDLEDGER_MAX_BYTES reached", 29);
  describe_process_locked();
  the.have_barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  atexit(at_exit);
  sl_log_on_tick(retire_left_segments);
  sl_log_on_tick(write_what_is_in_memory);
  return sl_log_helper_start(helper_work);
}

static void log_open(void) {
  sl_log_init();
  pthread_mutex_lock(&the.lock);
  if (the.state == NOT_OPEN && !is_over()) {
    int r = open_locked();
    if (r < 0) {
      if (the.state == NOT_OPEN)
        the.state = OVER;
      fail("cannot record to a log", r);
    }
  }
  pthread_mutex_unlock(&the.lock);
}

/* Held across fork, so that the child finds definitions and names whole. */
static void before_fork(void) {
  pthread_mutex_lock(&the.lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&the.lock);
}

/* The child has the parent's log, but not its segments (MADV_DONTFORK) nor its helper thread: it writes nothing. */
static void after_fork_in_child(void) {
  if (the.state == OPEN)
    atomic_fetch_or(&the.off, OFF_FORKED);
  mine = NULL;
  my_tid = 0;
  the.start_ns = clock_ns(CLOCK_REALTIME);
  pthread_mutex_unlock(&the.lock);
}

static void init(void) {
  the.start_ns = clock_ns(CLOCK_REALTIME);
  sl_log_directory_resolve(sl_option_text(SL_OPTION_dir));
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void sl_log_init(void) {
  pthread_once(&init_once, init);
}

const char *sl_log_directory(void) {
  return the.state == NOT_OPEN ? "" : the.directory;
}

void sl_log_pause(bool paused) {
  if (paused == ((atomic_load(&the.off) & OFF_PAUSED) != 0))
    return;
  if (!paused)
    atomic_fetch_and(&the.off, ~(unsigned)OFF_PAUSED);
  if (the.state == OPEN)
    sl_log_gap("log", paused ? "paused" : "resumed", 0);
  if (paused)
    atomic_fetch_or(&the.off, OFF_PAUSED);
}

/* ---- end ---- */

/*
 * Waits until the chain's thread is outside sl_log_append, where it will not write again. False when it takes too long
 * (a thread stopped by a debugger), or when the kernel has no membarrier: then its file keeps its full size.
 */
static bool chain_is_idle(const struct chain *chain, uint64_t until_ns) {
  if (!the.have_barrier && chain != mine)
    return false;
  while (atomic_load_explicit(&chain->busy, memory_order_acquire)) {
    if (clock_ns(CLOCK_MONOTONIC) > until_ns)
      return false;
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
  return true;
}

static void chain_truncate(struct chain *chain) {
  if (chain->segment)
    sl_pool_truncate(chain->segment, (uint32_t)(chain->cursor - (char *)chain->segment->map));
}

void sl_log_end(unsigned deadline_ms) {
  pthread_mutex_lock(&the.lock);
  const bool first = the.state == OPEN && !the.ending && !(the.off & (OFF_FORKED | OFF_ENDED));
  the.ending = true;
  if (!first)
    atomic_fetch_or(&the.off, OFF_ENDED);
  pthread_mutex_unlock(&the.lock);
  if (!first)
    return;

  const bool helper_ended = sl_log_helper_stop(deadline_ms);
  const struct sl_event_process_end end = {clock_ns(CLOCK_REALTIME)};
  const bool end_recorded = !the.exhausted && sl_log_append(SL_EVENT_process_end, &end, sizeof(end), NULL, 0);
  atomic_fetch_or(&the.off, OFF_ENDED);
  if (the.have_barrier)
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);

  uint64_t lost = 0;
  const uint64_t until = clock_ns(CLOCK_MONOTONIC) + IDLE_WAIT_NS;
  for (struct chain *chain = atomic_load(&the.chains); chain; chain = chain->next) {
    if (chain_is_idle(chain, until))
      chain_truncate(chain);
    lost += atomic_exchange(&chain->lost, 0);
  }

  /* Into the definitions chain goes what the threads' own segments had no room for. */
  pthread_mutex_lock(&the.lock);
  lost += atomic_exchange(&the.definitions.lost, 0);
  if (lost) {
    const struct sl_event_gap gap = {the.name_log, the.exhausted ? the.name_limit : the.name_no_segment, lost};
    define_locked(SL_EVENT_gap, &gap, sizeof(gap), NULL, 0);
  }
  if (!end_recorded)
    define_locked(SL_EVENT_process_end, &end, sizeof(end), NULL, 0);
  the.state = OVER;
  chain_truncate(&the.definitions);
  pthread_mutex_unlock(&the.lock);
  if (helper_ended)
    sl_pool_end();
}
