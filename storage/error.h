/* One sentence about what went wrong and what to do next, filled by the function that failed. */
#ifndef SHARDLEDGER_ERROR_H
#define SHARDLEDGER_ERROR_H

#include <errno.h>

/* Beside errno's: a file of a log can't be read for now (its disk, permissions …), which is no damage. */
#define SL_LOG_UNREADABLE EREMOTEIO

struct sl_error {
  char text[1024]; /* NUL-terminated, without a newline; "" when nothing failed */
};

/* Formats the sentence and returns code (a negative errno), so that a caller can write `return sl_error_set(…)`. */
int sl_error_set(struct sl_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "out of memory": returns -ENOMEM. */
int sl_no_memory(struct sl_error *error);

/* The result of what fails for want of memory only, with its sentence. */
static inline int sl_or_no_memory(int r, struct sl_error *error) {
  return r < 0 ? sl_no_memory(error) : r;
}

#endif
