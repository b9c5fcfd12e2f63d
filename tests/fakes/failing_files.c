/*
 * Preloaded into a command: what is read from (FAIL_CALL=read) or opened of (FAIL_CALL=open) files whose path ends with
 * FAIL_FILE fails with the number FAIL_ERRNO.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static bool fails(const char *call, const char *path, size_t length) {
  const char *asked = getenv("FAIL_CALL"), *file = getenv("FAIL_FILE"), *number = getenv("FAIL_ERRNO");
  const size_t suffix = file ? strlen(file) : 0;
  if (!asked || !number || strcmp(asked, call) != 0 || length < suffix ||
      memcmp(path + length - suffix, file, suffix) != 0)
    return false;
  errno = atoi(number);
  return true;
}

static bool fails_of(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path);
  return length > 0 && fails("read", path, (size_t)length);
}

ssize_t pread(int fd, void *out, size_t size, off_t offset) {
  static ssize_t (*real)(int, void *, size_t, off_t);
  if (!real)
    *(void **)&real = dlsym(RTLD_NEXT, "pread");
  return fails_of(fd) ? -1 : real(fd, out, size, offset);
}

int openat(int directory, const char *path, int flags, ...) {
  static int (*real)(int, const char *, int, ...);
  va_list arguments;
  if (!real)
    *(void **)&real = dlsym(RTLD_NEXT, "openat");
  va_start(arguments, flags);
  mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return fails("open", path, strlen(path)) ? -1 : real(directory, path, flags, mode);
}
