/* One file of a log that may be anybody's, and whose disk may fail: what of it is damage, and what is trouble. */
#include "segment_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Thread_local int unreadable; /* 0: nothing of the kind */

void sl_segment_file_unreadable(int reason) {
  unreadable = reason;
}

int sl_segment_file_refuse(const struct sl_segments *segments, const char *name, struct sl_error *error) {
  const int reason = unreadable;
  unreadable = 0;
  if (reason == ENOMEM)
    return sl_error_set(error, -ENOMEM, "out of memory while reading %s/%s", segments->directory, name);
  return reason ? sl_error_set(error, -SL_LOG_UNREADABLE, "%s/%s can't be read: %s", segments->directory, name,
                               strerror(reason))
                : 0;
}

int sl_segment_file_open(const struct sl_segments *segments, const char *name) {
  int fd = openat(segments->place, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno != ENOENT && errno != ELOOP && errno != ENXIO) /* gone, a link, a socket */
    unreadable = errno;
  return fd < 0 ? -errno : fd;
}

DIR *sl_segments_list(const struct sl_segments *segments) {
  int again = openat(segments->place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *listing = again < 0 ? NULL : fdopendir(again);
  if (!listing && again >= 0)
    close(again);
  return listing;
}

int sl_file_read(int fd, void *out, size_t bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pread(fd, (char *)out + done, bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      unreadable = errno;
    if (n <= 0)
      return n < 0 ? -errno : -ENODATA;
    done += (size_t)n;
  }
  return 0;
}

uint64_t sl_file_size(int fd) {
  struct stat info;
  if (fstat(fd, &info) < 0) {
    unreadable = errno;
    return 0;
  }
  return S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

void *sl_file_room(void *memory, size_t *size, size_t need) {
  if (need <= *size)
    return memory;
  void *larger = realloc(memory, need);
  if (larger)
    *size = need;
  else
    unreadable = ENOMEM;
  return larger;
}

enum finding sl_segment_judge(const struct sl_segment_header *header) {
  if (header->check == 0)
    return header->magic == SL_SEGMENT_MAGIC || header->magic == 0 ? NOBODYS : DAMAGED;
  if (header->magic != SL_SEGMENT_MAGIC ||
      header->check != XXH3_64bits(header, offsetof(struct sl_segment_header, check)))
    return DAMAGED;
  return header->version == SL_LOG_VERSION ? FOUND : NEWER;
}
