#include "units.h"

#include <inttypes.h>
#include <stdio.h>
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
