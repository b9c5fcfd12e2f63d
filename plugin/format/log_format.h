/*
 * Layout of the event log on disk. The writer is plugin/log/event_log.c, the reader storage/log/log_reader.c.
 *
 * A process owns one directory, <host>-<pid>-<start>/, with
 *   NNNNNNNN.slog   one raw segment each (8 hexadecimal digits: the segment's number, from 0, unique in the process)
 *   sealed.slogz    segments that are full, compressed, one frame after the other (struct sl_frame_header)
 * and, with keep-last (docs/log-format.md),
 *   sealed-NNNNNNNN.slogz   later ones of these, so that they can be dropped file by file
 *   dropped.slog            one raw segment, of nobody's thread, that stands for what was dropped
 * A full segment is first appended to sealed.slogz and then unlinked; after a kill between the two it exists twice,
 * with the same number, and the reader takes the frame.
 *
 * A segment belongs to one thread. When that has ended a new thread may go on in the segment and in those that follow
 * it: an event `thread` then says whose the next records are. Thread ordinal 0 is nobody's: it is the chain of
 * definitions (names, devices, modules …), written under a lock because it is rare, read before all others.
 *
 *   segment   ┌──────────────────────────┬────────┬────────┬─ … ─┬────────┬──────────────
 *             │ struct sl_segment_header │ record │ record │     │ record │ 0 0 0 0 …
 *             └──────────────────────────┴────────┴────────┴─ … ─┴────────┴──────────────
 *   record    ┌──────┬───────┬─────────┬────────────┬──────────────────────────────┐
 *             │ type │ words │  check  │  delta_ns  │ fields, then the tail if any │
 *             │  u8  │  u8   │   u16   │    u32     │ (words − 1) × 8 bytes        │
 *             └──────┴───────┴─────────┴────────────┴──────────────────────────────┘
 * The first 8 bytes are the commit word: the producer writes the fields, then stores these 8 bytes at once with
 * release order. A zero commit word ends the segment. A word count that leaves the segment or a wrong check ends that
 * segment and only that one.
 *
 * With a right check, a record of an unknown type is skipped and counted; of one that is longer than its event the rest
 * is ignored, and one that is shorter has 0 in the fields that are missing. So events may be added, and fields behind
 * those that an event has, with 0 for "not said". An event with a tail never changes: where its tail begins is where
 * its fields end.
 *
 *   Example: range_pop of domain 2, 1,000 ns after the time base, nothing left open
 *     0b 02 cc cc  e8 03 00 00 | 02 00 00 00  00 00 00 00        (cc cc: the check)
 *
 * A reader of another version finds magic, version and check in the same places, so it can tell newer from damaged.
 *
 * check is the low 16 bits of XXH3_64bits_withSeed(fields and tail, (words − 1) × 8, seed), the seed being
 * type | words << 8 | delta_ns << 16.
 * delta_ns counts from the segment's base_ns, or from the last time_base record of the segment. Where the clock went
 * back, or by 2^32 ns or more, the producer writes a time_base first. Within a thread the order is by position.
 */
#ifndef SHARDLEDGER_LOG_FORMAT_H
#define SHARDLEDGER_LOG_FORMAT_H

#include <stdint.h>

#define SL_SEGMENT_MAGIC 0x474f4c53u /* "SLOG" */
#define SL_FRAME_MAGIC 0x5a4f4c53u   /* "SLOZ" */
#define SL_LOG_VERSION 1u            /* a reader refuses others, and says so */
#define SL_SEGMENT_BYTES (256u * 1024u)
#define SL_SEGMENT_SUFFIX ".slog"
#define SL_SEALED_PREFIX "sealed-"
#define SL_SEALED_SUFFIX ".slogz"
#define SL_SEALED_NAME "sealed" SL_SEALED_SUFFIX
#define SL_DROPPED_NAME "dropped" SL_SEGMENT_SUFFIX
#define SL_DROPPED_THREAD UINT32_MAX /* ordinal of nobody: the chain of SL_DROPPED_NAME */
#define SL_DROPPED_NUMBER UINT32_MAX /* of its segment: no other has it */

/*
 * With keep-last, of the limit: what sealed.slogz may take, and each later file; what is left free, so what is to be
 * dropped as soon as less is free; what is dropped at once.
 */
#define SL_KEEP_LAST_HEAD_PART 8u
#define SL_KEEP_LAST_FILE_PART 16u
#define SL_KEEP_LAST_RESERVE_PART 4u
#define SL_KEEP_LAST_DROP_PART 4u

struct sl_segment_header { /* 64 bytes */
  uint32_t magic;          /* SL_SEGMENT_MAGIC */
  uint32_t version;        /* SL_LOG_VERSION */
  uint32_t number;         /* of the segment, unique in the process */
  uint32_t bytes;          /* of the whole segment, header included, as allocated */
  uint32_t thread;         /* ordinal of the first thread of the chain of segments; 0: definitions */
  uint32_t sequence;       /* of this segment within its chain: 0, 1, … without holes */
  uint32_t tid;            /* kernel id of the thread that took the segment; 0 for definitions */
  uint32_t reserved0;      /* 0 */
  uint64_t base_ns;        /* CLOCK_REALTIME when it was taken */
  uint64_t process_key;    /* random per process: segments of another process are not ours */
  uint64_t reserved1;      /* 0 */
  uint64_t check;          /* XXH3_64bits of the 56 bytes before it; written last: 0 until a thread owns the segment */
};

struct sl_record_header { /* 8 bytes, written as one 64-bit word */
  uint8_t type;           /* enum sl_event_type; 0 ends the segment */
  uint8_t words;          /* length in 8-byte words, this header included */
  uint16_t check;         /* see above */
  uint32_t delta_ns;      /* since the time base */
};

/*
 * In sealed.slogz: this header, the segment's own header as it was (a reader sorts segments without decompressing
 * them), then compressed_bytes of one zstd frame with the segment's records, which are encoded to compress well:
 *   check is 0: the frame's own stands for all of them, and random bits do not compress
 *   SL_FRAME_DIFFERENCES: delta_ns is the difference to the record before it, and an allocator event's sequence that
 *   to the allocator event before it, both modulo 2^32 and counted from 0
 */
enum sl_frame_encoding { SL_FRAME_PLAIN = 0, SL_FRAME_DIFFERENCES = 1 };

struct sl_frame_header { /* 32 bytes */
  uint32_t magic;        /* SL_FRAME_MAGIC */
  uint32_t version;      /* SL_LOG_VERSION */
  uint32_t number;       /* of the segment inside */
  uint32_t raw_bytes;    /* of its records, up to the last one */
  uint32_t compressed_bytes;
  uint32_t encoding; /* enum sl_frame_encoding */
  uint64_t check;    /* XXH3_64bits of the compressed bytes, seeded with XXH3_64bits of the 24 bytes before this */
};

#endif
