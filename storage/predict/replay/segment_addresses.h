/* Where the driver puts segments when a tape is played again: as recorded, or where nobody has been: above all
 * before, below, or anywhere. */
#ifndef SHARDLEDGER_SEGMENT_ADDRESSES_H
#define SHARDLEDGER_SEGMENT_ADDRESSES_H

#include "replay.h"

struct sl_segment_addresses;

/* NULL: no memory. The tape must outlive it. Free it with sl_segment_addresses_free, which returns NULL. */
struct sl_segment_addresses *sl_segment_addresses_new(const struct sl_tape *tape, enum sl_replay_addresses kind,
                                                      uint64_t seed);
struct sl_segment_addresses *sl_segment_addresses_free(struct sl_segment_addresses *addresses);

/* As of struct sl_segment_source, with addresses as the context. */
uint64_t sl_segment_addresses_place(void *context, uint64_t stream, uint32_t pool, uint64_t bytes, bool expandable);
void sl_segment_addresses_gone(void *context, uint64_t address);

/* A segment that is there already. -ENOMEM or 0. */
int sl_segment_addresses_keep(struct sl_segment_addresses *addresses, uint64_t address, uint64_t bytes);

#endif
