/* A sentence that is too long loses its middle: what went wrong stands at its end. */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WHOLE = 8192 }; /* a path may have 4096 bytes, and a sentence two of them */

int sl_error_set(struct sl_error *error, int code, const char *format, ...) {
  static const char left_out[] = " … ";
  const size_t half = (sizeof(error->text) - sizeof left_out) / 2;
  char whole[WHOLE];
  if (!error)
    return code;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(whole, sizeof(whole), format, arguments);
  va_end(arguments);
  const size_t length = strlen(whole);
  if (length < sizeof(error->text)) {
    memcpy(error->text, whole, length + 1);
    return code;
  }
  /* What went wrong stands at the end, and long paths before it. */
  memcpy(error->text, whole, half);
  memcpy(error->text + half, left_out, sizeof left_out - 1);
  strcpy(error->text + half + sizeof left_out - 1, whole + length - half);
  return code;
}

int sl_no_memory(struct sl_error *error) {
  return sl_error_set(error, -ENOMEM, "out of memory");
}
