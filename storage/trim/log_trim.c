/*
 * Only full files go, the oldest first, and not before everything that was recorded up to their end has reached its own
 * file.
 */
#include "log_trim.h"

#include "dropped_file.h"
#include "log_drop.h"
#include "plugin/format/clock.h"
#include "plugin/format/events.h"
#include "plugin/format/log_format.h"
#include "storage/log/log_segments.h"
#include "storage/log/segment_load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* What was recorded so long ago is in its file: a thread may be stopped between its look at the clock and the record.
 */
#define SETTLED_NS 100000000u
#define SETTLED_WRITTEN_NS 3000000000u /* where files are written every second, and not mapped */

/* ---- the limit ---- */

int sl_log_limit_read(const char *directory, struct sl_log_limit *out, struct sl_error *error) {
  struct sl_log *log = NULL;
  *out = (struct sl_log_limit){0};
  int r = sl_log_open(directory, &log, error);
  if (r < 0)
    return r == -ENODATA ? -EAGAIN : r;
  const char *limit = sl_log_info(log, "keep_last_bytes"), *host = sl_log_info(log, "host");
  const char *pid = sl_log_info(log, "pid");
  out->bytes = limit ? strtoull(limit, NULL, 10) : 0;
  out->pid = pid ? strtoll(pid, NULL, 10) : 0;
  snprintf(out->host, sizeof out->host, "%s", host ? host : "");
  r = sl_log_info(log, "shardledger_version") ? 0 : -EAGAIN; /* which is recorded behind the others */
  sl_log_close(log);
  return r;
}

bool sl_log_size(const char *directory, uint64_t *bytes, uint64_t *changed_ns) {
  DIR *listing = opendir(directory);
  if (!listing)
    return false;
  *bytes = *changed_ns = 0;
  for (struct dirent *file; (file = readdir(listing));) {
    struct stat status;
    if (fstatat(dirfd(listing), file->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode))
      continue;
    const uint64_t at_ns = (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec;
    *bytes += (uint64_t)status.st_size;
    *changed_ns = at_ns > *changed_ns ? at_ns : *changed_ns;
  }
  closedir(listing);
  return true;
}

bool sl_log_is_near_limit(uint64_t bytes, uint64_t limit) {
  return bytes > limit - limit / SL_KEEP_LAST_RESERVE_PART;
}

/* ---- which files ---- */

#define FILES_MAX 64 /* more than there are at any limit */

struct file {
  char name[32];
  uint64_t bytes, first_ns, last_ns;
};

/* The full ones of which all can be read, the oldest first. */
struct plan {
  struct file files[FILES_MAX];
  unsigned count;
  bool is_written; /* the log's files are not mapped */
};

static int compare_names(const void *left, const void *right) {
  return strcmp(((const struct file *)left)->name, ((const struct file *)right)->name);
}

/* Time of the latest of a segment's records. */
static uint64_t last_of(const struct sl_segment_entry *entry, const struct sl_records *records) {
  uint64_t base_ns = entry->base_ns, last_ns = entry->base_ns;
  for (size_t at = 0; at + sizeof(struct sl_record_header) <= records->bytes;) {
    struct sl_record_header header;
    memcpy(&header, records->data + at, sizeof header);
    const size_t bytes = header.words * 8u;
    if (bytes == 0 || bytes > records->bytes - at)
      break;
    if (header.type == SL_EVENT_time_base && bytes >= sizeof header + sizeof base_ns)
      memcpy(&base_ns, records->data + at + sizeof header, sizeof base_ns);
    else if (base_ns + header.delta_ns > last_ns)
      last_ns = base_ns + header.delta_ns;
    at += bytes;
  }
  return last_ns;
}

/* From when to when its records are. */
static int file_look(struct sl_segments *segments, uint32_t index, struct file *file, struct sl_error *error) {
  struct sl_records records = {0};
  int r = 0;
  for (size_t i = 0; i < segments->count && r == 0; i++) {
    const struct sl_segment_entry *entry = &segments->entries[i];
    if (entry->frame_at == SL_NOT_THERE || entry->file != index)
      continue;
    r = sl_segments_load(segments, entry, &records, error);
    const uint64_t last_ns = r == 0 ? last_of(entry, &records) : 0;
    file->first_ns = entry->base_ns < file->first_ns ? entry->base_ns : file->first_ns;
    file->last_ns = last_ns > file->last_ns ? last_ns : file->last_ns;
  }
  sl_records_free(&records);
  return r;
}

/* All sealed files but the first, with the sizes that they have now. */
static int plan_begin(const char *directory, struct plan *plan, struct sl_error *error) {
  DIR *listing = opendir(directory);
  *plan = (struct plan){0};
  if (!listing)
    return sl_error_set(error, -errno, "can't open %s: %s", directory, strerror(errno));
  for (struct dirent *found; plan->count < FILES_MAX && (found = readdir(listing));) {
    struct file *file = &plan->files[plan->count];
    struct stat status;
    if (strncmp(found->d_name, SL_SEALED_PREFIX, strlen(SL_SEALED_PREFIX)) != 0 ||
        strlen(found->d_name) >= sizeof file->name ||
        fstatat(dirfd(listing), found->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
      continue;
    *file = (struct file){.bytes = (uint64_t)status.st_size, .first_ns = UINT64_MAX};
    strcpy(file->name, found->d_name);
    plan->count++;
  }
  closedir(listing);
  return 0;
}

static bool was_whole(const struct sl_segments *segments, const struct file *file) {
  for (uint32_t i = 0; i < segments->sealed_count; i++)
    if (segments->sealed[i].fd >= 0 && strcmp(segments->sealed[i].name, file->name) == 0)
      return segments->sealed[i].end == file->bytes;
  return false;
}

/*
 * A file is full, and not written to any more, when the process has begun another, or would at the next segment. Only
 * one that had its size before the look began was seen with all of its segments: those that come while it looks, it may
 * leave out, and their events would go without having been looked at.
 */
static void plan_keep_full(const struct sl_segments *segments, uint64_t limit, struct plan *plan) {
  unsigned kept = 0;
  for (unsigned i = 0; i < plan->count; i++)
    if (was_whole(segments, &plan->files[i]))
      plan->files[kept++] = plan->files[i];
  plan->count = kept;
  qsort(plan->files, plan->count, sizeof plan->files[0], compare_names);
  if (plan->count && plan->files[plan->count - 1].bytes < limit / SL_KEEP_LAST_FILE_PART)
    plan->count--;
}

static int plan_make(const char *directory, uint64_t limit, struct plan *plan, struct sl_error *error) {
  struct sl_segments segments;
  error->text[0] = 0;
  int r = plan_begin(directory, plan, error);
  if (r == 0)
    r = sl_segments_open(directory, &segments, error);
  if (r < 0)
    return r;
  for (size_t i = 0; i < segments.count; i++)
    plan->is_written |=
        segments.entries[i].frame_at == SL_NOT_THERE && segments.entries[i].disk_bytes < SL_SEGMENT_BYTES;
  plan_keep_full(&segments, limit, plan);
  uint64_t bytes = 0;
  unsigned wanted = 0;
  while (wanted < plan->count && bytes < limit / SL_KEEP_LAST_DROP_PART)
    bytes += plan->files[wanted++].bytes;
  plan->count = wanted;
  for (unsigned f = 0; f < plan->count && r == 0; f++)
    for (uint32_t i = 0; i < segments.sealed_count && r == 0; i++)
      if (strcmp(segments.sealed[i].name, plan->files[f].name) == 0)
        r = file_look(&segments, i, &plan->files[f], error);
  sl_segments_close(&segments);
  return r < 0 && !error->text[0] ? sl_error_set(error, r, "a part of it can't be read") : r;
}

/* ---- dropping them ---- */

static bool drops(void *context, const char *name) {
  const struct plan *plan = context;
  for (unsigned i = 0; i < plan->count; i++)
    if (strcmp(plan->files[i].name, name) == 0)
      return true;
  return false;
}

/* What they held is accounted for in SL_DROPPED_NAME. A file that can't be removed does no harm but take room. */
static void remove_files(const char *directory, const struct plan *plan) {
  for (unsigned i = 0; i < plan->count; i++) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", directory, plan->files[i].name) < (int)sizeof path)
      unlink(path);
  }
}

static int plan_carry_out(const char *directory, struct plan *plan, struct sl_error *error) {
  struct sl_log_drop_options options = {.head_ns = UINT64_MAX, .drops = drops, .context = plan};
  for (unsigned i = 0; i < plan->count; i++) {
    const struct file *file = &plan->files[i];
    options.head_ns = file->first_ns < options.head_ns ? file->first_ns : options.head_ns;
    options.target_ns = file->last_ns >= options.target_ns ? file->last_ns + 1 : options.target_ns;
  }
  struct sl_log *log = NULL;
  options.until_ns = sl_clock_ns(CLOCK_REALTIME) - (plan->is_written ? SETTLED_WRITTEN_NS : SETTLED_NS);
  int r = sl_log_open(directory, &log, error);
  if (r == 0)
    r = sl_log_drop(log, &options, error);
  sl_log_close(log);
  if (r == 0)
    remove_files(directory, plan);
  return r;
}

/* One trimmer at a time. The first sealed file stays as long as the log, so it is what they lock. */
static int lock_take(const char *directory, struct sl_error *error) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/" SL_SEALED_NAME, directory) >= (int)sizeof path)
    return sl_error_set(error, -ENAMETOOLONG, "its name is too long");
  int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC); /* for writing, as network file systems lock such files only */
  if (fd < 0)
    return errno == ENOENT ? -EAGAIN : sl_error_set(error, -errno, "can't open %s: %s", path, strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0)
    return fd;
  int r = errno == EWOULDBLOCK
              ? -EAGAIN
              : sl_error_set(error, -errno,
                             "files can't be locked on this file system (%s); set SHARDLEDGER_DIR to a "
                             "local disk",
                             strerror(errno));
  close(fd);
  return r;
}

int sl_log_trim(const char *directory, uint64_t limit, struct sl_error *error) {
  struct plan plan;
  int lock = lock_take(directory, error);
  if (lock < 0)
    return lock;
  int r = plan_make(directory, limit, &plan, error);
  if (r == 0)
    r = plan.count ? plan_carry_out(directory, &plan, error) : -EAGAIN;
  while (r == -EAGAIN && plan.count > 1) { /* the thread that begins steps may wait for this very room */
    plan.count /= 2;
    r = plan_carry_out(directory, &plan, error);
  }
  close(lock);
  return r;
}

void sl_log_trim_clean(const char *directory) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/" SL_DROPPED_NEW_NAME, directory) < (int)sizeof path)
    unlink(path);
}
