/* `shardledger dump`: a log's events as text. */
#include "command.h"
#include "open_ledger.h"
#include "output/text.h"
#include "plugin/format/events.h"
#include "storage/log/event_table.h"
#include "storage/log/log_reader.h"
#include "storage/rank_ranges.h"
#include "storage/run/run_directory.h"
#include "storage/snapshot/snapshot_log.h"
#include "storage/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SCREEN = 40 }; /* records where no limit is given */

struct selection {
  int type;      /* enum sl_event_type; 0: all */
  int64_t limit; /* records left to print */
};

static const char *action_name(uint64_t action) {
  static const char *const names[] = {
      [SL_ALLOC] = "alloc",
      [SL_FREE_REQUESTED] = "free_requested",
      [SL_FREE_COMPLETED] = "free_completed",
      [SL_SEGMENT_ALLOC] = "segment_alloc",
      [SL_SEGMENT_FREE] = "segment_free",
      [SL_SEGMENT_MAP] = "segment_map",
      [SL_SEGMENT_UNMAP] = "segment_unmap",
      [SL_ALLOCATOR_SNAPSHOT] = "snapshot",
      [SL_OUT_OF_MEMORY] = "out_of_memory",
      [SL_ALLOCATOR_OTHER] = "other",
  };
  return action < sizeof(names) / sizeof(names[0]) ? names[action] : NULL;
}

static const char *memory_kind_name(uint64_t kind) {
  static const char *const names[] = {
      [SL_MEMORY_UNKNOWN] = "unknown",
      [SL_MEMORY_PAGEABLE] = "pageable",
      [SL_MEMORY_PINNED] = "pinned",
      [SL_MEMORY_DEVICE] = "device",
      [SL_MEMORY_ARRAY] = "array",
      [SL_MEMORY_MANAGED] = "managed",
      [SL_MEMORY_DEVICE_STATIC] = "device_static",
      [SL_MEMORY_MANAGED_STATIC] = "managed_static",
  };
  return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : NULL;
}

static uint64_t field_value(const void *payload, const struct sl_field *field) {
  uint64_t value = 0;
  memcpy(&value, (const char *)payload + field->offset, field->size); /* little-endian, as the log is */
  return value;
}

/* Quoted, so that a line splits at its blanks. */
static void print_text(struct sl_output *out, const char *text) {
  char *clean = text ? sl_clean_text(text) : NULL;
  if (!clean)
    out->failed = -ENOMEM;
  putchar('"');
  for (const char *p = clean ? clean : ""; *p; p++) {
    if (*p == '"')
      putchar('\\');
    putchar(*p);
  }
  putchar('"');
  free(clean);
}

static void print_name(const char *name, uint64_t value) {
  if (name)
    printf("%s", name);
  else
    printf("%" PRIu64, value);
}

static void print_field(struct sl_output *out, struct sl_log *log, const struct sl_field *field, uint64_t value) {
  printf(" %s=", field->name);
  switch ((enum sl_field_kind)field->kind) {
  case SL_FIELD_address: printf("0x%" PRIx64, value); break;
  case SL_FIELD_time: printf("%" PRIu64 ".%09" PRIu64, value / 1000000000, value % 1000000000); break;
  case SL_FIELD_string: print_text(out, sl_log_string(log, (uint32_t)value)); break;
  case SL_FIELD_action: print_name(action_name(value), value); break;
  case SL_FIELD_memory_kind: print_name(memory_kind_name(value), value); break;
  default: printf("%" PRIu64, value);
  }
}

static void print_tail(struct sl_output *out, const struct sl_event *event, const struct sl_event_layout *layout) {
  const char *tail = (const char *)event->payload + layout->bytes;
  uint64_t length = field_value(event->payload, &layout->fields[layout->tail_length]);
  if (length > event->bytes - layout->bytes)
    length = event->bytes - layout->bytes;
  if (layout->tail == SL_FIELD_text) {
    char *text = strndup(tail, length);
    printf(" text=");
    print_text(out, text);
    free(text);
    return;
  }
  printf(" data=");
  for (uint64_t i = 0; i < length; i++)
    printf("%02x", (unsigned char)tail[i]);
}

static void print_event(struct sl_output *out, struct sl_log *log, const struct sl_event *event) {
  const struct sl_event_layout *layout = sl_event_layout(event->type);
  printf("%" PRIu64 ".%09" PRIu64 " %" PRIu32 " ", event->time_ns / 1000000000, event->time_ns % 1000000000,
         event->tid);
  if (!layout->name) {
    printf("type_%u\n", event->type);
    return;
  }
  printf("%s", layout->name);
  for (int i = 0; i < layout->field_count; i++)
    print_field(out, log, &layout->fields[i], field_value(event->payload, &layout->fields[i]));
  if (layout->tail >= 0)
    print_tail(out, event, layout);
  putchar('\n');
}

static int dump_process(const char *directory, struct selection *selection, struct sl_output *out,
                        struct sl_error *error) {
  struct sl_log *log = NULL;
  struct sl_event event;
  struct sl_log_counts counts;
  int r = sl_recording_open(directory, &log, error);
  if (r < 0)
    return r;

  while (selection->limit != 0 && (r = sl_log_next(log, &event, error)) > 0) {
    if (selection->type && event.type != selection->type)
      continue;
    errno = 0;
    print_event(out, log, &event);
    if (ferror(stdout))
      out->failed = errno ? -errno : -EIO;
    if (out->failed)
      break;
    selection->limit--;
  }
  sl_log_counts(log, &counts);
  fflush(stdout);
  sl_complain("%s: %" PRIu64 " events read, %" PRIu64 " lost, %" PRIu64 " of %" PRIu64 " segments damaged (%" PRIu64
              " bytes skipped)",
              directory, counts.events, counts.lost, counts.damaged_segments, counts.segments, counts.skipped_bytes);
  if (counts.newer_records)
    sl_complain("%s: %" PRIu64 " records of %" PRIu32 " kinds are of a newer version and were skipped", directory,
                counts.newer_records, counts.newer_kinds);
  log = sl_log_close(log);
  return r < 0 ? r : 0;
}

static int find_type(const char *name) {
  const char *nearest = NULL;
  int least = sl_word_slip(name) + 1;
  for (int type = 1; type < 256; type++) {
    const struct sl_event_layout *layout = sl_event_layout((uint8_t)type);
    if (!layout->name)
      continue;
    int distance = sl_word_distance(name, layout->name);
    if (distance == 0)
      return type;
    if (distance < least) {
      least = distance;
      nearest = layout->name;
    }
  }
  if (nearest) {
    sl_complain("dump: there is no event type '%s'; did you mean '%s'?", name, nearest);
    return -EINVAL;
  }
  char all[1024] = "";
  for (int type = 1; type < 256; type++)
    if (sl_event_layout((uint8_t)type)->name) {
      size_t used = strlen(all);
      snprintf(all + used, sizeof(all) - used, " %s", sl_event_layout((uint8_t)type)->name);
    }
  sl_complain("dump: there is no event type '%s'; there are:%s", name, all);
  return -EINVAL;
}

/* The process directories to dump: those of one run and of these ranks, in their order, or all. Their number, or a
 * negative errno, which has been said. */
static int processes_list(const char *directory, const char *run, const char *ranks, char ***out) {
  struct sl_run chosen = {0};
  struct sl_error note = {{0}}, error = {{0}};
  int count = 0, r = 0;
  if (!run && !ranks) {
    count = sl_run_paths(directory, out);
    if (count < 0)
      sl_complain("%s: %s; name a run directory or a process directory", directory, strerror(-count));
    return count;
  }
  r = sl_run_open(&directory, 1, run, &chosen, &note, &error);
  char **paths = r < 0 ? NULL : calloc(chosen.count, sizeof *paths);
  if (r == 0 && !paths)
    r = sl_no_memory(&error);
  for (size_t i = 0; r == 0 && i < chosen.count; i++) {
    if (!sl_rank_ranges_has(ranks, chosen.processes[i].rank))
      continue;
    if ((paths[count] = strdup(chosen.processes[i].path)))
      count++;
    else
      r = sl_no_memory(&error);
  }
  if (r == 0 && chosen.count && !count)
    r = sl_error_set(&error, -ENOENT, "there is no rank %s; 'shardledger info' lists those that were recorded", ranks);
  if (r < 0) {
    sl_complain("%s", error.text);
    sl_paths_free(paths, count);
    paths = NULL;
  }
  *out = paths;
  sl_run_close(&chosen);
  return r < 0 ? r : count;
}

int sl_cmd_dump(const struct sl_command *command, int argc, char **argv) {
  struct selection selection = {0, 0};
  const char *type = NULL, *run = NULL, *ranks = NULL;
  const struct sl_argument arguments[] = {
      {"type", 0, "NAME", "only events of this type", SL_ARGUMENT_TEXT, &type},
      {"limit", 0, "N|all", "stop after this many lines (default: 40)", SL_ARGUMENT_LIMIT, &selection.limit},
      {"run", 0, "RUN", "of several runs in DIR this one alone: its number or id (docs/runs.md)", SL_ARGUMENT_TEXT,
       &run},
      {"rank", 0, "RANKS", "these ranks only, such as 7 or 0-3,7", SL_ARGUMENT_RANKS, &ranks},
  };
  const char *directory = sl_default_directory();
  struct sl_error error = {{0}};
  struct sl_output out;
  char **processes = NULL;
  int r = sl_parse(command, arguments, sizeof arguments / sizeof arguments[0], argc, argv, &directory, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (type) {
    selection.type = find_type(type);
    if (selection.type < 0)
      return SL_EXIT_USAGE;
  }

  sl_output_open(&out, SL_FORMAT_text, false);
  int count = processes_list(directory, run, ranks, &processes);
  if (count < 0)
    return SL_EXIT_USAGE;
  if (count == 0)
    sl_complain("%s: no logs here; record a run with 'shardledger run -- CMD'", directory);
  r = count == 0 ? -ENODATA : 0;
  const bool is_screen = selection.limit == 0;
  if (is_screen)
    selection.limit = SCREEN;
  for (int i = 0; i < count && selection.limit != 0 && out.failed == 0; i++) {
    int process = dump_process(processes[i], &selection, &out, &error);
    if (process < 0) {
      sl_complain("%s", error.text);
      r = process; /* what the other processes recorded can still be shown */
    }
  }
  sl_paths_free(processes, count);
  if (is_screen && selection.limit == 0)
    sl_output_line(&out, "The first %d records; the others with --limit all", SCREEN);
  return sl_output_close(&out) < 0 || r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
