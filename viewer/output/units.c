/* Writes bytes, times and shares as people read them. */
#include "output/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *sl_format_bytes(char buffer[SL_UNIT_CHARS], int64_t bytes, bool exact) {
  static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double magnitude = bytes < 0 ? -(double)bytes : (double)bytes;

  if (exact) {
    snprintf(buffer, SL_UNIT_CHARS, "%" PRId64, bytes);
    return buffer;
  }
  if (magnitude < 1024) {
    snprintf(buffer, SL_UNIT_CHARS, "%" PRId64 " B", bytes);
    return buffer;
  }
  unsigned unit = 0;
  magnitude /= 1024;
  /* 1023.95 would print as 1024.0 of the smaller unit. */
  while (magnitude >= 1023.95 && unit + 1 < sizeof(names) / sizeof(names[0])) {
    magnitude /= 1024;
    unit++;
  }
  snprintf(buffer, SL_UNIT_CHARS, "%s%.*f %s", bytes < 0 ? "-" : "", unit >= 2 ? 2 : 1, magnitude, names[unit]);
  return buffer;
}

const char *sl_format_duration(char buffer[SL_UNIT_CHARS], int64_t ns) {
  double magnitude = ns < 0 ? -(double)ns : (double)ns;
  const char *sign = ns < 0 ? "-" : "";

  if (magnitude < 1e3)
    snprintf(buffer, SL_UNIT_CHARS, "%" PRId64 " ns", ns);
  else if (magnitude < 1e6)
    snprintf(buffer, SL_UNIT_CHARS, "%s%.1f us", sign, magnitude / 1e3);
  else if (magnitude < 1e9)
    snprintf(buffer, SL_UNIT_CHARS, "%s%.1f ms", sign, magnitude / 1e6);
  else if (magnitude < 60e9)
    snprintf(buffer, SL_UNIT_CHARS, "%s%.2f s", sign, magnitude / 1e9);
  else
    snprintf(buffer, SL_UNIT_CHARS, "%s%" PRId64 " min %02d s", sign, (int64_t)(magnitude / 60e9),
             (int)((int64_t)(magnitude / 1e9) % 60));
  return buffer;
}

const char *sl_format_instant(char buffer[SL_UNIT_CHARS], int64_t ns) {
  time_t seconds = ns / 1000000000;
  struct tm parts;
  char date[24];

  if (ns < 0 || !gmtime_r(&seconds, &parts) || strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &parts) == 0)
    snprintf(buffer, SL_UNIT_CHARS, "%" PRId64 " ns", ns); /* not a time that any clock gave */
  else
    snprintf(buffer, SL_UNIT_CHARS, "%s.%03d UTC", date, (int)(ns % 1000000000 / 1000000));
  return buffer;
}

const char *sl_format_share(char buffer[SL_UNIT_CHARS], double share) {
  if (share > 0 && share < 0.0005)
    snprintf(buffer, SL_UNIT_CHARS, "<0.1%%");
  else
    snprintf(buffer, SL_UNIT_CHARS, "%.1f%%", share * 100);
  return buffer;
}

double sl_share(int64_t part, int64_t whole) {
  return whole > 0 ? (double)part / (double)whole : 0;
}

/* Digits with at most one point between them; *rest is what follows them and one blank. -EINVAL when there are none. */
static int parse_decimal(const char *text, uint64_t *whole, double *fraction, const char **rest) {
  const char *at = text;
  double place = 1;
  *whole = 0;
  *fraction = 0;
  for (; *at >= '0' && *at <= '9'; at++) {
    if (*whole > (UINT64_MAX - 9) / 10)
      return -ERANGE;
    *whole = *whole * 10 + (uint64_t)(*at - '0');
  }
  if (at == text)
    return -EINVAL;
  if (*at == '.') {
    const char *point = at++;
    for (; *at >= '0' && *at <= '9'; at++) {
      place /= 10;
      *fraction += place * (*at - '0');
    }
    if (at == point + 1)
      return -EINVAL;
  }
  *rest = *at == ' ' && at[1] ? at + 1 : at;
  return 0;
}

int sl_parse_bytes(const char *text, int64_t *out) {
  static const struct {
    const char *name;
    int64_t bytes;
  } units[] = {
      {"", 1},
      {"B", 1},
      {"KiB", 1LL << 10},
      {"MiB", 1LL << 20},
      {"GiB", 1LL << 30},
      {"TiB", 1LL << 40},
      {"PiB", 1LL << 50},
      {"KB", 1000LL},
      {"MB", 1000000LL},
      {"GB", 1000000000LL},
      {"TB", 1000000000000LL},
      {"PB", 1000000000000000LL},
  };
  const char *unit = NULL;
  uint64_t whole = 0;
  double fraction = 0;
  int64_t factor = 0;

  int r = parse_decimal(text, &whole, &fraction, &unit);
  if (r < 0)
    return r;
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
    if (strcmp(unit, units[i].name) == 0)
      factor = units[i].bytes;
  if (factor == 0 || (factor == 1 && fraction != 0))
    return -EINVAL;
  if (whole >= (uint64_t)(INT64_MAX / factor))
    return -ERANGE;
  *out = (int64_t)whole * factor + (int64_t)(fraction * (double)factor + 0.5);
  return 0;
}

int sl_parse_percent(const char *text, double *out) {
  const char *rest = NULL;
  uint64_t whole = 0;
  double fraction = 0;
  if (parse_decimal(text, &whole, &fraction, &rest) < 0 || strcmp(rest, "%") != 0)
    return -EINVAL;
  *out = ((double)whole + fraction) / 100;
  return 0;
}
