#include "exports/demangle.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef char *demangler(const char *name, char *buffer, size_t *length, int *status);

/* The C++ runtime's own, where there is one: this program is C and links none. */
static demangler *find_demangler(void) {
  static demangler *found;
  static int asked;
  if (!asked) {
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
      library = dlopen("libc++abi.so.1", RTLD_LAZY | RTLD_LOCAL);
    found = library ? (demangler *)dlsym(library, "__cxa_demangle") : NULL;
    asked = 1;
  }
  return found;
}

char *sl_demangle(const char *name) {
  demangler *demangle = strncmp(name, "_Z", 2) == 0 ? find_demangler() : NULL;
  int status = -1;
  char *written = demangle ? demangle(name, NULL, NULL, &status) : NULL;
  if (written && status == 0)
    return written;
  free(written);
  return strdup(name);
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
