/*
 * Driver-level memory: which library holds which range, from when to when. Fed by the CUDA driver's calls where they
 * were recorded, else by the segments of PyTorch's allocator. Writes one `segment` row when a range is freed, and for
 * pinned memory of the host, which the driver's calls tell as well, one of `host_segment`.
 */
#ifndef SHARDLEDGER_DRIVER_SEGMENTS_H
#define SHARDLEDGER_DRIVER_SEGMENTS_H

#include "storage/log/log_reader.h"
#include "storage/tables/ledger_writer.h"

struct sl_driver_segments;

/* log and writer must outlive it. NULL: no memory. */
struct sl_driver_segments *sl_driver_segments_new(const struct sl_log *log, struct sl_ledger_writer *writer);
struct sl_driver_segments *sl_driver_segments_free(struct sl_driver_segments *segments); /* returns NULL */

/*
 * Which part of the program it was that did something in this phase (NULL: outside of all). What happened there is kept
 * in any case: so are the phase's row and those around it.
 */
struct sl_segment_place sl_segment_place_of(struct sl_phase *phase);

/* What an owner holds now on a device. */
struct sl_owner_total {
  uint32_t device;
  const char *owner;
  uint64_t bytes;
  uint64_t pooled_bytes, highest_pooled_bytes; /* of these, from the driver's pools, which may keep what is freed */
};

/* All owners that ever held something; valid until the next change. */
const struct sl_owner_total *sl_driver_segments_totals(const struct sl_driver_segments *segments, size_t *count);

/* driver_allocation and driver_free events. phase: innermost one of its thread, or NULL. */
int sl_driver_segments_add(struct sl_driver_segments *segments, const struct sl_event *event, struct sl_phase *phase,
                           struct sl_error *error);
int sl_driver_segments_remove(struct sl_driver_segments *segments, const struct sl_event *event,
                              struct sl_error *error);

/* Bytes of the range that begins at this address; 0: none does. */
uint64_t sl_driver_segments_bytes(const struct sl_driver_segments *segments, uint64_t address);

/* Segments of PyTorch's allocator: a fallback, and the proof that a driver allocation is PyTorch's. */
int sl_driver_segments_allocator_add(struct sl_driver_segments *segments, uint32_t device, uint64_t address,
                                     uint64_t bytes, uint64_t stream, uint64_t time_ns, const char *action,
                                     struct sl_phase *phase, struct sl_error *error);
int sl_driver_segments_allocator_remove(struct sl_driver_segments *segments, uint64_t address, uint64_t time_ns,
                                        struct sl_error *error);

/* Writes what is still held. */
int sl_driver_segments_finish(struct sl_driver_segments *segments, struct sl_error *error);

#endif
