#include "error.h"

#include <stdarg.h>
#include <stdio.h>

int sl_error_set(struct sl_error *error, int code, const char *format, ...) {
  if (!error)
    return code;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof(error->text), format, arguments);
  va_end(arguments);
  return code;
}
