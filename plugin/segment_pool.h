/*
 * The files of the log: mapped segments made ahead, handed to threads without a lock, and sealed when they are full.
 *
 *   make ──► ready ──take──► a thread's ──retire──► full ──work──► sealed.slogz (or others: sealed_files.h)
 *
 * Taking and retiring never block and make no system call, except that a retired segment or a low supply wakes the
 * helper thread. Everything else runs on the helper thread, or once at the start and the end.
 */
#ifndef SHARDLEDGER_SEGMENT_POOL_H
#define SHARDLEDGER_SEGMENT_POOL_H

#include "format/log_format.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_POOL_BYTES_MIN (2 * SL_SEGMENT_BYTES) /* what a log takes to begin with */

/* One segment. Whoever holds it owns it; retire it or leave it to sl_pool_end. */
struct sl_segment {
  struct sl_segment_header *map; /* SL_SEGMENT_BYTES, zero behind the header */
  uint32_t number;
  uint32_t used;           /* set when it is retired */
  struct sl_segment *next; /* in the list of full ones */
  bool in_memory;          /* its file is written piece by piece, see segment_written.h */
  uint32_t on_disk;        /* bytes that have been */
  struct sl_segment *next_written;
};

/*
 * Makes the first segments in a directory that exists (path copied). max_bytes: 0 for no limit. wake is called, from
 * any thread, when there is work for sl_pool_work. Returns 0 or a negative errno.
 */
int sl_pool_start(const char *directory, uint64_t process_key, uint64_t max_bytes, void (*wake)(void));

/* A ready segment, or NULL when there is none. */
struct sl_segment *sl_pool_take(void);

/*
 * Makes a segment now, with system calls, on a thread of the host: signals that these could raise are held back.
 * -E2BIG: the log has reached its limit; other negative errnos come from the file system.
 */
int sl_pool_make(struct sl_segment **out);

/*
 * Whether a thread of the host had better make no segment: so many full ones wait for the helper thread that more would
 * fill disk and memory, or the file system may be slow.
 */
bool sl_pool_is_behind(void);

/* Hands a segment back whose first used bytes are to be kept. */
void sl_pool_retire(struct sl_segment *segment, uint32_t used);

/*
 * One piece of the helper thread's work, supply before sealing. Returns 1 when there may be more to do, 0 when not,
 * or the negative errno that sl_pool_make failed with; where there may be room later, after waiting for it for a
 * moment. Not being able to seal is no failure: raw segments stay valid.
 */
int sl_pool_work(void);

/* Whether the limit is not the end: with keep-last, another process may make room. */
bool sl_pool_may_get_room(void);

/* Whether an error says that the process is short of descriptors or memory, which it may not be a second later. */
bool sl_pool_is_short(int r);

/*
 * About once a second, on the helper thread: writes out what is only in memory. 0 or a negative errno, as of a full
 * disk.
 */
int sl_pool_write(void);

/* Brings a segment's file to its used part, and no more; no thread may write to the segment any more. */
void sl_pool_truncate(struct sl_segment *segment, uint32_t used);

/* Truncates what was retired and not yet sealed, and removes what nobody took. The helper thread has ended. */
void sl_pool_end(void);

#endif
