/* Finds the other parts of ShardLedger from this binary. */
#include "installation.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SL_LIBRARY_DIRECTORY is the installation's library directory relative to its prefix: lib, lib64,
 * lib/x86_64-linux-gnu. */
static const char *const places[] = {"../lib", "../" SL_LIBRARY_DIRECTORY};

int sl_find_plugin(char *out, size_t size) {
  char binary[PATH_MAX];
  char candidate[PATH_MAX + 128];
  char *resolved = NULL;
  ssize_t length = readlink("/proc/self/exe", binary, sizeof(binary) - 1);
  if (length < 0)
    length = 0;
  binary[length] = '\0';
  char *slash = strrchr(binary, '/');
  if (slash)
    *slash = '\0';

  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !resolved; i++) {
    snprintf(candidate, sizeof(candidate), "%s/%s/" SL_PLUGIN_NAME, binary, places[i]);
    resolved = realpath(candidate, NULL);
  }
  if (resolved && strlen(resolved) < size) {
    strcpy(out, resolved);
    free(resolved);
    return 0;
  }
  free(resolved);
  snprintf(out, size, "%s/%s/" SL_PLUGIN_NAME, binary, places[0]);
  return -ENOENT;
}
