/*
 * Writing the event log: one chain of mapped segments per thread (layout: log_format.h).
 *
 * The hot path (sl_log_append, sl_log_name for a known name) takes no lock, makes no system call, allocates nothing
 * and faults no page in: a helper thread keeps mapped, pre-faulted segments ready. When none is ready the event is
 * lost, counted, and a gap record is written with the next event of that thread.
 *
 * The directory is made at the first event, so a process that records nothing leaves nothing behind. After fork the
 * child of a recording process is inert; one forked before the first event may open a log of its own. All functions may
 * be called at any time from any thread, also after thread-local destructors ran.
 */
#ifndef SHARDLEDGER_EVENT_LOG_H
#define SHARDLEDGER_EVENT_LOG_H

#include "plugin/format/events.h"
#include "thread_data.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why no events are taken: 0, or bits of log_state.h. Read by sl_log_active. */
extern __attribute__((visibility("hidden"))) unsigned sl_log_off;

/* True while events are taken: not off, paused, failed, or in a forked child. One relaxed load. */
static inline bool sl_log_active(void) {
  return __atomic_load_n(&sl_log_off, __ATOMIC_RELAXED) == 0;
}

/*
 * Appends one event to this thread's segment: fields of the event's struct, then its tail (NULL, 0 without one).
 * Stamped with CLOCK_REALTIME now. The first event of the process opens the log, which does make system calls.
 * Returns whether it was recorded. Lost events are counted and announced by a gap record, except allocator events:
 * their own sequence numbers show what is missing.
 */
bool sl_log_append(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes);

/* The same, without a tail, for who has the calling thread's state at hand. */
bool sl_log_append_on(struct sl_thread *thread, enum sl_event_type type, const void *fields, size_t bytes);

/* The same for an event of the allocator, quicker. */
bool sl_log_append_allocator(const struct sl_event_allocator *event);

/*
 * Appends a (definition) event to the definitions chain. Takes a lock: for rare events only. It does not open the log:
 * until the first other event it is kept in memory, so that a process which only gets ready leaves nothing behind.
 */
void sl_log_define(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes);

/*
 * Id of a name, defining it when it is new. text need not be terminated; it is copied; at most 1,000 bytes are kept,
 * control bytes become '?', invalid UTF-8 becomes U+FFFD. 0 for NULL or length 0.
 */
uint32_t sl_log_name_n(const char *text, size_t length);
uint32_t sl_log_name(const char *text);

/* lost events of a source, and why; lost may be 0 when the number is not known. */
void sl_log_gap(const char *source, const char *reason, uint64_t lost);

/* Stops and resumes taking events (sl_pause, sl_resume). */
void sl_log_pause(bool paused);

/*
 * Orderly end: writes process_end, stops the helper thread (at most deadline_ms), truncates segments to their used
 * part. Afterwards nothing is taken any more.
 */
void sl_log_end(unsigned deadline_ms);

/* "" until the log is open. */
const char *sl_log_directory(void);

#endif
