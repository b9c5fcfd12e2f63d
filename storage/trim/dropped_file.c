/* Made whole under another name and renamed, since the process and readers may look at any moment. */
#include "dropped_file.h"

#include "plugin/format/events.h"
#include "plugin/format/record_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MAX (16u << 20) /* of the file: what a reader takes */

int sl_dropped_put(struct sl_dropped_file *file, uint64_t time_ns, uint8_t type, const void *fields, size_t bytes) {
  struct sl_record_header header = {.type = type, .words = (uint8_t)((sizeof header + bytes) / 8)};
  if (time_ns < file->base_ns || time_ns - file->base_ns > UINT32_MAX) {
    const struct sl_event_time_base base = {time_ns};
    file->base_ns = time_ns;
    int r = type == SL_EVENT_time_base ? 0 : sl_dropped_put(file, time_ns, SL_EVENT_time_base, &base, sizeof base);
    if (r < 0)
      return r;
  }
  const size_t need = file->bytes + sizeof header + bytes;
  if (need > BYTES_MAX - sizeof(struct sl_segment_header))
    return -EFBIG;
  if (need > file->size) {
    const size_t size = 2 * need + 4096;
    char *larger = realloc(file->records, size);
    if (!larger)
      return -ENOMEM;
    file->records = larger;
    file->size = size;
  }
  header.delta_ns = (uint32_t)(time_ns - file->base_ns);
  header.check = sl_record_check(header.type, header.words, header.delta_ns, fields, bytes);
  memcpy(file->records + file->bytes, &header, sizeof header);
  memcpy(file->records + file->bytes + sizeof header, fields, bytes);
  file->bytes = need;
  return 0;
}

int sl_dropped_write(const struct sl_dropped_file *file, const char *directory, uint64_t process_key) {
  char path[4096], new_path[4096];
  struct sl_segment_header header = {.magic = SL_SEGMENT_MAGIC,
                                     .version = SL_LOG_VERSION,
                                     .number = SL_DROPPED_NUMBER,
                                     .bytes = (uint32_t)(sizeof header + file->bytes),
                                     .thread = SL_DROPPED_THREAD,
                                     .base_ns = file->start_ns,
                                     .process_key = process_key};
  header.check = XXH3_64bits(&header, offsetof(struct sl_segment_header, check));
  if (snprintf(path, sizeof path, "%s/" SL_DROPPED_NAME, directory) >= (int)sizeof path ||
      snprintf(new_path, sizeof new_path, "%s/" SL_DROPPED_NEW_NAME, directory) >= (int)sizeof new_path)
    return -ENAMETOOLONG;
  unlink(new_path);
  int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0)
    return -errno;
  int r = write(fd, &header, sizeof header) == (ssize_t)sizeof header ? 0 : -ENOSPC;
  for (size_t done = 0; done < file->bytes && r == 0;) {
    ssize_t written = write(fd, file->records + done, file->bytes - done);
    if (written > 0)
      done += (size_t)written;
    else if (written == 0 || errno != EINTR)
      r = written == 0 ? -ENOSPC : -errno;
  }
  if (r == 0 && fsync(fd) < 0) /* before files go that it stands for */
    r = -errno;
  if (close(fd) < 0 && r == 0)
    r = -errno;
  if (r == 0 && rename(new_path, path) < 0)
    r = -errno;
  if (r < 0)
    unlink(new_path);
  return r;
}

void sl_dropped_free(struct sl_dropped_file *file) {
  free(file->records);
  *file = (struct sl_dropped_file){0};
}
