/*
 * Names come from any program and go to any terminal, file and page: they are made harmless once, where they enter the
 * log, and once more where a log is read.
 */
#include "name.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the valid UTF-8 character at text, or 0. Overlong forms, surrogates and beyond U+10FFFF are not valid. */
static size_t character_length(const unsigned char *text, size_t left) {
  unsigned char first = text[0];
  if (first < 0x80)
    return 1;
  size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || length > left)
    return 0;
  for (size_t i = 1; i < length; i++)
    if ((text[i] & 0xc0) != 0x80)
      return 0;
  unsigned char second = text[1];
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
      (first == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

size_t sl_name_clip(const char *text, size_t length) {
  if (length <= SL_NAME_MAX)
    return length;
  length = SL_NAME_MAX;
  /* A character has at most three continuation bytes; more of them are garbage, to be cut anywhere. */
  for (int back = 0; back < 3 && ((unsigned char)text[length] & 0xc0) == 0x80; back++)
    length--;
  return length;
}

/* Bytes at the beginning that are printable ASCII, as nearly all names are whole; some of them may not be counted. */
static size_t printable_length(const char *text, size_t length) {
  const uint64_t ones = UINT64_C(0x0101010101010101);
  size_t i = 0;
  for (uint64_t eight; i + sizeof eight <= length; i += sizeof eight) {
    memcpy(&eight, text + i, sizeof eight);
    /* The highest bit of a byte that is none: it has it itself, or below 0x20, or as 0x7f + 1. */
    if ((eight | (eight - 0x20 * ones) | (eight + ones)) & 0x80 * ones)
      break;
  }
  return i;
}

size_t sl_name_clean(const char *text, size_t length, char *out) {
  static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
  const unsigned char *from = (const unsigned char *)text;
  size_t used = printable_length(text, length < SL_NAME_MAX ? length : SL_NAME_MAX);
  memcpy(out, text, used);
  for (size_t i = used; i < length;) {
    if (from[i] >= 0x20 && from[i] < 0x7f && used < SL_NAME_MAX) { /* as nearly all are */
      out[used++] = text[i++];
      continue;
    }
    size_t bytes = character_length(from + i, length - i);
    const char *copy = text + i;
    size_t copy_bytes = bytes;
    bool control = from[i] < 0x20 || from[i] == 0x7f || (bytes == 2 && from[i] == 0xc2 && from[i + 1] < 0xa0);
    if (bytes == 0) {
      copy = replacement;
      bytes = 1;
      copy_bytes = sizeof(replacement) - 1;
    } else if (control) {
      copy = "?";
      copy_bytes = 1;
    }
    if (used + copy_bytes > SL_NAME_MAX)
      break;
    memcpy(out + used, copy, copy_bytes);
    used += copy_bytes;
    i += bytes;
  }
  return used;
}
