/* Made when the program is loaded, from the structs that the plugin writes, so that offsets can't differ from them. */
#include "event_table.h"

#include "plugin/format/events.h"

#include <string.h>

#define EVENT_BEGIN(number, name, meaning)
#define FIELD(type, name, kind, meaning) +1
#define TAIL(length_field, kind, meaning)
#define EVENT_END(name)
enum {
  FIELD_COUNT = 0
#include "plugin/format/events.def"
};
#undef EVENT_BEGIN
#undef FIELD
#undef TAIL
#undef EVENT_END

struct sl_event_layout sl_event_layouts[256];
static struct sl_field fields[FIELD_COUNT];

static uint8_t field_index(const struct sl_event_layout *info, const char *name) {
  uint8_t i = 0;
  while (i < info->field_count && strcmp(info->fields[i].name, name) != 0)
    i++;
  return i;
}

/* At load, so that readers on several threads find it filled. Offsets come from the structs that the plugin writes. */
__attribute__((constructor)) static void fill(void) {
  struct sl_field *next = fields;
  for (int i = 0; i < 256; i++)
    sl_event_layouts[i].tail = -1;
#define EVENT_BEGIN(number, event_name, event_meaning)                                                                 \
  {                                                                                                                    \
    typedef struct sl_event_##event_name event;                                                                        \
    struct sl_event_layout *info = &sl_event_layouts[number];                                                          \
    info->name = #event_name;                                                                                          \
    info->meaning = event_meaning;                                                                                     \
    info->bytes = sizeof(event);                                                                                       \
    info->fields = next;
#define FIELD(type, field, field_kind, meaning)                                                                        \
  *next++ = (struct sl_field){#field, offsetof(event, field), sizeof(type), SL_FIELD_##field_kind};                    \
  info->field_count++;
#define TAIL(length_field, tail_kind, meaning)                                                                         \
  info->tail = SL_FIELD_##tail_kind;                                                                                   \
  info->tail_length = field_index(info, #length_field);
#define EVENT_END(event_name)                                                                                          \
  _Static_assert(sizeof(event) % 8 == 0, "records are whole words");                                                   \
  }
#include "plugin/format/events.def"
#undef EVENT_BEGIN
#undef FIELD
#undef TAIL
#undef EVENT_END
}
