/*
 * Segments go from hand to hand as pointers in slots and lists that are exchanged atomically. So a thread of the host
 * takes and retires one without a lock, whatever the helper thread is stuck in.
 */
#include "segment_pool.h"

#include "futex.h"
#include "plugin/format/clock.h"
#include "plugin/format/events.h"
#include "plugin/process/config.h"
#include "sealed_files.h"
#include "segment_written.h"
#include "tsan_host.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define READY_MIN 8u      /* segments kept ready: 2 MiB, some 50,000 events */
#define READY_MAX 64u     /* after a burst that found none */
#define FULL_MAX 256u     /* segments that wait for sealing, 64 MiB mapped; beyond, the oldest stay as they are */
#define STOPGAPS_MAX 256u /* 64 MiB of memory, while a burst lasts or the file system stalls */
#define STOPGAPS_MAX_DEFINITIONS (STOPGAPS_MAX + 64u)
#define STALL_NS 500000000u /* without a new segment: the file system does not answer */
#define WAIT_NS 2000000000u /* for a segment at most, while others come */
#define COMPRESSION_LEVEL 3
#define PATH_BYTES 4096
#define ROOM_WAIT_NS 5000000u /* for room at the limit; then twice as long, up to */
#define ROOM_WAIT_MAX_NS 160000000u

static struct {
  char directory[PATH_BYTES - 64];
  uint64_t process_key;
  uint64_t max_bytes;
  void (*wake)(void);
  bool (*is_starved)(void); /* the helper thread */
  atomic_bool started, supplied;
  atomic_bool written; /* segments are memory, and their files are written */

  struct sl_segment *_Atomic ready[READY_MAX];
  atomic_uint ready_count;
  atomic_uint put;     /* so many have become ready; threads wait for it to change */
  atomic_uint waiting; /* so many of them */
  atomic_bool stalled; /* one has waited in vain since */
  atomic_uint wanted;
  struct sl_segment *_Atomic full; /* the last one retired first */
  atomic_uint full_count;          /* these and those taken over for sealing */
  atomic_uint stopgaps;            /* that there are now */
  atomic_bool new_stopgaps;        /* some have no file yet */

  atomic_uint next_number;
  atomic_uint_fast64_t bytes; /* on disk */

  /* The helper thread's own. */
  pthread_t helper;
  struct sl_segment *sealing; /* taken over from `full`, the first one retired first */
  bool cannot_seal;
  uint64_t wait_ns; /* for room, the last time; 0 when there was some */
  ZSTD_CCtx *compressor;
  char *encoded; /* a segment's records, as they are compressed */
  void *compressed;
  size_t compressed_size;
} pool = {.wanted = READY_MIN};

static void segment_path(uint32_t number, char *path, size_t size) {
  snprintf(path, size, "%s/%08x" SL_SEGMENT_SUFFIX, pool.directory, number);
}

static struct sl_segment *take(void) {
  struct sl_segment *segment = NULL;
  for (unsigned i = 0; i < READY_MAX && !segment; i++)
    if (atomic_load_explicit(&pool.ready[i], memory_order_relaxed))
      segment = atomic_exchange_explicit(&pool.ready[i], NULL, memory_order_acquire);
  unsigned wanted = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
  if (!segment) {
    /* A burst: the next one of this size shall find enough. */
    if (wanted < READY_MAX && atomic_load_explicit(&pool.supplied, memory_order_relaxed))
      atomic_store_explicit(&pool.wanted, wanted * 2, memory_order_relaxed);
    return NULL;
  }
  sl_tsan_acquire(segment);
  unsigned left = atomic_fetch_sub_explicit(&pool.ready_count, 1, memory_order_relaxed) - 1;
  if (left <= wanted / 2)
    pool.wake();
  return segment;
}

/* Those who wait come first: they have nothing yet. */
struct sl_segment *sl_pool_take(void) {
  return atomic_load_explicit(&pool.waiting, memory_order_relaxed) ? NULL : take();
}

static int segment_make(struct sl_segment **out);

struct sl_segment *sl_pool_take_waiting(void) {
  const uint64_t until = sl_clock_ns(CLOCK_MONOTONIC) + WAIT_NS;
  struct sl_segment *segment = NULL;
  if (pthread_equal(pthread_self(), pool.helper)) {
    segment = take();
    if (!segment)
      segment_make(&segment); /* NULL when it fails: it will be met again */
    return segment;
  }
  atomic_fetch_add(&pool.waiting, 1);
  for (;;) {
    const unsigned put = atomic_load(&pool.put);
    segment = take();
    if (segment || atomic_load_explicit(&pool.stalled, memory_order_relaxed) || sl_clock_ns(CLOCK_MONOTONIC) >= until)
      break;
    pool.wake();
    const uint64_t begun = sl_clock_ns(CLOCK_MONOTONIC);
    futex_wait(&pool.put, put, STALL_NS);
    if (atomic_load(&pool.put) == put && sl_clock_ns(CLOCK_MONOTONIC) - begun >= STALL_NS && !pool.is_starved())
      atomic_store_explicit(&pool.stalled, true, memory_order_relaxed);
  }
  atomic_fetch_sub(&pool.waiting, 1);
  return segment;
}

/* ---- making segments ---- */

/* Memory for a segment, zero, with its description behind it. */
static struct sl_segment *segment_allocate(int populate) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *map =
      mmap(NULL, SL_SEGMENT_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | populate, -1, 0);
  if (map == MAP_FAILED)
    return NULL;
  struct sl_segment *segment = (void *)(map + SL_SEGMENT_BYTES);
  segment->map = (void *)map;
  return segment;
}

static void segment_free(struct sl_segment *segment) {
  if (segment->in_memory)
    sl_written_drop(segment);
  if (segment->stopgap)
    atomic_fetch_sub(&pool.stopgaps, 1);
  munmap(segment->map, SL_SEGMENT_BYTES + (size_t)sysconf(_SC_PAGESIZE));
}

/* Puts the file in the memory's place, all of it allocated: a full disk is an error here and no SIGBUS at an event. */
static int segment_map(struct sl_segment *segment, const char *path) {
  int r = 0;
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0)
    return -errno;
  do
    r = -posix_fallocate(fd, 0, SL_SEGMENT_BYTES);
  while (r == -EINTR);
  if (r < 0)
    goto finish;
  if (mmap(segment->map, SL_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) ==
      MAP_FAILED) {
    r = -errno;
    goto finish;
  }
  /* MAP_POPULATE maps shared pages for reading; the first write to each would fault once more, in the producer. */
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t at = 0; at < SL_SEGMENT_BYTES; at += page)
    ((volatile char *)segment->map)[at] = 0;

finish:
  close(fd);
  if (r < 0)
    unlink(path);
  return r;
}

static int segment_make_file(struct sl_segment *segment, const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0)
    return -errno;
  close(fd);
  segment->has_file = true;
  return 0;
}

/* Counts it against the limit, which includes those that are memory: their files follow. */
static bool reserve_bytes(void) {
  const uint64_t bytes = atomic_fetch_add(&pool.bytes, SL_SEGMENT_BYTES) + SL_SEGMENT_BYTES;
  if (!pool.max_bytes || bytes <= pool.max_bytes)
    return true;
  atomic_fetch_sub(&pool.bytes, SL_SEGMENT_BYTES);
  return false;
}

/* Its owner fills in the rest, the check last. */
static void segment_begin(struct sl_segment *segment) {
  *segment->map = (struct sl_segment_header){
      .magic = SL_SEGMENT_MAGIC,
      .version = SL_LOG_VERSION,
      .number = segment->number,
      .bytes = SL_SEGMENT_BYTES,
      .process_key = pool.process_key,
  };
  madvise(segment->map, SL_SEGMENT_BYTES, MADV_DONTFORK);
  if (segment->in_memory)
    sl_written_add(segment);
}

/* On the helper thread. */
static int segment_make(struct sl_segment **out) {
  char path[PATH_BYTES];
  *out = NULL;
  if (!reserve_bytes())
    return -E2BIG;
  struct sl_segment *segment = segment_allocate(atomic_load(&pool.written) ? MAP_POPULATE : 0);
  int r = segment ? 0 : -ENOMEM;
  if (r < 0)
    goto finish;
  segment->number = atomic_fetch_add(&pool.next_number, 1);
  segment_path(segment->number, path, sizeof(path));
  if (!atomic_load(&pool.written))
    r = segment_map(segment, path);
  if (sl_written_is_needed(r) && strcmp(sl_option_text(SL_OPTION_files), "auto") == 0) {
    atomic_store(&pool.written, true);
    sl_say("files in %s can't be mapped (%s), so the log is written: a kill may lose its last second", pool.directory,
           strerror(-r));
    r = 0;
  }
  segment->in_memory = atomic_load(&pool.written);
  if (r == 0 && segment->in_memory)
    r = segment_make_file(segment, path);
  if (r < 0)
    goto finish;
  segment_begin(segment);

finish:
  if (r < 0) {
    atomic_fetch_sub(&pool.bytes, SL_SEGMENT_BYTES);
    if (segment)
      segment_free(segment);
    segment = NULL;
  }
  *out = segment;
  return r;
}

struct sl_segment *sl_pool_stopgap(bool for_definitions) {
  const unsigned max = for_definitions ? STOPGAPS_MAX_DEFINITIONS : STOPGAPS_MAX;
  struct sl_segment *segment = NULL;
  if (atomic_fetch_add(&pool.stopgaps, 1) >= max || !reserve_bytes())
    goto finish;
  segment = segment_allocate(MAP_POPULATE);
  if (!segment) {
    atomic_fetch_sub(&pool.bytes, SL_SEGMENT_BYTES);
    goto finish;
  }
  segment->number = atomic_fetch_add(&pool.next_number, 1);
  segment->in_memory = segment->stopgap = true;
  segment_begin(segment);
  atomic_store(&pool.new_stopgaps, true);
  pool.wake();

finish:
  if (!segment)
    atomic_fetch_sub(&pool.stopgaps, 1);
  return segment;
}

bool sl_pool_has_new_stopgaps(void) {
  return atomic_load(&pool.new_stopgaps) && atomic_load(&pool.started);
}

static void put_ready(struct sl_segment *segment) {
  sl_tsan_release(segment);
  atomic_store_explicit(&pool.stalled, false, memory_order_relaxed);
  /* Counted first: a taker never finds more than the count says. */
  atomic_fetch_add_explicit(&pool.ready_count, 1, memory_order_relaxed);
  for (unsigned i = 0; i < READY_MAX; i++) {
    struct sl_segment *none = NULL;
    if (atomic_compare_exchange_strong_explicit(&pool.ready[i], &none, segment, memory_order_release,
                                                memory_order_relaxed))
      break;
  }
  atomic_fetch_add(&pool.put, 1);
  if (atomic_load(&pool.waiting))
    futex_wake(&pool.put);
}

void sl_pool_begin(uint64_t max_bytes, void (*wake)(void), bool (*is_starved)(void)) {
  if (getrandom(&pool.process_key, sizeof(pool.process_key), GRND_NONBLOCK) != sizeof(pool.process_key))
    pool.process_key = (uint64_t)getpid();
  pool.max_bytes = max_bytes;
  pool.wake = wake;
  pool.is_starved = is_starved;
  sl_sealed_start(pool.directory, max_bytes, strcmp(sl_option_text(SL_OPTION_at_max), "keep-last") == 0);
}

int sl_pool_start(const char *directory) {
  if (strlen(directory) >= sizeof(pool.directory))
    return -ENAMETOOLONG;
  strcpy(pool.directory, directory);
  pool.helper = pthread_self();
  const char *files = sl_option_text(SL_OPTION_files);
  pool.written = strcmp(files, "written") == 0 || (strcmp(files, "auto") == 0 && sl_written_is_better(directory));
  pool.compressor = ZSTD_createCCtx();
  pool.compressed_size = ZSTD_compressBound(SL_SEGMENT_BYTES);
  pool.compressed = malloc(pool.compressed_size);
  pool.encoded = malloc(SL_SEGMENT_BYTES);
  if (!pool.compressor || !pool.compressed || !pool.encoded)
    return -ENOMEM;
  /* The definitions' and the first thread's: they are enough to tell what goes wrong with the others. */
  for (unsigned i = 0; i < SL_POOL_BYTES_MIN / SL_SEGMENT_BYTES; i++) {
    struct sl_segment *segment;
    int r = segment_make(&segment);
    if (r < 0)
      return r;
    put_ready(segment);
  }
  atomic_store(&pool.started, true);
  return 0;
}

bool sl_pool_has_started(void) {
  return atomic_load_explicit(&pool.started, memory_order_relaxed);
}

bool sl_pool_has_supplied(void) {
  return atomic_load_explicit(&pool.supplied, memory_order_relaxed);
}

unsigned sl_pool_made(void) {
  return atomic_load_explicit(&pool.next_number, memory_order_relaxed);
}

bool sl_pool_is_dry(void) {
  return atomic_load_explicit(&pool.ready_count, memory_order_relaxed) == 0 &&
         atomic_load_explicit(&pool.wanted, memory_order_relaxed) >= READY_MAX;
}

void sl_pool_retire(struct sl_segment *segment, uint32_t used) {
  segment->used = used;
  sl_tsan_release(segment);
  atomic_fetch_add_explicit(&pool.full_count, 1, memory_order_relaxed);
  segment->next = atomic_load_explicit(&pool.full, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&pool.full, &segment->next, segment, memory_order_release,
                                                memory_order_relaxed))
    ;
  pool.wake();
}

/* Appends all parts to the sealed file that the segment belongs in, or nothing: a torn frame is cut off again. */
static int frame_append(const struct sl_segment_header *segment, const struct iovec *parts, int count) {
  char path[PATH_BYTES];
  sl_sealed_path(segment, path, sizeof(path));
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0)
    return -errno;
  int r = 0;
  size_t bytes = 0;
  for (int i = 0; i < count; i++)
    bytes += parts[i].iov_len;
  off_t end = lseek(fd, 0, SEEK_END);
  if (end < 0) {
    r = -errno;
    goto finish;
  }
  ssize_t written;
  do
    written = writev(fd, parts, count);
  while (written < 0 && errno == EINTR);
  if (written < 0 || (size_t)written != bytes) {
    r = written < 0 ? -errno : -ENOSPC;
    if (ftruncate(fd, end) < 0)
      sl_debug("cannot cut off a torn frame in %s: %s", path, strerror(errno));
    goto finish;
  }
  atomic_fetch_add(&pool.bytes, bytes);
  sl_sealed_grew(segment, bytes);

finish:
  close(fd);
  return r;
}

/* Copies records in the encoding SL_FRAME_DIFFERENCES. */
static void records_encode(const char *records, size_t bytes, char *out) {
  uint32_t delta_before = 0, sequence_before = 0;
  memcpy(out, records, bytes);
  for (size_t at = 0; at < bytes;) {
    struct sl_record_header header;
    memcpy(&header, out + at, sizeof(header));
    const uint32_t delta = header.delta_ns;
    header.check = 0;
    header.delta_ns = delta - delta_before;
    delta_before = delta;
    memcpy(out + at, &header, sizeof(header));
    if (header.type == SL_EVENT_allocator) {
      char *field = out + at + sizeof(header) + offsetof(struct sl_event_allocator, sequence);
      uint32_t sequence, difference;
      memcpy(&sequence, field, sizeof(sequence));
      difference = sequence - sequence_before;
      sequence_before = sequence;
      memcpy(field, &difference, sizeof(difference));
    }
    at += header.words ? header.words * 8u : bytes;
  }
}

static int segment_seal(const struct sl_segment *segment) {
  const size_t raw_bytes = segment->used - sizeof(struct sl_segment_header);
  records_encode((const char *)(segment->map + 1), raw_bytes, pool.encoded);
  size_t size = ZSTD_compressCCtx(pool.compressor, pool.compressed, pool.compressed_size, pool.encoded, raw_bytes,
                                  COMPRESSION_LEVEL);
  if (ZSTD_isError(size))
    return -EIO;
  struct sl_frame_header header = {
      .magic = SL_FRAME_MAGIC,
      .version = SL_LOG_VERSION,
      .number = segment->number,
      .raw_bytes = (uint32_t)raw_bytes,
      .compressed_bytes = (uint32_t)size,
      .encoding = SL_FRAME_DIFFERENCES,
  };
  header.check =
      XXH3_64bits_withSeed(pool.compressed, size, XXH3_64bits(&header, offsetof(struct sl_frame_header, check)));
  struct iovec parts[] = {
      {&header, sizeof(header)}, {segment->map, sizeof(struct sl_segment_header)}, {pool.compressed, size}};
  int r = frame_append(segment->map, parts, 3);
  if (r < 0)
    return r;
  char path[PATH_BYTES];
  segment_path(segment->number, path, sizeof(path));
  unlink(path);
  atomic_fetch_sub(&pool.bytes, SL_SEGMENT_BYTES);
  return 0;
}

/* Moves what was retired behind what waits for sealing, the first retired first. */
static void collect_full(void) {
  struct sl_segment *list = atomic_exchange_explicit(&pool.full, NULL, memory_order_acquire);
  struct sl_segment *first = NULL;
  while (list) {
    struct sl_segment *next = list->next;
    sl_tsan_acquire(list);
    list->next = first;
    first = list;
    list = next;
  }
  struct sl_segment **end = &pool.sealing;
  while (*end)
    end = &(*end)->next;
  *end = first;
}

bool sl_pool_may_get_room(void) {
  return sl_sealed_keep_last_bytes() != 0;
}

/* Near the limit: what another process has dropped meanwhile is room again. */
static void count_dropped(void) {
  const uint64_t limit = sl_sealed_keep_last_bytes();
  if (limit && atomic_load(&pool.bytes) > limit - limit / SL_KEEP_LAST_RESERVE_PART)
    atomic_fetch_sub(&pool.bytes, (uint64_t)sl_sealed_recount());
}

/* At the limit, where there may be room soon: comes back after a moment, which gets longer. */
static void wait_for_room(void) {
  pool.wait_ns = pool.wait_ns ? 2 * pool.wait_ns : ROOM_WAIT_NS;
  if (pool.wait_ns > ROOM_WAIT_MAX_NS)
    pool.wait_ns = ROOM_WAIT_MAX_NS;
  nanosleep(&(struct timespec){.tv_nsec = (long)pool.wait_ns}, NULL);
  pool.wake();
}

int sl_pool_work(void) {
  count_dropped();
  if (atomic_exchange(&pool.new_stopgaps, false)) {
    int r = sl_written_all(true, segment_path);
    if (r < 0) {
      atomic_store(&pool.new_stopgaps, true); /* nothing else comes first when there are descriptors again */
      return r;
    }
  }
  if (atomic_load_explicit(&pool.ready_count, memory_order_relaxed) <
      atomic_load_explicit(&pool.wanted, memory_order_relaxed)) {
    struct sl_segment *segment;
    int r = segment_make(&segment);
    if (r == 0) {
      pool.wait_ns = 0;
      put_ready(segment);
      return 1;
    }
    /* At the limit, the ready ones can still be used up, and sealing makes room. */
    bool room = atomic_load(&pool.ready_count) > 0 || pool.sealing || atomic_load(&pool.full);
    if (r == -E2BIG && sl_pool_may_get_room() && !pool.sealing && !atomic_load(&pool.full))
      wait_for_room();
    if (r != -E2BIG || !room)
      return r;
  }
  atomic_store_explicit(&pool.supplied, true, memory_order_relaxed);
  if (!pool.sealing)
    collect_full();
  struct sl_segment *segment = pool.sealing;
  if (!segment)
    return 0;
  const bool as_it_is = pool.cannot_seal || atomic_load_explicit(&pool.full_count, memory_order_relaxed) > FULL_MAX;
  const int r = as_it_is ? 0 : segment_seal(segment);
  if (sl_pool_is_short(r))
    return 0; /* it waits */
  if (r < 0) {
    pool.cannot_seal = true;
    sl_debug("segments stay uncompressed in %s", pool.directory);
  }
  pool.sealing = segment->next;
  atomic_fetch_sub_explicit(&pool.full_count, 1, memory_order_relaxed);
  if (as_it_is || r < 0)
    sl_pool_truncate(segment, segment->used);
  segment_free(segment);
  return 1;
}

bool sl_pool_is_short(int r) {
  return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EBUSY;
}

int sl_pool_write(void) {
  return sl_written_all(false, segment_path);
}

void sl_pool_truncate(struct sl_segment *segment, uint32_t used) {
  char path[PATH_BYTES];
  segment_path(segment->number, path, sizeof(path));
  if (segment->in_memory) {
    int r = sl_written_append(segment, path);
    if (r < 0)
      sl_debug("cannot write the end of %s: %s", path, strerror(-r));
    return;
  }
  if (truncate(path, used) < 0 && errno != ENOENT)
    sl_debug("cannot cut %s to its used part: %s", path, strerror(errno));
}

void sl_pool_end(void) {
  collect_full();
  for (struct sl_segment *segment = pool.sealing; segment && sl_pool_has_started(); segment = segment->next)
    sl_pool_truncate(segment, segment->used);
  for (unsigned i = 0; i < READY_MAX; i++) {
    struct sl_segment *segment = atomic_exchange(&pool.ready[i], NULL);
    char path[PATH_BYTES];
    if (!segment)
      continue;
    segment_path(segment->number, path, sizeof(path));
    unlink(path);
    segment_free(segment);
  }
}
