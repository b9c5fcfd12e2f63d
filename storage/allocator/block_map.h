/*
 * Replays PyTorch's caching allocator on one device: segments, blocks, splits and merges, so that the four sums of
 * torch.cuda.memory_stats come out to the byte at every event.
 *
 *   reserved   SEGMENT_ALLOC/MAP … SEGMENT_FREE/UNMAP
 *   allocated  ALLOC … FREE_REQUESTED, size of the block (a block that is not split is larger than the request)
 *   active     ALLOC … FREE_COMPLETED, size of the block
 *   requested  ALLOC … FREE_COMPLETED, size of the request
 */
#ifndef SHARDLEDGER_BLOCK_MAP_H
#define SHARDLEDGER_BLOCK_MAP_H

#include "allocator_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_block_map;

struct sl_block_totals {
  uint64_t requested_bytes;
  uint64_t allocated_bytes;
  uint64_t active_bytes;
  uint64_t reserved_bytes;
};

/* What one event did. */
struct sl_block_change {
  void *user;           /* the pointer set with sl_block_map_set_user on this block; NULL for segments */
  uint64_t block_bytes; /* size of the block */
  bool unknown;         /* the event speaks of memory that this map never saw, or contradicts it */
};

/* Returns NULL when memory runs out. Free it with sl_block_map_free. */
struct sl_block_map *sl_block_map_new(const struct sl_allocator_config *config);
struct sl_block_map *sl_block_map_free(struct sl_block_map *map); /* returns NULL */

/*
 * Applies one allocator event (action: enum sl_allocator_action). place identifies stream and pool: free neighbours
 * merge only within one segment, and mapped ranges join only within one place. 0, or -ENOMEM.
 */
int sl_block_map_apply(struct sl_block_map *map, int action, uint64_t address, uint64_t bytes, uint32_t place,
                       struct sl_block_change *out);

/*
 * Puts a block into the map that was there before the first event. state: enum sl_block_state. Blocks come in address
 * order: each is a neighbour of the one restored before it, unless it starts a segment. 0, -ENOMEM, or -EINVAL for a
 * block that can't be: empty, of an unknown state, or where another one starts.
 */
int sl_block_map_restore(struct sl_block_map *map, uint64_t address, uint64_t bytes, uint64_t requested, int state,
                         uint32_t place, bool starts_segment);

/* Attaches a pointer to the block that the last ALLOC handed out, or that was restored last; later events of that block
 * return it. Not owned. */
void sl_block_map_set_user(struct sl_block_map *map, void *user);

/* The user pointer of the allocated block at this address, or NULL. */
void *sl_block_map_find(const struct sl_block_map *map, uint64_t address);

const struct sl_block_totals *sl_block_map_totals(const struct sl_block_map *map);

struct sl_block {
  uint64_t address, bytes, requested_bytes;
  uint32_t place;
  int state; /* enum sl_block_state */
  bool starts_segment;
  void *user;
};

/* All blocks by address, as sl_block_map_restore takes them; to be freed. NULL with *count 0: none, else no memory. */
struct sl_block *sl_block_map_blocks(const struct sl_block_map *map, size_t *count);

struct sl_free_blocks {
  uint64_t largest_bytes;        /* of one block */
  uint64_t inactive_split_bytes; /* in segments that also hold live memory, which keeps them from being given back */
};

/* Walks all blocks. */
struct sl_free_blocks sl_block_map_free_blocks(const struct sl_block_map *map);

/*
 * The same for somebody who asks often: the first time walks all blocks, and from then on the map keeps free blocks by
 * size, until that is forgotten.
 */
struct sl_free_blocks sl_block_map_watch_free(struct sl_block_map *map);
void sl_block_map_forget_free(struct sl_block_map *map);

#endif
