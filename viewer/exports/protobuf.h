/*
 * Protocol buffers' wire format, as much of it as an export writes. A message is built in memory and is small; what
 * does not fit into memory is remembered and told by the last call.
 *
 *   uint32 7 = 300:  tag 0x38 (7 << 3 | 0), then 300 in groups of seven bits, the lowest first: 0xac 0x02
 *   string 2 = "hi": tag 0x12 (2 << 3 | 2), length 0x02, then 0x68 0x69
 */
#ifndef SHARDLEDGER_PROTOBUF_H
#define SHARDLEDGER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_message {
  unsigned char *bytes; /* owned */
  size_t length, room;
  bool failed; /* memory ran out */
};

/* A negative number is its 64 bits, as int32 and int64 have it. */
void sl_message_integer(struct sl_message *message, int field, uint64_t value);
void sl_message_fixed64(struct sl_message *message, int field, uint64_t value);

/* text that is not UTF-8 is mended: strings have to be. */
void sl_message_text(struct sl_message *message, int field, const char *text);
void sl_message_message(struct sl_message *message, int field, const struct sl_message *inner);

/* Empty again, with its memory kept. */
void sl_message_reset(struct sl_message *message);
void sl_message_free(struct sl_message *message);

#endif
