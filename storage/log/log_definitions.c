/*
 * What events refer to: names, facts, the allocator's places. All of it is read before the first event, since a
 * thread's events may come before their definitions in time.
 */
#include "log_state.h"

static void define_place(struct sl_log *log, const struct sl_event_allocator_place *place) {
  if (place->id < 65536 && place->device < DEVICES_MAX)
    log->place_device[place->id] = (uint8_t)place->device;
}

int sl_definition_take(struct sl_log *log, uint8_t type, const void *fields) {
  switch (type) {
  case SL_EVENT_string: return sl_log_names_string(&log->names, fields);
  case SL_EVENT_info: return sl_log_names_info(&log->names, fields);
  case SL_EVENT_allocator_place: define_place(log, fields); return 0;
  default: return 0;
  }
}

int sl_definitions_read(struct sl_log *log) {
  int r = 0;
  while (r == 0 && sl_stream_advance(log, &log->definitions))
    r = sl_definition_take(log, log->definitions.type, log->definitions.payload);
  return r;
}
