/*
 * The files of the log: mapped segments made ahead, handed to threads without a lock, and sealed when they are full.
 *
 *   make ──► ready ──take──► a thread's ──retire──► full ──work──► sealed.slogz (or others: sealed_files.h)
 *
 * Taking and retiring never block and make no system call, except that a retired segment or a low supply wakes the
 * helper thread. A thread of the host that finds none ready may make a stopgap: memory, written to a file later. All
 * that touches the file system runs on threads of ours, since that may stall.
 */
#ifndef SHARDLEDGER_SEGMENT_POOL_H
#define SHARDLEDGER_SEGMENT_POOL_H

#include "plugin/format/log_format.h"

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
  bool stopgap;            /* it is so because no other was ready, and is to be gone on from soon */
  bool has_file;           /* something of it has been written, */
  uint32_t on_disk;        /* so many bytes */
  struct sl_segment *next_written;
};

/*
 * Stopgaps can be made from here on. max_bytes: 0 for no limit. wake is called, from any thread, when there is work for
 * sl_pool_work; is_starved says whether the helper thread waits for nothing but a processor.
 */
void sl_pool_begin(uint64_t max_bytes, void (*wake)(void), bool (*is_starved)(void));

/*
 * Makes the first segments in a directory that exists (path copied), on the thread that will make all others. Returns 0
 * or a negative errno.
 */
int sl_pool_start(const char *directory);

/* Whether that has been done, whether as many as are kept ready have been made, and how many so far. */
bool sl_pool_has_started(void);
bool sl_pool_has_supplied(void);
unsigned sl_pool_made(void);

/* A ready segment, or NULL when there is none. */
struct sl_segment *sl_pool_take(void);

/*
 * The same, but waits for the helper thread where none is ready: two seconds at most, and not for a file system that
 * has brought none for half a second, nor again before it brings the next.
 */
struct sl_segment *sl_pool_take_waiting(void);

/* Whether there is none, and that has been noticed: taking would be in vain. */
bool sl_pool_is_dry(void);

/*
 * A segment in memory, made on a thread of the host, also in a signal handler: one system call, no file. NULL when
 * memory is short, the log has reached its limit, or so many stopgaps are there that the file system must be stalled;
 * for definitions, without which events mean nothing, there is room for some more.
 */
struct sl_segment *sl_pool_stopgap(bool for_definitions);

/* Whether there are stopgaps without a file: threads should go on from them. */
bool sl_pool_has_new_stopgaps(void);

/* Hands a segment back whose first used bytes are to be kept. */
void sl_pool_retire(struct sl_segment *segment, uint32_t used);

/*
 * One piece of the helper thread's work: files for stopgaps, then supply, then sealing. Returns 1 when there may be
 * more to do, 0 when not, or a negative errno; -E2BIG: the log has reached its limit, where there may be room later
 * after waiting for it for a moment. Not being able to seal is no failure: raw segments stay valid.
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

/* Truncates what was retired and not yet sealed, and removes what nobody took. The helper thread does nothing more. */
void sl_pool_end(void);

#endif
