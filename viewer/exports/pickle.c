/* Writes Python's pickle format. */
#include "exports/pickle.h"
#include "output/text.h"
#include "storage/snapshot/pickle_opcodes.h"

#include <string.h>

static void put_little_endian(FILE *file, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    putc_unlocked((int)(value >> (8 * i) & 0xff), file);
}

void sl_pickle_begin(struct sl_pickle *pickle, FILE *file) {
  *pickle = (struct sl_pickle){.file = file};
  putc_unlocked(SL_PICKLE_PROTO, file);
  putc_unlocked(2, file);
}

void sl_pickle_end(struct sl_pickle *pickle) {
  putc_unlocked(SL_PICKLE_STOP, pickle->file);
}

void sl_pickle_open_dict(struct sl_pickle *pickle) {
  fputs_unlocked("}(", pickle->file);
}

void sl_pickle_close_dict(struct sl_pickle *pickle) {
  putc_unlocked(SL_PICKLE_SETITEMS, pickle->file);
}

void sl_pickle_open_list(struct sl_pickle *pickle) {
  fputs_unlocked("](", pickle->file);
}

void sl_pickle_close_list(struct sl_pickle *pickle) {
  putc_unlocked(SL_PICKLE_APPENDS, pickle->file);
}

void sl_pickle_between(struct sl_pickle *pickle, int64_t items) {
  if (items > 0 && items % 1000 == 0)
    fputs_unlocked("e(", pickle->file);
}

void sl_pickle_text(struct sl_pickle *pickle, const char *text) {
  uint32_t c = 0, length = 0;
  for (const char *at = text; *at;) {
    int taken = sl_text_next(at, &c);
    length += c == SL_REPLACEMENT ? 3 : (uint32_t)taken;
    at += taken;
  }
  putc_unlocked(SL_PICKLE_BINUNICODE, pickle->file);
  put_little_endian(pickle->file, length, 4);
  while (*text) {
    int taken = sl_text_next(text, &c);
    if (c == SL_REPLACEMENT)
      fputs_unlocked("\xef\xbf\xbd", pickle->file);
    else
      fwrite_unlocked(text, 1, taken, pickle->file);
    text += taken;
  }
}

/* Mostly the very same constant; another one with the same text costs a comparison. */
static int find_key(const struct sl_pickle *pickle, const char *key) {
  for (int i = 0; i < pickle->key_count; i++)
    if (pickle->keys[i] == key)
      return i;
  for (int i = 0; i < pickle->key_count; i++)
    if (strcmp(pickle->keys[i], key) == 0)
      return i;
  return -1;
}

void sl_pickle_key(struct sl_pickle *pickle, const char *key) {
  int number = find_key(pickle, key);
  if (number >= 0) {
    putc_unlocked(SL_PICKLE_BINGET, pickle->file);
    putc_unlocked(number, pickle->file);
    return;
  }
  sl_pickle_text(pickle, key);
  if (pickle->key_count == (int)(sizeof(pickle->keys) / sizeof(pickle->keys[0])))
    return;
  putc_unlocked(SL_PICKLE_BINPUT, pickle->file);
  putc_unlocked(pickle->key_count, pickle->file);
  pickle->keys[pickle->key_count++] = key;
}

void sl_pickle_integer(struct sl_pickle *pickle, int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    putc_unlocked(SL_PICKLE_BININT, pickle->file);
    put_little_endian(pickle->file, (uint64_t)value, 4);
  } else {
    putc_unlocked(SL_PICKLE_LONG1, pickle->file);
    putc_unlocked(8, pickle->file);
    put_little_endian(pickle->file, (uint64_t)value, 8);
  }
}

void sl_pickle_bool(struct sl_pickle *pickle, bool value) {
  putc_unlocked(value ? SL_PICKLE_NEWTRUE : SL_PICKLE_NEWFALSE, pickle->file);
}

void sl_pickle_pair(struct sl_pickle *pickle, int64_t a, int64_t b) {
  sl_pickle_integer(pickle, a);
  sl_pickle_integer(pickle, b);
  putc_unlocked(SL_PICKLE_TUPLE2, pickle->file);
}
