/*
 * The highest value since then, for many beginnings at once: of each watch, the first highest of the values from its
 * opening on. What one value costs does not grow with the number of watches.
 *
 * Watches with the same highest point share it: a value joins all points below it into one. The points are a heap, the
 * lowest first, and each watch finds the point that its own has become.
 */
#ifndef SHARDLEDGER_MAXIMA_H
#define SHARDLEDGER_MAXIMA_H

#include <stddef.h>
#include <stdint.h>

struct sl_maximum {
  uint64_t value;
  void *sample; /* a copy of what was there then; NULL where samples have no bytes */
};

struct sl_maxima { /* zero, but for sample_bytes: no watch is open */
  size_t sample_bytes;
  struct sl_maxima_point
      *points; /* one for each watch since the last clear, some of which others have taken in; owned */
  size_t count;
  size_t *heap; /* of points that are none others' part; owned */
  size_t heap_count;
};

/* Opens a watch that begins with this value; sample: sample_bytes of them, copied. Its number, or -ENOMEM. */
int64_t sl_maxima_open(struct sl_maxima *maxima, uint64_t value, const void *sample);

/* The value now, of which sample is what was there. */
void sl_maxima_raise(struct sl_maxima *maxima, uint64_t value, const void *sample);

/* Of an open watch; valid until the next call. */
struct sl_maximum sl_maxima_of(struct sl_maxima *maxima, int64_t watch);
void sl_maxima_close(struct sl_maxima *maxima, int64_t watch);

void sl_maxima_clear(struct sl_maxima *maxima); /* all watches are closed: gives their memory back */

#endif
