#include "sealed_files.h"

#include "config.h"
#include "storage/log/log_drop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 64u
#define PIECE_NS 1000000u /* of work at once: segments must be made meanwhile */
#define PIECE_EVENTS 256u
#define SETTLED_NS 20000000u /* what was recorded so long ago is in its file, whole */
#define RETRY_NS 50000000u   /* after an attempt that found no step; then twice as long, up to */
#define RETRY_MAX_NS 3200000000u

/* Of the limit: what the first file may take, and each later one; what is left free; what is dropped at once. */
#define HEAD_PART 8
#define FILE_PART 16
#define RESERVE_PART 4
#define DROP_PART 4

struct file {
  uint32_t index;
  uint64_t bytes, last_ns; /* time of the latest record */
};

static struct {
  const char *directory;
  uint64_t max_bytes;
  bool keep_last;
  uint64_t head_bytes, head_ns; /* of sealed.slogz; when it was full, else 0 */
  struct file files[FILES_MAX]; /* the oldest first; the last one is written to */
  unsigned count;
  uint32_t next_index;

  struct sl_log_drop *drop;
  unsigned dropping; /* so many files */
  unsigned try_most; /* so many at once: fewer after an attempt that found no step behind them */
  uint64_t retry_at_ns, retry_after_ns;
  uint64_t dropped_bytes; /* of SL_DROPPED_NAME */
} sealed;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sl_sealed_start(const char *directory, uint64_t max_bytes, bool keep_last) {
  sealed.directory = directory;
  sealed.max_bytes = max_bytes;
  sealed.keep_last = keep_last && max_bytes >= SL_KEEP_LAST_BYTES_MIN;
  sealed.next_index = 1;
  sealed.try_most = FILES_MAX;
  if (keep_last && max_bytes && !sealed.keep_last)
    sl_say("SHARDLEDGER_AT_MAX=keep-last takes SHARDLEDGER_MAX_BYTES=%uMiB or more; with less, recording stops there",
           SL_KEEP_LAST_BYTES_MIN >> 20);
}

static void name_of(uint32_t index, char *name, size_t size) {
  snprintf(name, size, SL_SEALED_PREFIX "%08x" SL_SEALED_SUFFIX, index);
}

/*
 * The first file gets the definitions, and everything that was recorded before it was full, also what is sealed later:
 * so all of that stays.
 */
static bool goes_to_head(const struct sl_segment_header *header) {
  return !sealed.keep_last || sealed.head_ns == 0 || header->thread == 0 || header->base_ns < sealed.head_ns;
}

void sl_sealed_path(const struct sl_segment_header *header, char *path, size_t size) {
  char name[32] = SL_SEALED_NAME;
  if (!goes_to_head(header))
    name_of(sealed.files[sealed.count - 1].index, name, sizeof(name));
  snprintf(path, size, "%s/%s", sealed.directory, name);
}

static void begin_file(void) {
  sealed.files[sealed.count++] = (struct file){.index = sealed.next_index++};
}

void sl_sealed_grew(const struct sl_segment_header *header, uint64_t last_ns, uint64_t bytes) {
  if (!sealed.keep_last)
    return;
  if (goes_to_head(header)) {
    sealed.head_bytes += bytes;
    if (sealed.head_ns == 0 && sealed.head_bytes >= sealed.max_bytes / HEAD_PART) {
      sealed.head_ns = now_ns();
      begin_file();
    }
    return;
  }
  struct file *file = &sealed.files[sealed.count - 1];
  file->bytes += bytes;
  if (last_ns > file->last_ns)
    file->last_ns = last_ns;
  if (file->bytes >= sealed.max_bytes / FILE_PART && sealed.count < FILES_MAX)
    begin_file();
}

bool sl_sealed_is_dropping(void) {
  return sealed.drop != NULL;
}

bool sl_sealed_makes_room(void) {
  return sealed.keep_last;
}

bool sl_sealed_is_due(uint64_t bytes) {
  return sealed.drop ||
         (sealed.keep_last && sealed.count > 1 && bytes > sealed.max_bytes - sealed.max_bytes / RESERVE_PART &&
          (sealed.retry_at_ns == 0 || now_ns() >= sealed.retry_at_ns));
}

static bool drops(void *unused, const char *name) {
  char other[32];
  for (unsigned i = 0; i < sealed.dropping; i++) {
    name_of(sealed.files[i].index, other, sizeof(other));
    if (strcmp(name, other) == 0)
      return true;
  }
  return false;
}

static void give_up(int r, const struct sl_error *error) {
  sealed.drop = sl_log_drop_free(sealed.drop);
  if (r == -EAGAIN && sealed.dropping > 1) { /* the thread that begins steps may wait for this very room */
    sealed.try_most = sealed.dropping / 2;
    return;
  }
  sealed.try_most = FILES_MAX;
  if (r == -EAGAIN) { /* no step has begun since: one may soon */
    sealed.retry_after_ns = sealed.retry_after_ns ? 2 * sealed.retry_after_ns : RETRY_NS;
    if (sealed.retry_after_ns > RETRY_MAX_NS)
      sealed.retry_after_ns = RETRY_MAX_NS;
    sealed.retry_at_ns = now_ns() + sealed.retry_after_ns;
    return;
  }
  sealed.keep_last = false;
  sl_say("nothing of the log in %s can be dropped to make room: %s", sealed.directory, error->text);
}

static void begin(uint32_t number) {
  struct sl_error error = {0};
  uint64_t freed = 0;
  sealed.dropping = 0;
  uint64_t last_ns = 0;
  while (sealed.dropping + 1 < sealed.count && sealed.dropping < sealed.try_most &&
         freed < sealed.max_bytes / DROP_PART) {
    const struct file *file = &sealed.files[sealed.dropping++];
    freed += file->bytes;
    last_ns = file->last_ns > last_ns ? file->last_ns : last_ns;
  }
  const struct sl_log_drop_options options = {
      .directory = sealed.directory,
      .head_ns = sealed.head_ns,
      .target_ns = last_ns + 1,
      .until_ns = now_ns() - SETTLED_NS,
      .number = number,
      .drops = drops,
  };
  sealed.drop = sl_log_drop_begin(&options, &error);
  if (!sealed.drop)
    give_up(-EIO, &error);
}

/* What they held is accounted for in SL_DROPPED_NAME. A file that can't be removed does no harm but take room. */
static int64_t remove_files(void) {
  const uint64_t bytes = sl_log_drop_bytes(sealed.drop);
  int64_t freed = (int64_t)sealed.dropped_bytes - (int64_t)bytes;
  sealed.dropped_bytes = bytes;
  for (unsigned i = 0; i < sealed.dropping; i++) {
    char name[32], path[4096];
    name_of(sealed.files[i].index, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", sealed.directory, name);
    if (unlink(path) == 0 || errno == ENOENT)
      freed += (int64_t)sealed.files[i].bytes;
  }
  sealed.count -= sealed.dropping;
  memmove(sealed.files, sealed.files + sealed.dropping, sealed.count * sizeof(*sealed.files));
  return freed;
}

bool sl_sealed_drop(uint32_t number, int64_t *freed) {
  *freed = 0;
  if (!sealed.drop) {
    begin(number);
    return true;
  }
  struct sl_error error = {0};
  const uint64_t begun_ns = now_ns();
  int r;
  do
    r = sl_log_drop_work(sealed.drop, PIECE_EVENTS, &error);
  while (r == 1 && now_ns() - begun_ns < PIECE_NS);
  if (r < 0)
    give_up(r, &error);
  if (r == 0) {
    *freed = remove_files();
    sealed.drop = sl_log_drop_free(sealed.drop);
    sealed.retry_at_ns = sealed.retry_after_ns = 0;
    sealed.try_most = FILES_MAX;
  }
  return false;
}

void sl_sealed_end(void) {
  sealed.drop = sl_log_drop_free(sealed.drop);
}
