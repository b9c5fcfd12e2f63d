/*
 * An option that is not valid has its default and one line that says so: a typing error never costs a job. Values are
 * copied at the first question, since the program may change its environment later.
 */
#include "config.h"

#include "held_signals.h"
#include "undisturbed.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct option_info {
  const char *name, *fallback, *values, *meaning;
};

static const struct option_info options[SL_OPTION_count] = {
#define OPTION(id, name, fallback, values, meaning) [SL_OPTION_##id] = {name, fallback, values, meaning},
    SL_OPTIONS(OPTION)
#undef OPTION
};

static struct sl_once once = SL_ONCE_INIT;
static const char *texts[SL_OPTION_count];
static uint64_t max_bytes;

/* The texts are copied, since the program may change its environment; without malloc, which may fail. */
#define TEXT_BYTES 8192u
static char copies[TEXT_BYTES];
static size_t copies_used;

/* NULL when it is longer than any value needs to be. */
static const char *text_copy(const char *text) {
  const size_t bytes = strlen(text) + 1;
  if (bytes > TEXT_BYTES - copies_used)
    return NULL;
  char *copy = memcpy(copies + copies_used, text, bytes);
  copies_used += bytes;
  return copy;
}

static bool parse_number(const char **text, uint64_t *out) {
  if (**text < '0' || **text > '9')
    return false;
  char *end;
  errno = 0;
  *out = strtoull(*text, &end, 10);
  *text = end;
  return errno == 0;
}

static bool parse_bytes(const char *text, uint64_t *out) {
  static const struct {
    const char *suffix;
    unsigned shift;
  } units[] = {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  uint64_t number;
  if (!parse_number(&text, &number))
    return false;
  while (*text == ' ')
    text++;
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
    if (strcmp(text, units[i].suffix) == 0 && number <= UINT64_MAX >> units[i].shift) {
      *out = number << units[i].shift;
      return true;
    }
  return false;
}

static bool is_step_window(const char *text) {
  uint64_t first, end;
  return parse_number(&text, &first) && *text++ == ':' && parse_number(&text, &end) && *text == '\0' && first < end;
}

static bool is_depth(const char *text) {
  uint64_t depth;
  return parse_number(&text, &depth) && *text == '\0' && depth < 1000;
}

/* True when text is one of the words of "a|b|c"; what follows a comma is prose. */
static bool is_choice(const char *values, const char *text) {
  size_t length = strlen(text);
  while (length > 0) {
    size_t word = strcspn(values, "|,");
    if (word == length && strncmp(values, text, length) == 0 && !(word == 1 && *values == 'N'))
      return true;
    if (values[word] != '|')
      break;
    values += word + 1;
  }
  return false;
}

static bool is_valid(enum sl_option option, const char *text) {
  uint64_t bytes;
  switch (option) {
  case SL_OPTION_dir: return *text != '\0' && strlen(text) < 3000;
  case SL_OPTION_steps:
  case SL_OPTION_stacks: return is_choice(options[option].values, text) || is_step_window(text);
  case SL_OPTION_max_bytes: return parse_bytes(text, &bytes);
  case SL_OPTION_modules: return is_choice(options[option].values, text) || is_depth(text);
  default: return is_choice(options[option].values, text);
  }
}

/* One write(2), so that lines of several ranks on one terminal do not mix. */
static void write_line(const char *format, va_list arguments) {
  char line[1200] = "shardledger: ";
  const size_t prefix = strlen(line);
  int length = vsnprintf(line + prefix, sizeof(line) - prefix - 1, format, arguments);
  if (length < 0)
    return;
  size_t used = strlen(line);
  line[used++] = '\n';
  struct sl_held_signals held;
  sl_signals_hold(&held);
  ssize_t written = write(STDERR_FILENO, line, used);
  sl_signals_release(&held, written < 0); /* There is nobody left to tell. */
}

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line(format, arguments);
  va_end(arguments);
}

static void read_options(void) {
  for (int i = 0; i < SL_OPTION_count; i++)
    texts[i] = options[i].fallback;
  /* Backwards, so that the last option, SHARDLEDGER_LOG, already rules what is said about the others. */
  for (int i = SL_OPTION_count - 1; i >= 0; i--) {
    const char *text = secure_getenv(options[i].name);
    if (!text || *text == '\0')
      continue;
    const char *copy = is_valid(i, text) ? text_copy(text) : NULL;
    if (copy)
      texts[i] = copy;
    else if (strcmp(texts[SL_OPTION_log], "quiet") != 0)
      say("%s=%.100s is not valid (%s); using \"%s\"", options[i].name, text, options[i].values, options[i].fallback);
  }
  parse_bytes(texts[SL_OPTION_max_bytes], &max_bytes);
}

const char *sl_option_text(enum sl_option option) {
  sl_once(&once, read_options);
  return texts[option];
}

const char *sl_option_named(const char *name) {
  for (int i = 0; i < SL_OPTION_count; i++)
    if (strcmp(options[i].name, name) == 0)
      return sl_option_text(i);
  return NULL;
}

uint64_t sl_option_max_bytes(void) {
  sl_once(&once, read_options);
  return max_bytes;
}

void sl_options_print(FILE *stream) {
  for (int i = 0; i < SL_OPTION_count; i++) {
    const struct option_info *o = &options[i];
    fprintf(stream, "%s\n    %s.\n    Values: %s. Default: %s\n", o->name, o->meaning, o->values,
            *o->fallback ? o->fallback : "empty");
  }
}

void sl_say(const char *format, ...) {
  if (strcmp(sl_option_text(SL_OPTION_log), "quiet") == 0)
    return;
  va_list arguments;
  va_start(arguments, format);
  write_line(format, arguments);
  va_end(arguments);
}

void sl_debug(const char *format, ...) {
  if (strcmp(sl_option_text(SL_OPTION_log), "debug") != 0)
    return;
  va_list arguments;
  va_start(arguments, format);
  write_line(format, arguments);
  va_end(arguments);
}
