/* Writes protocol buffers. */
#include "exports/protobuf.h"
#include "output/text.h"

#include <stdlib.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2 };

static void append(struct sl_message *m, const void *bytes, size_t length) {
  if (m->failed || length == 0)
    return;
  if (m->length + length > m->room) {
    size_t room = (m->length + length) * 2 + 64;
    unsigned char *more = realloc(m->bytes, room);
    if (!more) {
      m->failed = true;
      return;
    }
    m->bytes = more;
    m->room = room;
  }
  memcpy(m->bytes + m->length, bytes, length);
  m->length += length;
}

static void append_varint(struct sl_message *m, uint64_t value) {
  unsigned char bytes[10];
  size_t length = 0;
  for (; value >= 0x80; value >>= 7)
    bytes[length++] = (unsigned char)(value | 0x80);
  bytes[length++] = (unsigned char)value;
  append(m, bytes, length);
}

static void append_tag(struct sl_message *m, int field, enum wire_type type) {
  append_varint(m, (uint64_t)field << 3 | type);
}

void sl_message_integer(struct sl_message *message, int field, uint64_t value) {
  append_tag(message, field, WIRE_VARINT);
  append_varint(message, value);
}

void sl_message_fixed64(struct sl_message *message, int field, uint64_t value) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++)
    bytes[i] = (unsigned char)(value >> (8 * i));
  append_tag(message, field, WIRE_FIXED64);
  append(message, bytes, sizeof(bytes));
}

void sl_message_text(struct sl_message *message, int field, const char *text) {
  size_t length = 0;
  uint32_t c = 0;
  for (const char *at = text; *at;) {
    int taken = sl_text_next(at, &c);
    length += c == SL_REPLACEMENT ? 3 : taken;
    at += taken;
  }
  append_tag(message, field, WIRE_BYTES);
  append_varint(message, length);
  while (*text) {
    int taken = sl_text_next(text, &c);
    if (c == SL_REPLACEMENT)
      append(message, "\xef\xbf\xbd", 3);
    else
      append(message, text, taken);
    text += taken;
  }
}

void sl_message_message(struct sl_message *message, int field, const struct sl_message *inner) {
  append_tag(message, field, WIRE_BYTES);
  append_varint(message, inner->length);
  append(message, inner->bytes, inner->length);
  message->failed |= inner->failed;
}

void sl_message_reset(struct sl_message *message) {
  message->length = 0;
}

void sl_message_free(struct sl_message *message) {
  free(message->bytes);
  *message = (struct sl_message){0};
}
