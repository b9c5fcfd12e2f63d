#include "part_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".part"
#define YOUNG_SECONDS 60 /* may be between its making and its locking */

/* Is it <name>.<digits>.part? */
static bool is_part_of(const char *file, const char *name) {
  const size_t length = strlen(name);
  if (strncmp(file, name, length) != 0 || file[length] != '.')
    return false;
  const char *digits = file + length + 1;
  const size_t count = strspn(digits, "0123456789");
  return count > 0 && strcmp(digits + count, SUFFIX) == 0;
}

static void remove_if_left(int directory, const char *name) {
  struct stat status;
  int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0)
    return;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_mtime + YOUNG_SECONDS < time(NULL) &&
      flock(file, LOCK_EX | LOCK_NB) == 0)
    unlinkat(directory, name, 0);
  close(file);
}

/* What killed builders of this output left. Whatever can't be looked at stays. */
static void remove_left(const char *output) {
  const char *slash = strrchr(output, '/');
  char *parent = slash ? strndup(output, (size_t)(slash - output) + 1) : strdup(".");
  DIR *listing = parent ? opendir(parent) : NULL;
  free(parent);
  if (!listing)
    return;
  for (struct dirent *entry; (entry = readdir(listing));)
    if (is_part_of(entry->d_name, slash ? slash + 1 : output))
      remove_if_left(dirfd(listing), entry->d_name);
  closedir(listing);
}

int sl_part_file_make(const char *output, struct sl_part_file *out, struct sl_error *error) {
  struct sl_part_file part = SL_PART_FILE_NONE;
  struct stat status;
  int r = 0;
  *out = part;
  if (stat(output, &status) == 0 && !S_ISREG(status.st_mode)) /* a device or a pipe would be gone afterwards */
    return sl_error_set(error, -EINVAL, "%s is no file; name one with -o", output);
  remove_left(output);
  if (asprintf(&part.path, "%s.%ld" SUFFIX, output, (long)getpid()) < 0)
    return sl_error_set(error, -ENOMEM, "out of memory");
  unlink(part.path); /* of a process with this id that was killed */
  part.lock = open(part.path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (part.lock < 0) {
    r = sl_error_set(error, -errno, "%s can't be made: %s", part.path, strerror(errno));
    free(part.path);
    return r;
  }
  flock(part.lock, LOCK_EX | LOCK_NB); /* Where there are no locks, files that are left stay. */
  *out = part;
  return 0;
}

int sl_part_file_keep(const struct sl_part_file *part, const char *output, struct sl_error *error) {
  return rename(part->path, output) == 0 ? 0 : sl_error_set(error, -errno, "%s: %s", output, strerror(errno));
}

struct sl_part_file sl_part_file_close(struct sl_part_file part) {
  if (part.path)
    unlink(part.path); /* Fails, and rightly, when it was kept. */
  if (part.lock >= 0)
    close(part.lock);
  free(part.path);
  return SL_PART_FILE_NONE;
}
