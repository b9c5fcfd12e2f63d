/*
 * Reads the event log of one process: all threads merged into one sequence of events.
 *
 * Order: within a thread by position; between threads by time; allocator events of one device always by their
 * sequence number, which was taken under the allocator's lock. What can't be read (a torn record, a damaged segment)
 * is skipped and counted, never guessed.
 *
 * A newer version's log is read as far as it is understood: events of unknown types are skipped and counted, unknown
 * fields at the end of an event are not looked at. Fields that an older version did not have are 0.
 */
#ifndef SHARDLEDGER_LOG_READER_H
#define SHARDLEDGER_LOG_READER_H

#include "plugin/format/events.h"
#include "storage/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_log;
struct sl_segments;

/* Events that were recorded later than they happened, by another thread than the one that did it (log_past.h). */
enum sl_event_past { SL_PAST_not, SL_PAST_placed, SL_PAST_unplaced /* what else was going on is not known */ };

struct sl_event {
  uint8_t type;        /* enum sl_event_type */
  uint32_t thread;     /* ordinal in the process; 0 for definitions */
  uint32_t tid;        /* kernel thread id */
  uint32_t bytes;      /* of payload, tail and padding included */
  uint64_t time_ns;    /* CLOCK_REALTIME */
  bool salvaged;       /* copied from a part of the log that was dropped */
  uint8_t past;        /* enum sl_event_past */
  const void *payload; /* struct sl_event_<type>, 8-byte aligned; owned by the log, valid until the next sl_log_next */
};

struct sl_log_counts {
  uint64_t events;           /* returned by sl_log_next so far */
  uint64_t lost;             /* sum of the gap events so far */
  uint64_t damaged_segments; /* segments whose end could not be read (a bad check, length or type) */
  uint64_t skipped_bytes;    /* bytes of such ends */
  uint64_t newer_records;    /* of types that a newer version has, which were skipped */
  uint32_t newer_kinds;      /* of how many types */
  uint64_t segments;
  uint64_t bytes; /* on disk */
};

/*
 * Opens a process directory and reads its definitions.
 * -ENOENT: no such directory; -ENODATA: no segment in it; -EPROTO: made by a newer version; -EBADMSG: not a log;
 * -SL_LOG_UNREADABLE: a file of it can't be read for now.
 * On success *out owns everything; close it with sl_log_close.
 */
int sl_log_open(const char *directory, struct sl_log **out, struct sl_error *error);

/*
 * Events from elsewhere than a log's files, in the order in which sl_log_next gives them: definitions first, allocator
 * events of a device by their sequence. Such a log is read from its beginning to its end; it does not grow.
 */
struct sl_log_source {
  void *context; /* of the functions; the log's, once it is made */
  int (*next)(void *context, struct sl_event *event, struct sl_error *error); /* as sl_log_next */
  uint64_t (*bytes_read)(void *context);
  void (*close)(void *context);
};

/* A log of these events, which come from so many bytes. NULL: no memory, and the source stays the caller's. */
struct sl_log *sl_log_of(const struct sl_log_source *source, uint64_t bytes);

/* Makes a string, info or allocator_place event of such a log known before its first event. 0 or -ENOMEM. */
int sl_log_make_known(struct sl_log *log, uint8_t type, const void *fields);

/* Returns 1 with the next event (definitions first), 0 at the end, or a negative errno. */
int sl_log_next(struct sl_log *log, struct sl_event *event, struct sl_error *error);

/*
 * So many bytes of segments may be in memory; when they are, each further thread holds a small part of its segment, and
 * reads the segment again for the next one. 128 MiB without this.
 */
void sl_log_limit(struct sl_log *log, uint64_t bytes);

/*
 * Follows a log that is still being written: looks for what is new in it, which sl_log_next then gives, new definitions
 * first. To be called before the first sl_log_next, and whenever that has returned 0. Reads only what is new.
 * 0 or a negative errno.
 */
int sl_log_follow(struct sl_log *log, struct sl_error *error);

/*
 * Holds back what the threads recorded after this instant (0: all of it; UINT64_MAX, as at first: nothing), so that
 * sl_log_next returns 0 before it. Threads are read one after the other: what happened before the look began has been
 * seen of all of them, and can be put in order; what happened since, not.
 */
void sl_log_hold(struct sl_log *log, uint64_t until_ns);

/* After sl_log_next has returned 0: the time of the first event that is held back; 0: none is. */
uint64_t sl_log_held(const struct sl_log *log);

/*
 * From now on the threads' events of this type are counted, and not given: for one who makes nothing of them. Those
 * that are held back may be given later.
 */
void sl_log_leave_out(struct sl_log *log, uint8_t type);
uint64_t sl_log_left_out_ns(const struct sl_log *log); /* the time of the last one; 0: there was none */

/* Text of a string id; "" for 0 and for ids that were never written. Owned by the log, valid until sl_log_close. */
const char *sl_log_string(const struct sl_log *log, uint32_t id);

/* Whether the gap is a stretch of its thread's events that the log lacks: what the thread had open then ends there. */
bool sl_log_is_lost_stretch(const struct sl_log *log, const struct sl_event_gap *gap);

/* The last value of an `info` key, or NULL. Owned by the log. */
const char *sl_log_info(const struct sl_log *log, const char *key);
int64_t sl_log_info_number(const struct sl_log *log, const char *key); /* -1: the process did not say */

/* Where the part begins that was dropped; 0: none was. And the segments that have gone with it. Owned by the log. */
uint64_t sl_log_dropped_from(const struct sl_log *log);
const struct sl_event_dropped_segments *sl_log_dropped_segments(const struct sl_log *log, size_t *count);

/* What is there on disk: segment_index.h. */
const struct sl_segments *sl_log_segments(const struct sl_log *log);

void sl_log_counts(const struct sl_log *log, struct sl_log_counts *out);

/* The time of its last record, 0 without any. To be asked instead of sl_log_next: the log can only be closed then. */
uint64_t sl_log_end_ns(struct sl_log *log);

/* Bytes of log read and in all, for progress bars. */
uint64_t sl_log_bytes_read(const struct sl_log *log);

/* Frees the log; returns NULL, so that `log = sl_log_close(log)` leaves nothing dangling. NULL is fine. */
struct sl_log *sl_log_close(struct sl_log *log);

#endif
