/* Turns mangled names of GPU kernels into C++. */
#include "exports/demangle.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef char *demangler(const char *name, char *buffer, size_t *length, int *status);

enum { NO_MEMORY = -1, NOT_MANGLED = -2 }; /* __cxa_demangle's status */

static void *open_library(const char *name, bool *out_of_memory) {
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  const char *reason = library ? NULL : dlerror();
  *out_of_memory |= !library && (!reason || strstr(reason, strerror(ENOMEM)));
  return library;
}

/* The C++ runtime's own, where there is one: this program is C and links none. */
static demangler *find_demangler(bool *out_of_memory) {
  static demangler *found;
  static bool asked;
  if (!asked) {
    void *library = open_library("libstdc++.so.6", out_of_memory);
    if (!library)
      library = open_library("libc++abi.so.1", out_of_memory);
    found = library ? (demangler *)dlsym(library, "__cxa_demangle") : NULL;
    asked = !*out_of_memory;
  }
  return found;
}

char *sl_demangle(const char *name) {
  bool out_of_memory = false;
  demangler *demangle = strncmp(name, "_Z", 2) == 0 ? find_demangler(&out_of_memory) : NULL;
  int status = NOT_MANGLED;
  char *written = demangle ? demangle(name, NULL, NULL, &status) : NULL;
  if (written && status == 0)
    return written;
  free(written);
  return out_of_memory || status == NO_MEMORY ? NULL : strdup(name);
}

char *sl_short_name(const char *written) {
  int depth = 0;
  const char *start = written, *end = NULL;
  /* "void ns::f<int, (a)1>(int*)": the last word outside of brackets before the parameters. */
  for (const char *at = written; *at && !end; at++) {
    if (*at == '<' || (*at == '(' && depth > 0) || strncmp(at, "(anonymous", 10) == 0)
      depth++;
    else if ((*at == '>' || *at == ')') && depth > 0)
      depth--;
    else if (depth == 0 && *at == '(')
      end = at;
    else if (depth == 0 && (*at == ' ' || *at == ':'))
      start = at + 1;
  }
  size_t length = 0;
  while (start[length] && start + length != end && start[length] != '<')
    length++;
  return length > 0 ? strndup(start, length) : strdup(written);
}
