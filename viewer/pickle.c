#include "pickle.h"
#include "text.h"

#include <string.h>

/* Opcodes of pickletools. */
enum {
  PROTO = 0x80,
  LONG1 = 0x8a,
  TUPLE2 = 0x86,
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
};

static void put_little_endian(FILE *file, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    fputc((int)(value >> (8 * i) & 0xff), file);
}

void sl_pickle_begin(struct sl_pickle *pickle, FILE *file) {
  *pickle = (struct sl_pickle){.file = file};
  fputc(PROTO, file);
  fputc(2, file);
}

void sl_pickle_end(struct sl_pickle *pickle) {
  fputc('.', pickle->file);
}

void sl_pickle_open_dict(struct sl_pickle *pickle) {
  fputs("}(", pickle->file);
}

void sl_pickle_close_dict(struct sl_pickle *pickle) {
  fputc('u', pickle->file);
}

void sl_pickle_open_list(struct sl_pickle *pickle) {
  fputs("](", pickle->file);
}

void sl_pickle_close_list(struct sl_pickle *pickle) {
  fputc('e', pickle->file);
}

void sl_pickle_between(struct sl_pickle *pickle, int64_t items) {
  if (items > 0 && items % 1000 == 0)
    fputs("e(", pickle->file);
}

void sl_pickle_text(struct sl_pickle *pickle, const char *text) {
  uint32_t c = 0, length = 0;
  for (const char *at = text; *at;) {
    int taken = sl_text_next(at, &c);
    length += c == SL_REPLACEMENT ? 3 : (uint32_t)taken;
    at += taken;
  }
  fputc('X', pickle->file);
  put_little_endian(pickle->file, length, 4);
  while (*text) {
    int taken = sl_text_next(text, &c);
    if (c == SL_REPLACEMENT)
      fputs("\xef\xbf\xbd", pickle->file);
    else
      fwrite(text, 1, taken, pickle->file);
    text += taken;
  }
}

void sl_pickle_key(struct sl_pickle *pickle, const char *key) {
  int i = 0;
  while (i < pickle->key_count && pickle->keys[i] != key && strcmp(pickle->keys[i], key) != 0)
    i++;
  if (i < pickle->key_count) {
    fputc('h', pickle->file);
    fputc(i, pickle->file);
    return;
  }
  sl_pickle_text(pickle, key);
  if (i == sizeof(pickle->keys) / sizeof(pickle->keys[0]))
    return;
  pickle->keys[pickle->key_count++] = key;
  fputc('q', pickle->file);
  fputc(i, pickle->file);
}

void sl_pickle_integer(struct sl_pickle *pickle, int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    fputc('J', pickle->file);
    put_little_endian(pickle->file, (uint64_t)value, 4);
  } else {
    fputc(LONG1, pickle->file);
    fputc(8, pickle->file);
    put_little_endian(pickle->file, (uint64_t)value, 8);
  }
}

void sl_pickle_bool(struct sl_pickle *pickle, bool value) {
  fputc(value ? NEWTRUE : NEWFALSE, pickle->file);
}

void sl_pickle_pair(struct sl_pickle *pickle, int64_t a, int64_t b) {
  sl_pickle_integer(pickle, a);
  sl_pickle_integer(pickle, b);
  fputc(TUPLE2, pickle->file);
}
