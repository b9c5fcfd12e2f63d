/*
 * What the allocator held when a snapshot's history begins, which may be long after the program did: PyTorch keeps the
 * latest entries only, and starts when it is told to.
 *
 *   segments then = segments now − those that the history adds + those that it takes away
 *   blocks then   = blocks now that the history never hands out + those that it frees and never handed out
 *
 * The size of a block that is gone is not in the history, its request is. It is what the allocator makes of that:
 * rounded, or more where the rest was too small to be a block of its own.
 */
#ifndef SHARDLEDGER_SNAPSHOT_START_H
#define SHARDLEDGER_SNAPSHOT_START_H

#include "snapshot.h"
#include "storage/allocator/allocator_config.h"

struct sl_start_block {
  uint64_t address, bytes, requested_bytes;
  uint64_t stream, pool_owner, pool_id; /* of its segment */
  uint32_t stack;
  uint8_t state; /* enum sl_block_state */
  bool starts_segment;
};

struct sl_start {
  struct sl_start_block *blocks; /* all, free ones too, by address; owned */
  size_t count, segments;
};

/* Of one device. 0 or -ENOMEM. Free it with sl_start_free, also after a failure. */
int sl_start_find(const struct sl_snapshot *snapshot, uint32_t device, const struct sl_allocator_config *config,
                  struct sl_start *out);
void sl_start_free(struct sl_start *start);

/* Whether the device's history has an entry of this action (enum sl_allocator_action). */
bool sl_trace_has(const struct sl_snapshot *snapshot, uint32_t device, int action);

#endif
