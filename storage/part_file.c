/*
 * The name is random, made with O_EXCL in a directory that is held open: nobody can put something in its place. The
 * lock tells a file that is being built from one that was left.
 */
#include "part_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".part"
#define DIGITS 16        /* of the number in the name */
#define YOUNG_SECONDS 60 /* may be between its making and its locking */

/* The directory that the output is to be in; every name is looked up in it from now on. */
static int open_parent(const char *output) {
  const size_t length = (size_t)(basename(output) - output);
  char *parent = length ? strndup(output, length) : strdup(".");
  int directory = parent ? open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  int r = directory < 0 ? -errno : directory;
  free(parent);
  return r;
}

/* Is it <name>.<16 hexadecimal digits>.part? */
static bool is_part_of(const char *file, const char *name) {
  const size_t length = strlen(name);
  if (strncmp(file, name, length) != 0 || file[length] != '.')
    return false;
  const char *digits = file + length + 1;
  return strspn(digits, "0123456789abcdef") == DIGITS && strcmp(digits + DIGITS, SUFFIX) == 0;
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
static void remove_left(int directory, const char *output) {
  int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *listing = again < 0 ? NULL : fdopendir(again);
  if (!listing) {
    if (again >= 0)
      close(again);
    return;
  }
  for (struct dirent *entry; (entry = readdir(listing));)
    if (is_part_of(entry->d_name, basename(output)))
      remove_if_left(directory, entry->d_name);
  closedir(listing);
}

/* A name that nobody can foresee, and so not put something there. */
static uint64_t any_number(void) {
  uint64_t number;
  if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number)) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    number = ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec) * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
  }
  return number;
}

static int part_make(struct sl_part_file *part, const char *output) {
  part->directory = open_parent(output);
  if (part->directory < 0)
    return part->directory;
  remove_left(part->directory, output);
  if (!(part->output = strdup(output)))
    return -ENOMEM;
  if (asprintf(&part->path, "%s.%0*llx" SUFFIX, output, DIGITS, (unsigned long long)any_number()) < 0) {
    part->path = NULL;
    return -ENOMEM;
  }
  part->file = openat(part->directory, basename(part->path), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  return part->file < 0 ? -errno : 0;
}

int sl_part_file_make(const char *output, struct sl_part_file *out, struct sl_error *error) {
  struct stat status;
  *out = SL_PART_FILE_NONE;
  if (stat(output, &status) == 0 && !S_ISREG(status.st_mode)) /* a device or a pipe would be gone afterwards */
    return sl_error_set(error, -EINVAL, "%s is no file; name one with -o", output);
  int r = part_make(out, output);
  if (r == 0)
    flock(out->file, LOCK_EX | LOCK_NB); /* Where there are no locks, files that are left stay. */
  else
    *out = sl_part_file_close(*out);
  return r == 0         ? 0
         : r == -ENOMEM ? sl_no_memory(error)
                        : sl_error_set(error, r, "%s can't be written: %s", output, strerror(-r));
}

FILE *sl_part_file_stream(const struct sl_part_file *part) {
  int file = fcntl(part->file, F_DUPFD_CLOEXEC, 0);
  FILE *stream = file < 0 ? NULL : fdopen(file, "wb");
  if (!stream && file >= 0)
    close(file);
  return stream;
}

int sl_part_file_keep(const struct sl_part_file *part, struct sl_error *error) {
  return renameat(part->directory, basename(part->path), part->directory, basename(part->output)) == 0
             ? 0
             : sl_error_set(error, -errno, "%s can't be written: %s", part->output, strerror(errno));
}

struct sl_part_file sl_part_file_close(struct sl_part_file part) {
  if (part.file >= 0) {
    unlinkat(part.directory, basename(part.path), 0); /* Fails, and rightly, when it was kept. */
    close(part.file);
  }
  if (part.directory >= 0)
    close(part.directory);
  free(part.path);
  free(part.output);
  return SL_PART_FILE_NONE;
}
