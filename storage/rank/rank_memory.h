/*
 * PyTorch's memory on each device, replayed: its allocator's blocks, and the places (streams and pools) that it hands
 * them out from.
 */
#ifndef SHARDLEDGER_RANK_MEMORY_H
#define SHARDLEDGER_RANK_MEMORY_H

#include "plugin/format/events.h"
#include "storage/allocator/block_map.h"
#include "storage/log/log_reader.h"

struct sl_place { /* an allocator_place event */
  uint32_t device;
  uint64_t stream, pool_owner, pool_id;
  char *pool; /* its name in the ledger, once asked for; owned */
};

struct sl_device_memory {
  struct sl_event_device info;          /* total_bytes 0: not known */
  struct sl_block_map *map;             /* owned; NULL: nothing is known yet */
  struct sl_block_totals private_pools; /* of CUDA graphs and MemPools, part of the map's totals */
  uint32_t next_sequence;               /* of allocator events */
  uint64_t events;                      /* allocator events that the map was told */
  bool restored;                        /* from an allocator_restore event … */
  uint32_t restored_sequence;           /* … and this is the first that is not part of it */
  uint32_t missing;                     /* its blocks that did not come yet */
};

/* Zero-initialise; free with sl_rank_memory_free. */
struct sl_rank_memory {
  struct sl_allocator_config config;
  bool drivers_pool; /* PyTorch keeps no cache of its own, so the driver's calls are the tensors': cudaMallocAsync, */
  bool uncached;     /* or PYTORCH_NO_CUDA_MEMORY_CACHING */
  struct sl_device_memory devices[SL_DEVICES_MAX];
  int device;              /* the rank's own: that of its first allocator event; -1 before */
  uint64_t used_bytes;     /* of the rank's device, as sampled last; 0: not yet */
  uint64_t unknown;        /* events that can't be replayed */
  struct sl_place *places; /* owned; by id, as far as they are known */
  uint32_t place_count;
  int stream_places;     /* so many of them are made here, for streams (drivers_pool) */
  uint32_t named_places; /* none from here on has a pool with a name */
};

void sl_rank_memory_init(struct sl_rank_memory *memory);
void sl_rank_memory_free(struct sl_rank_memory *memory);

/* What the process said about its allocator; it says so when it attaches, before the allocator's first event. */
void sl_rank_memory_facts(struct sl_rank_memory *memory, const struct sl_log *log);

/* A place is defined before it is used. 0 or -ENOMEM. */
int sl_rank_memory_place_add(struct sl_rank_memory *memory, const struct sl_event_allocator_place *place);

/* One that was not defined is device 0's, without a stream. */
static inline const struct sl_place *sl_rank_memory_place(const struct sl_rank_memory *memory, uint32_t id) {
  static const struct sl_place none;
  return id < memory->place_count ? &memory->places[id] : &none;
}

/* The place of a stream, in a log without the allocator's own places; -ENOMEM; or -EINVAL: there are too many. */
int sl_rank_memory_place_of(struct sl_rank_memory *memory, uint32_t device, uint64_t stream);

/* Stands for a place's private pool; *out NULL: it is in the shared one. 0 or -ENOMEM. */
int sl_rank_memory_pool(struct sl_rank_memory *memory, uint32_t place, const char **out);
bool sl_place_is_private(const struct sl_place *place);

/* The blocks of a device below SL_DEVICES_MAX, made when first asked for. NULL: no memory. */
struct sl_block_map *sl_rank_memory_map(struct sl_rank_memory *memory, uint32_t device);

/* The device's blocks are forgotten: others are restored, and this is the next event's sequence. 0 or -ENOMEM. */
int sl_rank_memory_restart(struct sl_rank_memory *memory, uint32_t device, uint32_t next_sequence);

/* Of the rank's device. */
struct sl_block_totals sl_rank_memory_now(const struct sl_rank_memory *memory);

/* Replays an allocator event of a place whose device has a map. 0 or -ENOMEM. */
int sl_rank_memory_apply(struct sl_rank_memory *memory, const struct sl_event_allocator *event,
                         struct sl_block_change *change);

struct sl_known_block { /* of a snapshot */
  uint32_t device, place;
  uint64_t address, bytes, requested_bytes;
  int state;
  bool starts_segment;
};
/* Adds the block to its device's map. 0, -ENOMEM, or another negative errno: it contradicts what is there. */
int sl_rank_memory_restore(struct sl_rank_memory *memory, const struct sl_known_block *block);

/* The allocation of a block at, or around, this address on any device, and where it is. NULL: none. */
struct sl_allocation *sl_rank_memory_find(const struct sl_rank_memory *memory, uint64_t address, uint32_t *device);

/* Of snapshots that have begun, blocks are still to come. */
bool sl_rank_memory_is_partial(const struct sl_rank_memory *memory);

#endif
