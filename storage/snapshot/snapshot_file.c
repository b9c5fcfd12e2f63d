/* Maps a snapshot's file into memory. */
#include "snapshot_file.h"

#include "pickle_opcodes.h"
#include "snapshot_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROTOCOL_MIN = 2, PROTOCOL_MAX = 5 };

/* Why it can't be one, by its first bytes; NULL: it may be. */
static const char *other_format(const unsigned char *data, size_t length) {
  static const struct {
    const char *magic, *says;
  } known[] = {
      {"PK\003\004", "a zip archive, as torch.save writes; write it with torch.cuda.memory._dump_snapshot"},
      {"\037\213", "compressed; unpack it with gunzip first"},
      {"\050\265\057\375", "compressed; unpack it with unzstd first"},
      {"\3757zXZ", "compressed; unpack it with unxz first"},
      {"SQLite", "an SQLite database"},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (length >= strlen(known[i].magic) && memcmp(data, known[i].magic, strlen(known[i].magic)) == 0)
      return known[i].says;
  if (length < 2 || data[0] != SL_PICKLE_PROTO)
    return "no pickle of protocol 2 or later; name a file that torch.cuda.memory._dump_snapshot wrote";
  if (data[1] < PROTOCOL_MIN || data[1] > PROTOCOL_MAX)
    return "a pickle of a protocol that this shardledger does not read (2 to 5); use a newer shardledger";
  return NULL;
}

int sl_snapshot_file_open(const char *path, struct sl_mapped_file *out, struct sl_error *error) {
  *out = (struct sl_mapped_file){.fd = -1};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return sl_error_set(error, -errno, "%s: %s", path, strerror(errno));
  int r = sl_mapped_file_open(fd, out);
  if (r == -EBADMSG)
    return sl_error_set(error, r, "%s is no file", path);
  if (r < 0)
    return sl_error_set(error, r, "%s can't be read: %s", path, strerror(-r));
  if (out->data)
    madvise((void *)(uintptr_t)out->data, out->length, MADV_SEQUENTIAL);
  const char *other = out->data ? other_format(out->data, out->length) : "empty";
  if (other) {
    sl_mapped_file_close(out);
    return sl_error_set(error, -EBADMSG, "%s is %s", path, other);
  }
  return 0;
}

int sl_snapshot_file_settled(const struct sl_mapped_file *file, const char *path, struct sl_error *error) {
  return sl_mapped_file_is_changed(file)
             ? sl_error_set(error, -EBADMSG, "%s changed while it was read; ask again when it is written", path)
             : 0;
}

void sl_snapshot_file_release(void *file, size_t at) {
  const struct sl_mapped_file *mapped = file;
  madvise((void *)(uintptr_t)mapped->data, at & ~(size_t)((1u << 20) - 1), MADV_DONTNEED);
}

bool sl_snapshot_is(const char *path) {
  unsigned char begins[2];
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const bool is = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                  read(fd, begins, sizeof begins) == (ssize_t)sizeof begins && begins[0] == SL_PICKLE_PROTO &&
                  begins[1] >= PROTOCOL_MIN && begins[1] <= PROTOCOL_MAX;
  if (fd >= 0)
    close(fd);
  return is;
}

/* The last "rank", with a number behind it: where it begins and ends. false: there is none. */
static bool rank_find(const char *name, const char **begins, const char **ends) {
  enum { DIGITS = 7 };
  bool found = false;
  for (const char *at = name; (at = strcasestr(at, "rank")); at++) {
    const char *digits = at + strlen("rank");
    digits += *digits == '_' || *digits == '-' || *digits == '.' || *digits == '=';
    const size_t count = strspn(digits, "0123456789");
    if (count == 0 || count > DIGITS)
      continue;
    *begins = at;
    *ends = digits + count;
    found = true;
  }
  return found;
}

int64_t sl_snapshot_rank(const char *path) {
  const char *begins, *ends;
  if (!rank_find(basename(path), &begins, &ends))
    return -1;
  return strtoll(begins + strcspn(begins, "0123456789"), NULL, 10);
}

/* Of the path's name as far as its end, ".pickle" or whatever. */
static size_t stem_length(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && dot > name ? (size_t)(dot - name) : strlen(name);
}

char *sl_snapshot_place(const char *path) {
  const char *name = basename(path);
  char *place = NULL;
  return asprintf(&place, "%.*s.sqlite", (int)((size_t)(name - path) + stem_length(name)), path) < 0 ? NULL : place;
}

char *sl_snapshots_place(const char *path) {
  const char *name = basename(path), *begins, *ends;
  char *place = NULL;
  if (!rank_find(name, &begins, &ends))
    return sl_snapshot_place(path);
  while (begins > name && strchr("_-.", begins[-1])) /* what joins it to what is before, or behind where nothing is */
    begins--;
  if (begins == name)
    ends += *ends && strchr("_-", *ends);
  const char *stop = name + stem_length(name);
  const bool is_left = begins > name || (ends < stop);
  return asprintf(&place, "%.*s%s%.*s.sqlite", (int)(begins - path), path, is_left ? "" : "snapshot",
                  (int)(ends < stop ? stop - ends : 0), ends) < 0
             ? NULL
             : place;
}

int sl_snapshot_check(const char *path, struct sl_error *error) {
  struct sl_mapped_file file;
  int r = sl_snapshot_file_open(path, &file, error);
  sl_mapped_file_close(&file);
  return r;
}
