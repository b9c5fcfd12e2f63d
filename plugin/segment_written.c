#include "segment_written.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

bool sl_written_is_better(const char *directory) {
  /* NFS, Lustre, SMB and CIFS, Ceph, GPFS, BeeGFS, 9P, OrangeFS, AFS: their numbers are in statfs(2) or their sources.
   */
  static const unsigned long network[] = {0x6969,     0x0bd00bd0, 0x517b,     0xff534d42, 0xfe534d42, 0x00c36400,
                                          0x47504653, 0x19830326, 0x01021997, 0x20030528, 0x5346414f};
  struct statfs info;
  if (statfs(directory, &info) < 0)
    return false;
  for (size_t i = 0; i < sizeof(network) / sizeof(network[0]); i++)
    if ((unsigned long)(unsigned)info.f_type == network[i])
      return true;
  return false;
}

bool sl_written_is_needed(int r) {
  return r == -ENODEV || r == -EINVAL || r == -EOPNOTSUPP || r == -ENOSYS || r == -ENOTSUP;
}

void *sl_written_memory(void) {
  void *memory =
      mmap(NULL, SL_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED)
    return NULL;
  madvise(memory, SL_SEGMENT_BYTES, MADV_DONTFORK);
  return memory;
}

/* Segments come from the helper thread, and seldom from others, in front; they go on the helper thread only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_segment *first;

void sl_written_add(struct sl_segment *segment) {
  pthread_mutex_lock(&lock);
  segment->next_written = first;
  first = segment;
  pthread_mutex_unlock(&lock);
}

void sl_written_drop(struct sl_segment *segment) {
  pthread_mutex_lock(&lock);
  struct sl_segment **at = &first;
  while (*at && *at != segment)
    at = &(*at)->next_written;
  if (*at)
    *at = segment->next_written;
  pthread_mutex_unlock(&lock);
}

/* Where the records end that are committed now; 0 while nobody has taken the segment. */
static uint32_t committed_end(const struct sl_segment *segment) {
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

int sl_written_append(struct sl_segment *segment, const char *path) {
  const uint32_t end = committed_end(segment);
  if (end <= segment->on_disk)
    return 0;
  int file = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0)
    return -errno;
  int r = 0;
  while (segment->on_disk < end && r == 0) {
    ssize_t written =
        pwrite(file, (const char *)segment->map + segment->on_disk, end - segment->on_disk, (off_t)segment->on_disk);
    if (written > 0)
      segment->on_disk += (uint32_t)written;
    else if (written == 0 || errno != EINTR)
      r = written == 0 ? -ENOSPC : -errno;
  }
  if (close(file) < 0 && r == 0) /* Network file systems may tell only here. */
    r = -errno;
  return r;
}

int sl_written_all(void (*path_of)(uint32_t number, char *path, size_t size)) {
  int r = 0;
  /* The lock is for the beginning of the list only: it is not held while a slow file system is written to. */
  pthread_mutex_lock(&lock);
  struct sl_segment *segment = first;
  pthread_mutex_unlock(&lock);
  for (; segment && r == 0; segment = segment->next_written) {
    char path[PATH_MAX];
    path_of(segment->number, path, sizeof(path));
    r = sl_written_append(segment, path);
  }
  return r;
}
