/*
 * A store into a mapped file may raise SIGBUS or stall where a file system does not keep what fallocate promises; which
 * do is known of few, so all others are written to.
 */
#include "segment_written.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/*
 * XFS shares blocks between copies (reflink), where it was made with that; then a store may need new ones. Two files
 * without names try it.
 */
static bool shares_blocks(const char *directory) {
  static const char block[65536]; /* of the largest size there is */
  int from = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  int to = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  bool shares = true; /* also when it can't be tried */
  if (from >= 0 && to >= 0 && pwrite(from, block, sizeof(block), 0) == sizeof(block))
    shares = ioctl(to, FICLONE, from) == 0 || (errno != EOPNOTSUPP && errno != ENOTTY);
  if (from >= 0)
    close(from);
  if (to >= 0)
    close(to);
  return shares;
}

/*
 * These keep what fallocate promises: a store to an allocated page always has its block, so no SIGBUS, and they are of
 * this machine. All others are written to: those that copy on write (btrfs, ZFS, bcachefs, f2fs), those that don't tell
 * what is below them (overlay), those that wait for somebody else (NFS, Lustre, Ceph, GPFS, FUSE …), and unknown ones.
 */
bool sl_written_is_better(const char *directory) {
  struct statfs info;
  if (statfs(directory, &info) < 0)
    return true;
  switch ((unsigned)info.f_type) {
  case 0xef53: /* ext2, ext3, ext4 */
  case 0x01021994: /* tmpfs */ return false;
  case 0x58465342: /* XFS */ return shares_blocks(directory);
  default: return true;
  }
}

bool sl_written_is_needed(int r) {
  return r == -ENODEV || r == -EINVAL || r == -EOPNOTSUPP || r == -ENOSYS || r == -ENOTSUP;
}

/* Segments come from any thread, in front, without a lock; they go on the helper thread only. */
static struct sl_segment *_Atomic first;

/* Held while files are written, by the helper thread or, where that is stuck, by the one that ends the log. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

void sl_written_add(struct sl_segment *segment) {
  segment->next_written = atomic_load_explicit(&first, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&first, &segment->next_written, segment, memory_order_release,
                                                memory_order_relaxed))
    ;
}

void sl_written_drop(struct sl_segment *segment) {
  struct sl_segment *head = segment;
  pthread_mutex_lock(&writing);
  if (!atomic_compare_exchange_strong(&first, &head, segment->next_written)) {
    /* It has others in front of it, and only this thread changes what these point to. */
    while (head && head->next_written != segment)
      head = head->next_written;
    if (head)
      head->next_written = segment->next_written;
  }
  pthread_mutex_unlock(&writing);
}

uint32_t sl_written_committed(const struct sl_segment *segment) {
  const char *map = (const char *)segment->map;
  if (__atomic_load_n(&segment->map->check, __ATOMIC_ACQUIRE) == 0)
    return 0;
  uint32_t at = segment->on_disk ? segment->on_disk : sizeof(struct sl_segment_header);
  while (at + sizeof(struct sl_record_header) <= SL_SEGMENT_BYTES) {
    const uint64_t commit = __atomic_load_n((const uint64_t *)(const void *)(map + at), __ATOMIC_ACQUIRE);
    const uint32_t bytes = (uint32_t)(commit >> 8 & 0xff) * 8;
    if (bytes == 0)
      break;
    at += bytes;
  }
  return at;
}

static int append_locked(struct sl_segment *segment, const char *path) {
  const uint32_t end = sl_written_committed(segment);
  if (end <= segment->on_disk)
    return 0;
  const int make = segment->has_file ? 0 : O_CREAT | O_EXCL;
  int file = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | make, S_IRUSR | S_IWUSR);
  if (file < 0)
    return -errno;
  segment->has_file = true;
  int r = 0;
  while (segment->on_disk < end && r == 0) {
    /* A plain system call: a sanitizer in front of pwrite does not know that what is committed stays as it is. */
    ssize_t written = syscall(SYS_pwrite64, file, (const char *)segment->map + segment->on_disk, end - segment->on_disk,
                              (off_t)segment->on_disk);
    if (written > 0)
      segment->on_disk += (uint32_t)written;
    else if (written == 0 || errno != EINTR)
      r = written == 0 ? -ENOSPC : -errno;
  }
  if (close(file) < 0 && r == 0) /* Network file systems may tell only here. */
    r = -errno;
  return r;
}

int sl_written_append(struct sl_segment *segment, const char *path) {
  if (pthread_mutex_trylock(&writing) != 0)
    return -EBUSY;
  int r = append_locked(segment, path);
  pthread_mutex_unlock(&writing);
  return r;
}

/* Of the definitions, or of all others. */
static int append_all_locked(bool definitions, bool new_stopgaps_only, sl_segment_path *path_of) {
  int r = 0;
  struct sl_segment *segment = atomic_load_explicit(&first, memory_order_acquire);
  for (; segment && r == 0; segment = segment->next_written) {
    const bool is_taken = __atomic_load_n(&segment->map->check, __ATOMIC_ACQUIRE) != 0;
    char path[PATH_MAX];
    if (!is_taken || (segment->map->thread == 0) != definitions ||
        (new_stopgaps_only && (!segment->stopgap || segment->has_file)))
      continue;
    path_of(segment->number, path, sizeof(path));
    r = append_locked(segment, path);
  }
  return r;
}

int sl_written_all(bool new_stopgaps_only, sl_segment_path *path_of) {
  if (pthread_mutex_trylock(&writing) != 0)
    return -EBUSY;
  int r = append_all_locked(true, new_stopgaps_only, path_of);
  if (r == 0)
    r = append_all_locked(false, new_stopgaps_only, path_of);
  pthread_mutex_unlock(&writing);
  return r;
}
