/*
 * An open log, as its parts share it. Nobody outside of these includes this:
 *
 *   log_reader.c       opens, follows and closes it
 *   log_stream.c       one thread's records, segment by segment
 *   log_dropped.c      what of them belongs to a part that was dropped
 *   log_definitions.c  what events refer to
 *   log_merge.c        the threads' events in one order
 */
#ifndef SHARDLEDGER_LOG_STATE_H
#define SHARDLEDGER_LOG_STATE_H

#include "log_names.h"
#include "log_reader.h"
#include "log_segments.h"
#include "plugin/format/events.h"
#include "plugin/format/log_format.h"
#include "segment_load.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define FIELDS_MAX 128u /* of the longest event without a tail */
#define DEVICES_MAX SL_DEVICES_MAX
#define NO_DEVICE 0xffu
#define OWN_STRING 0xfffffff0u /* ids from here on are the reader's own, for the gaps that it reports */

enum own_string { OWN_LOG, OWN_ALLOCATOR, OWN_DAMAGED, OWN_MISSING, OWN_HOLE, OWN_COUNT };

struct stream {
  struct sl_segment_entry *next, *end; /* segments still to load */
  struct sl_records records;
  char *at, *stop;
  uint64_t base_ns;
  uint32_t thread, next_sequence; /* of the segments */
  uint32_t given, tid;            /* the thread whose events these are now */
  bool in_gap;                    /* the next event is `gap`, not a record */
  bool idle;                      /* there is no next event, until the log has grown */
  struct sl_event_gap gap;
  bool in_parts;                 /* memory holds a part of the segment only, which goes on behind it */
  uint64_t behind;               /* bytes of the segment behind the part */
  uint32_t part_from;            /* where the part begins in it */
  struct sl_segment_entry entry; /* of the segment, when in parts */

  /* The next event. */
  uint64_t time_ns;
  const void *payload;
  uint32_t bytes;
  uint8_t type;
  uint8_t device;                  /* of an allocator event */
  uint64_t filled[FIELDS_MAX / 8]; /* the payload of a record that is shorter than the event is now */

  /* While it waits for its turn. */
  size_t waiting_at;               /* its place in the order by time */
  struct stream *lower, *neighbor; /* in the device's order by sequence */
};

/* A device's allocator events. */
struct order {
  uint32_t due;           /* sequence number of the next one */
  struct stream *waiting; /* streams that wait for theirs: a pairing heap, the lowest number first */
};

/* A part of the log that was dropped to make room. */
struct dropped {
  uint64_t from_ns, until_ns; /* both 0: nothing was */
  struct {
    bool known;
    uint32_t from, until; /* sequence numbers */
  } allocators[DEVICES_MAX];
  struct sl_event_dropped_segments *segments;
  size_t segment_count; /* by thread and sequence */
};

struct sl_log {
  struct sl_log_source source; /* next NULL: the files below */
  struct sl_segments segments;
  struct dropped dropped;
  struct stream definitions;
  struct stream **streams; /* one a thread, by its ordinal */
  size_t stream_count;
  struct stream **heap; /* by next event's time; [0] is the next one */
  size_t heap_count;
  uint64_t second_ns;      /* the next event's time of all others in the heap, or any earlier instant */
  struct stream **waiting; /* a heap too, by time */
  size_t waiting_count;
  uint64_t waiting_until_ns; /* time of the first hole, if nothing fills it */
  struct stream *current;    /* heap[0] when it gave the last event; to be advanced */
  uint8_t to_release;        /* the device whose order moved on with that event, while streams wait for it */
  bool in_definitions, opened;
  bool following;          /* the log may still grow */
  uint64_t until_ns;       /* events of threads after it are held back */
  uint64_t damaged_before; /* in the index, when it was looked at last */
  int in_trouble;          /* a segment can't be read for now: the negative errno; 0: no */
  struct sl_error trouble; /* why */
  struct sl_event_gap gap; /* a hole, reported by itself */

  struct order orders[DEVICES_MAX];
  uint8_t place_device[65536];
  struct sl_log_names names;

  struct sl_log_counts counts;
  uint64_t newer[256 / 64];      /* types of records that were skipped, a bit each */
  uint64_t left_out[256 / 64];   /* types of events that nobody wants, a bit each */
  uint8_t plain_words[256];      /* by type: of a record that is nothing but its event; 0: there is more to it */
  uint64_t left_out_ns;          /* time of the last one of these */
  uint64_t held_max, held_bytes; /* of records, in all streams */
  struct sl_records spare;       /* a segment of which a stream takes a part */
  uint64_t unplaced; /* damaged segments whose thread is not known, and whose place was not yet found missing */
  uint64_t bytes_read;
};

/* ---- log_stream.c ---- */

/* Begins with these segments: until the first is due, the stream holds nothing. */
void sl_stream_start(struct sl_log *log, struct stream *stream, struct sl_segment_entry *first,
                     struct sl_segment_entry *end);

/* Which records are nothing but their event: once for each log. */
void sl_stream_plain(struct sl_log *log);

/* Makes the next event of the stream its head; false at its end. Times never go back within a stream. */
bool sl_stream_advance(struct sl_log *log, struct stream *stream);

/* The segment that the stream stands in may have got more records. */
void sl_stream_reload(struct sl_log *log, struct stream *stream, const struct sl_segment_entry *entry);

/* Gives back what the stream holds of its segment. */
void sl_stream_release(struct sl_log *log, struct stream *stream);

/* ---- log_dropped.c ---- */

/* Takes what an event of the stream of SL_DROPPED_NAME says; in order after sl_dropped_sort. 0 or -ENOMEM. */
int sl_dropped_take(struct dropped *dropped, const struct stream *stream);
void sl_dropped_sort(struct dropped *dropped);

/* Were the thread's segments from there until here, which are missing, dropped? */
bool sl_dropped_has(const struct dropped *dropped, uint32_t thread, uint32_t from, uint32_t until);

/* Is the record, the next one of the stream, from the part that was dropped? */
bool sl_dropped_has_record(const struct sl_log *log, const struct stream *stream, uint64_t time);

/* ---- log_definitions.c ---- */

int sl_definition_take(struct sl_log *log, uint8_t type, const void *fields); /* 0 or -ENOMEM */
int sl_definitions_read(struct sl_log *log);                                  /* all that there are: the same */

/* ---- log_merge.c: sl_log_next, and ---- */

int sl_merge_reserve(struct sl_log *log); /* room for one stream more: 0 or -ENOMEM */

/* The stream, whose next event has been looked at unless it only starts, takes part from now on. */
void sl_merge_add(struct sl_log *log, struct stream *stream);
void sl_merge_look_at(const struct sl_log *log, struct stream *stream);

/* The event that was given last is done with. */
void sl_merge_advance(struct sl_log *log);

#endif
