/*
 * Others must not be able to put a directory of theirs in the place of ours, nor to read what names and modules tell.
 * So who may write where it is made is looked at first.
 */
#include "log_directory.h"

#include "plugin/format/clock.h"
#include "plugin/process/placeholders.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char start_directory[2048];

void sl_log_directory_resolve(const char *base) {
  if (base[0] != '/' && !getcwd(start_directory, sizeof(start_directory)))
    start_directory[0] = '\0'; /* Too long or gone: relative to wherever the process is then. */
}

/* The umask may take away what the owner needs: some set it so for a moment, to make a file or socket of their own. */
static int make_private(const char *path) {
  if (mkdir(path, S_IRWXU) < 0)
    return -errno;
  chmod(path, S_IRWXU); /* A file system that refuses has modes of its own. */
  return 0;
}

/* mkdir -p; directories that exist are left as they are. */
static int make_parents(char *path) {
  for (char *at = path + 1;; at++) {
    const char separator = *at;
    if (separator != '/' && separator != '\0')
      continue;
    *at = '\0';
    int r = make_private(path);
    *at = separator;
    if (r == -EEXIST)
      r = 0;
    if (r < 0 || separator == '\0')
      return r;
  }
}

/*
 * A directory that everybody may write to is refused, unless it is sticky like /tmp: others could put another
 * directory in our place. One that a group shares is fine, as project directories on clusters are.
 */
static int check_base(const char *path) {
  struct stat info;
  if (stat(path, &info) < 0)
    return -errno;
  if (!S_ISDIR(info.st_mode))
    return -ENOTDIR;
  return (info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX) ? -EPERM : 0;
}

/*
 * Whoever owns a directory may put another one in the place of ours, so it has to be our own, or root's as /tmp is. Who
 * we are is what the file system says of the directory that we have just made in it: some don't know our user.
 */
static bool is_anothers(char *path, size_t base_length) {
  struct stat own, base;
  if (stat(path, &own) < 0)
    return true;
  path[base_length] = '\0';
  int r = stat(path, &base);
  path[base_length] = '/';
  return r < 0 || (base.st_uid != 0 && base.st_uid != own.st_uid);
}

int sl_log_directory_make(const char *base, char *out, size_t size) {
  char host[65], filled[3072];
  sl_host_name(host, sizeof(host));
  int r = sl_placeholders_fill(base, filled, sizeof(filled));
  if (r < 0)
    return r;
  const char *separator = filled[0] != '/' && start_directory[0] ? "/" : "";
  int length = snprintf(out, size, "%s%s%s", *separator ? start_directory : "", separator, filled);
  if (length < 0 || (size_t)length + sizeof(host) + 64 > size)
    return -ENAMETOOLONG;
  r = make_parents(out);
  if (r == 0)
    r = check_base(out);
  if (r < 0)
    return r;
  uint64_t start = sl_clock_ns(CLOCK_REALTIME);
  snprintf(out + length, size - (size_t)length, "/%s-%d-%llx", host, (int)getpid(), (unsigned long long)start);
  r = make_private(out);
  if (r == 0 && is_anothers(out, (size_t)length)) {
    rmdir(out);
    r = -EPERM;
  }
  return r;
}
