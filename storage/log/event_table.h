/* The event types as data, made from plugin/format/events.def: the reader checks lengths with it, `dump` prints from
 * it. */
#ifndef SHARDLEDGER_EVENT_TABLE_H
#define SHARDLEDGER_EVENT_TABLE_H

#include "plugin/format/events.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_field_kind {
  SL_FIELD_number,
  SL_FIELD_address,
  SL_FIELD_bytes,
  SL_FIELD_time,
  SL_FIELD_string,
  SL_FIELD_action,
  SL_FIELD_memory_kind,
  SL_FIELD_text, /* tail */
  SL_FIELD_raw,  /* tail */
};

struct sl_field {
  const char *name;
  uint16_t offset;
  uint8_t size; /* 1, 2, 4 or 8; 0 for a tail */
  uint8_t kind; /* enum sl_field_kind */
};

struct sl_event_layout {
  const char *name; /* NULL: no such type */
  const char *meaning;
  uint16_t bytes;      /* of the fields, without the tail */
  uint8_t field_count; /* without the tail */
  int8_t tail;         /* kind of the tail, or -1 */
  uint8_t tail_length; /* index of the field that holds the tail's length */
  const struct sl_field *fields;
};

extern struct sl_event_layout sl_event_layouts[256];

/* Never NULL; name is NULL for unknown types. */
static inline const struct sl_event_layout *sl_event_layout(uint8_t type) {
  return &sl_event_layouts[type];
}

/* Whether events of this type tell when something happened on the device: their first field does, not their time. */
static inline bool sl_event_is_of_device(uint8_t type) {
  return type == SL_EVENT_kernel || type == SL_EVENT_memory_copy || type == SL_EVENT_memory_set ||
         type == SL_EVENT_activity_memory;
}

#endif
