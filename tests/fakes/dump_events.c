/*
 * Prints the events of one process's log, one a line, for tests that are not in C:
 *
 *   <type> TAB <thread ordinal> TAB <tid> TAB <time_ns> { TAB <field>=<value> }
 *
 * Strings are resolved, numbers are decimal, a text tail is tail=…; backslash, tab and newline are written \\ \t \n.
 * The last line is `counts` with events, lost, damaged_segments. Exit status 1 with a sentence on stderr on failure.
 */
#include "storage/log/event_table.h"
#include "storage/log/log_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_text(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    switch (text[i]) {
    case '\\': fputs("\\\\", stdout); break;
    case '\t': fputs("\\t", stdout); break;
    case '\n': fputs("\\n", stdout); break;
    default: putchar(text[i]);
    }
  }
}

static uint64_t field_value(const struct sl_event *event, const struct sl_field *field) {
  uint64_t value = 0; /* little-endian, so the low bytes come first */
  memcpy(&value, (const char *)event->payload + field->offset, field->size);
  return value;
}

static void print_event(const struct sl_log *log, const struct sl_event *event) {
  const struct sl_event_layout *info = sl_event_layout(event->type);
  printf("%s\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64, info->name ? info->name : "unknown", event->thread, event->tid,
         event->time_ns);
  for (uint8_t i = 0; i < info->field_count; i++) {
    const struct sl_field *field = &info->fields[i];
    uint64_t value = field_value(event, field);
    printf("\t%s=", field->name);
    if (field->kind == SL_FIELD_string) {
      const char *text = sl_log_string(log, (uint32_t)value);
      print_text(text, strlen(text));
    } else {
      printf("%" PRIu64, value);
    }
  }
  if (info->tail == SL_FIELD_text) {
    fputs("\ttail=", stdout);
    print_text((const char *)event->payload + info->bytes,
               (size_t)field_value(event, &info->fields[info->tail_length]));
  }
  putchar('\n');
}

int main(int argc, char **argv) {
  struct sl_log *log = NULL;
  struct sl_error error = {""};
  struct sl_event event;
  struct sl_log_counts counts;
  int r;

  if (argc != 2) {
    fprintf(stderr, "usage: dump_events PROCESS_DIRECTORY\n");
    return 2;
  }
  r = sl_log_open(argv[1], &log, &error);
  if (r < 0)
    goto finish;
  while ((r = sl_log_next(log, &event, &error)) > 0)
    print_event(log, &event);
  sl_log_counts(log, &counts);
  printf("counts\t0\t0\t0\tevents=%" PRIu64 "\tlost=%" PRIu64 "\tdamaged_segments=%" PRIu64 "\n", counts.events,
         counts.lost, counts.damaged_segments);
finish:
  if (r < 0)
    fprintf(stderr, "dump_events: %s\n", error.text);
  log = sl_log_close(log);
  return r < 0;
}
