/* Finds the Python package that was installed with the library. */
#include "package_place.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Relative to the library's directory. What pip installed is known by its record, which names the version: an older
 * Python's site-packages below the same prefix may have another. The last place is that of `pip install --target`.
 */
#define RECORD "shardledger-" SL_VERSION ".dist-info"
static const char *const patterns[] = {
    "python/shardledger",
    "python3*/*-packages/" RECORD,
    "../lib64/python3*/*-packages/" RECORD,
    "../" RECORD,
};

/* The pattern with the directory before it, in which no character means anything but itself. */
static void below(char *out, size_t size, const char *library, size_t length, const char *pattern) {
  size_t at = 0;
  for (size_t i = 0; i <= length && at + 2 < size; i++) {
    if (strchr("*?[\\", library[i]))
      out[at++] = '\\';
    out[at++] = library[i];
  }
  snprintf(out + at, size - at, "%s", pattern);
}

int sl_find_package(const char *library, char *out, size_t size) {
  char pattern[2 * PATH_MAX];
  const char *slash = strrchr(library, '/');
  out[0] = '\0';
  for (size_t i = 0; slash && !out[0] && i < sizeof(patterns) / sizeof(patterns[0]); i++) {
    glob_t found = {0};
    below(pattern, sizeof(pattern), library, (size_t)(slash - library), patterns[i]);
    if (glob(pattern, 0, NULL, &found) == 0) {
      const char *path = found.gl_pathv[0];
      int length = snprintf(out, size, "%.*s/shardledger", (int)(strrchr(path, '/') - path), path);
      if (length < 0 || (size_t)length >= size || access(out, X_OK) < 0)
        out[0] = '\0';
    }
    globfree(&found);
  }
  return out[0] ? 0 : -ENOENT;
}
