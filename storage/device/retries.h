/*
 * Requests of PyTorch's allocator that the driver refused first and served after the allocator had given its cache
 * back: no error, but each waits for the device, and frees and asks again. Writes one `retry` row for each; what is
 * never served is an `oom` (refusals.h).
 *
 *   driver refuses ─► the cache is freed ─► driver gives ─► the allocator has its segment: a row
 *                  └► driver refuses … ──────────────────► the allocator gives up: none
 */
#ifndef SHARDLEDGER_RETRIES_H
#define SHARDLEDGER_RETRIES_H

#include "driver_segments.h"

struct sl_retries;

struct sl_retries *sl_retries_new(struct sl_ledger_writer *writer); /* writer must outlive it; NULL: no memory */
struct sl_retries *sl_retries_free(struct sl_retries *retries);     /* returns NULL */

/* The driver refused the allocator so many bytes, on this event's thread. 0 or -ENOMEM. */
int sl_retries_refused(struct sl_retries *retries, const struct sl_event *event, uint32_t device, uint64_t bytes,
                       struct sl_segment_place place, struct sl_error *error);

/* It took back what this thread gave, or gave it something. by_trace: the allocator's own events tell when it is
 * served; else this is it. */
void sl_retries_freed(struct sl_retries *retries, uint32_t thread, uint64_t bytes);
int sl_retries_given(struct sl_retries *retries, const struct sl_event *event, bool by_trace, struct sl_error *error);

/* How many were served. */
uint64_t sl_retries_served(const struct sl_retries *retries);

/* What the allocator says itself: a segment came, or it gave up. */
int sl_retries_allocator(struct sl_retries *retries, const struct sl_event *event, uint32_t device,
                         struct sl_error *error);

#endif
