/* The places of a snapshot's memory: device, stream and pool, as allocator_place events number them. */
#ifndef SHARDLEDGER_SNAPSHOT_PLACES_H
#define SHARDLEDGER_SNAPSHOT_PLACES_H

#include "snapshot.h"

/* Zero-initialise; free with sl_snapshot_places_free. */
struct sl_snapshot_places {
  struct sl_event_allocator_place *list; /* numbered from 1 */
  size_t count, capacity;
  uint16_t *of_entries; /* the place's number, by entry */
};

/* Those of the histories. 0 or -ENOMEM. */
int sl_snapshot_places_find(const struct sl_snapshot *snapshot, struct sl_snapshot_places *places);

/* One more, if it is not known. 0 or -ENOMEM. */
int sl_snapshot_place_add(struct sl_snapshot_places *places, uint32_t device, uint64_t stream, uint64_t pool_owner,
                          uint64_t pool_id);

/* Its number; 0: there were more than fit. */
uint16_t sl_snapshot_place_of(const struct sl_snapshot_places *places, uint32_t device, uint64_t stream,
                              uint64_t pool_owner, uint64_t pool_id);

void sl_snapshot_places_free(struct sl_snapshot_places *places);

#endif
