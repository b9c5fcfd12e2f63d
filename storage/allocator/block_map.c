/*
 * Blocks of a segment form a list in address order; a table finds a block by its first byte. Free neighbours are merged
 * at once, as PyTorch does, so two free blocks are never neighbours within a segment.
 */
#include "block_map.h"

#include "block_table.h"
#include "plugin/format/events.h"

#include <errno.h>
#include <stdlib.h>

#define FREE_SLACK 1024u /* entries of the heap of free blocks that may be out of date */

struct free_block { /* that was so large then; it is out of date where the block is another now */
  uint64_t bytes, address;
};

struct sl_block_map {
  struct sl_allocator_config config;
  struct sl_block_totals totals;
  struct block_table blocks;
  struct block *last;             /* block of the last ALLOC, or restored last */
  struct block *leaving;          /* whose free was asked for last: that it is done comes next, nearly always */
  uint64_t whole_bytes;           /* of free blocks that are all of their segment */
  struct free_block *free_blocks; /* a heap, the largest first; NULL: nobody has asked since it was forgotten */
  size_t free_count, free_capacity;
};

struct sl_block_map *sl_block_map_new(const struct sl_allocator_config *config) {
  struct sl_block_map *map = calloc(1, sizeof *map);
  if (map)
    map->config = *config;
  return map;
}

struct sl_block_map *sl_block_map_free(struct sl_block_map *map) {
  if (!map)
    return NULL;
  block_table_free(&map->blocks);
  free(map->free_blocks);
  free(map);
  return NULL;
}

/* ---- the largest free block ---- */

void sl_block_map_forget_free(struct sl_block_map *map) {
  free(map->free_blocks);
  map->free_blocks = NULL;
  map->free_count = map->free_capacity = 0;
}

static void free_block_sink(struct sl_block_map *map, size_t at) {
  struct free_block *heap = map->free_blocks, moving = heap[at];
  for (size_t child; (child = 2 * at + 1) < map->free_count; at = child) {
    if (child + 1 < map->free_count && heap[child + 1].bytes > heap[child].bytes)
      child++;
    if (heap[child].bytes <= moving.bytes)
      break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

/* A free block has come into being, or grown. Where memory runs out, the next one to ask looks at all blocks again. */
static void free_block_add(struct sl_block_map *map, const struct block *block) {
  if (!map->free_blocks || block->state != SL_BLOCK_FREE)
    return;
  if (map->free_count == map->free_capacity) {
    const bool is_stale = map->free_count > 2 * (size_t)map->blocks.count + FREE_SLACK;
    void *grown = is_stale ? NULL : reallocarray(map->free_blocks, 2 * map->free_capacity, sizeof *map->free_blocks);
    if (!grown) {
      sl_block_map_forget_free(map);
      return;
    }
    map->free_blocks = grown;
    map->free_capacity *= 2;
  }
  size_t at = map->free_count++;
  struct free_block *heap = map->free_blocks;
  for (; at > 0 && heap[(at - 1) / 2].bytes < block->bytes; at = (at - 1) / 2)
    heap[at] = heap[(at - 1) / 2];
  heap[at] = (struct free_block){block->bytes, block->address};
}

/* Free, and nothing else is in its segment. */
static bool is_whole(const struct block *block) {
  return block->state == SL_BLOCK_FREE && !block->previous && !block->next;
}

static void whole_add(struct sl_block_map *map, const struct block *block) {
  if (is_whole(block))
    map->whole_bytes += block->bytes;
}

static void whole_remove(struct sl_block_map *map, const struct block *block) {
  if (is_whole(block))
    map->whole_bytes -= block->bytes;
}

static struct block *block_find(const struct sl_block_map *map, uint64_t address) {
  return block_table_find(&map->blocks, address);
}

static struct block *block_add(struct sl_block_map *map, uint64_t address, uint64_t bytes, uint32_t place) {
  struct block *block = block_table_add(&map->blocks, address);
  if (block) {
    block->bytes = bytes;
    block->place = place;
  }
  return block;
}

static void block_remove(struct sl_block_map *map, struct block *block) {
  if (block->previous)
    block->previous->next = block->next;
  if (block->next)
    block->next->previous = block->previous;
  if (map->last == block)
    map->last = NULL;
  if (map->leaving == block)
    map->leaving = NULL;
  block_table_remove(&map->blocks, block);
}

static void block_insert_after(struct block *block, struct block *added) {
  added->previous = block;
  added->next = block->next;
  if (block->next)
    block->next->previous = added;
  block->next = added;
}

/* Cuts a free block so that a new free block starts offset bytes into it; returns that one. */
static struct block *block_cut(struct sl_block_map *map, struct block *block, uint64_t offset) {
  struct block *rest = block_add(map, block->address + offset, block->bytes - offset, block->place);
  if (!rest)
    return NULL;
  whole_remove(map, block);
  block->bytes = offset;
  block_insert_after(block, rest);
  free_block_add(map, block);
  free_block_add(map, rest);
  return rest;
}

/* Joins a free block, which is new as such, with its free neighbours. */
static void block_merge(struct sl_block_map *map, struct block *block) {
  struct block *previous = block->previous;
  if (previous && previous->state == SL_BLOCK_FREE) {
    previous->bytes += block->bytes;
    block_remove(map, block);
    block = previous;
  }
  struct block *next = block->next;
  if (next && next->state == SL_BLOCK_FREE) {
    block->bytes += next->bytes;
    block_remove(map, next);
  }
  whole_add(map, block);
  free_block_add(map, block);
}

/* The free block that holds [address, address + bytes), which may start before it. Rare: walks all blocks. */
static struct block *block_covering(const struct sl_block_map *map, uint64_t address, uint64_t bytes) {
  struct block *block = block_find(map, address);
  if (block)
    return block->state == SL_BLOCK_FREE && block->bytes >= bytes ? block : NULL;
  for (block = NULL; (block = block_table_next(&map->blocks, block));)
    if (block->state == SL_BLOCK_FREE && block->address <= address && address + bytes <= block->address + block->bytes)
      return block;
  return NULL;
}

static int segment_add(struct sl_block_map *map, uint64_t address, uint64_t bytes, uint32_t place, bool joins,
                       struct sl_block_change *out) {
  if (block_find(map, address)) {
    out->unknown = true; /* two segments at one address: the first one's end was lost */
    return 0;
  }
  struct block *block = block_add(map, address, bytes, place);
  if (!block)
    return -ENOMEM;
  map->totals.reserved_bytes += bytes;
  if (!joins) {
    whole_add(map, block);
    free_block_add(map, block);
    return 0;
  }
  /* Expandable segments map range by range; neighbours in address are one segment. */
  for (struct block *other = NULL; (other = block_table_next(&map->blocks, other));) {
    if (other == block || other->place != place)
      continue;
    if (other->address + other->bytes == address && !other->next) {
      whole_remove(map, other);
      other->next = block;
      block->previous = other;
    } else if (address + bytes == other->address && !other->previous) {
      whole_remove(map, other);
      block->next = other;
      other->previous = block;
    }
  }
  block_merge(map, block);
  return 0;
}

static int segment_remove(struct sl_block_map *map, uint64_t address, uint64_t bytes, struct sl_block_change *out) {
  struct block *block = block_covering(map, address, bytes);
  if (!block) {
    out->unknown = true;
    return 0;
  }
  if (block->address < address) {
    block = block_cut(map, block, address - block->address);
    if (!block)
      return -ENOMEM;
  }
  if (block->bytes > bytes && !block_cut(map, block, bytes))
    return -ENOMEM;
  map->totals.reserved_bytes -= bytes;
  whole_remove(map, block);
  /* What stays on both sides is no longer adjacent. */
  if (block->previous) {
    block->previous->next = NULL;
    whole_add(map, block->previous);
  }
  if (block->next) {
    block->next->previous = NULL;
    whole_add(map, block->next);
  }
  block->previous = block->next = NULL;
  block_remove(map, block);
  return 0;
}

static int block_alloc(struct sl_block_map *map, uint64_t address, uint64_t requested, uint32_t place,
                       struct sl_block_change *out) {
  uint64_t rounded = sl_allocator_round(&map->config, requested);
  struct block *block = block_find(map, address);
  if (!block || block->state != SL_BLOCK_FREE || block->bytes < rounded) {
    out->unknown = true;
    out->block_bytes = rounded;
    map->last = NULL;
    return 0;
  }
  if (sl_allocator_splits(&map->config, block->bytes, rounded) && !block_cut(map, block, rounded))
    return -ENOMEM;
  whole_remove(map, block);
  block->state = SL_BLOCK_ALLOCATED;
  block->requested = requested;
  block->place = place;
  block->user = NULL;
  map->totals.requested_bytes += requested;
  map->totals.allocated_bytes += block->bytes;
  map->totals.active_bytes += block->bytes;
  map->last = block;
  out->block_bytes = block->bytes;
  return 0;
}

static void block_free_requested(struct sl_block_map *map, uint64_t address, struct sl_block_change *out) {
  struct block *block = block_find(map, address);
  if (!block || block->state != SL_BLOCK_ALLOCATED) {
    out->unknown = true;
    return;
  }
  block->state = SL_BLOCK_PENDING;
  map->leaving = block;
  map->totals.allocated_bytes -= block->bytes;
  out->user = block->user;
  out->block_bytes = block->bytes;
}

static void block_free_completed(struct sl_block_map *map, uint64_t address, struct sl_block_change *out) {
  struct block *block = map->leaving;
  if (!block || block->address != address)
    block = block_find(map, address);
  if (!block || block->state != SL_BLOCK_PENDING) {
    out->unknown = true;
    return;
  }
  block->state = SL_BLOCK_FREE;
  map->totals.active_bytes -= block->bytes;
  map->totals.requested_bytes -= block->requested;
  out->user = block->user;
  out->block_bytes = block->bytes;
  block->user = NULL;
  block_merge(map, block);
}

int sl_block_map_apply(struct sl_block_map *map, int action, uint64_t address, uint64_t bytes, uint32_t place,
                       struct sl_block_change *out) {
  *out = (struct sl_block_change){0};
  switch (action) {
  case SL_ALLOC: return block_alloc(map, address, bytes, place, out);
  case SL_FREE_REQUESTED: block_free_requested(map, address, out); return 0;
  case SL_FREE_COMPLETED: block_free_completed(map, address, out); return 0;
  case SL_SEGMENT_ALLOC: return segment_add(map, address, bytes, place, false, out);
  case SL_SEGMENT_MAP: return segment_add(map, address, bytes, place, true, out);
  case SL_SEGMENT_FREE:
  case SL_SEGMENT_UNMAP: return segment_remove(map, address, bytes, out);
  default: return 0; /* snapshots, annotations and OOM move no bytes */
  }
}

int sl_block_map_restore(struct sl_block_map *map, uint64_t address, uint64_t bytes, uint64_t requested, int state,
                         uint32_t place, bool starts_segment) {
  struct block *previous = starts_segment ? NULL : map->last;
  if (!bytes || state < SL_BLOCK_FREE || state > SL_BLOCK_PENDING || block_find(map, address))
    return -EINVAL;
  struct block *block = block_add(map, address, bytes, place);
  if (!block)
    return -ENOMEM;
  block->state = (enum sl_block_state)state;
  map->totals.reserved_bytes += bytes;
  if (state != SL_BLOCK_FREE) {
    block->requested = requested;
    map->totals.requested_bytes += requested;
    map->totals.active_bytes += bytes;
  }
  if (state == SL_BLOCK_ALLOCATED)
    map->totals.allocated_bytes += bytes;
  if (previous && previous->address + previous->bytes == address) {
    whole_remove(map, previous);
    block_insert_after(previous, block);
  }
  whole_add(map, block);
  free_block_add(map, block);
  map->last = block;
  return 0;
}

void sl_block_map_set_user(struct sl_block_map *map, void *user) {
  if (map->last)
    map->last->user = user;
}

void *sl_block_map_find(const struct sl_block_map *map, uint64_t address) {
  struct block *block = block_find(map, address);
  return block && block->state == SL_BLOCK_ALLOCATED ? block->user : NULL;
}

const struct sl_block_totals *sl_block_map_totals(const struct sl_block_map *map) {
  return &map->totals;
}

/* All free blocks, in no order: the heap begins with them. */
static bool free_blocks_list(struct sl_block_map *map) {
  const size_t count = map->blocks.count;
  sl_block_map_forget_free(map);
  map->free_capacity = 2 * count + FREE_SLACK;
  map->free_blocks = reallocarray(NULL, map->free_capacity, sizeof *map->free_blocks);
  if (!map->free_blocks)
    return false;
  for (const struct block *block = NULL; (block = block_table_next(&map->blocks, block));)
    if (block->state == SL_BLOCK_FREE)
      map->free_blocks[map->free_count++] = (struct free_block){block->bytes, block->address};
  for (size_t i = map->free_count / 2; i-- > 0;)
    free_block_sink(map, i);
  return true;
}

static uint64_t largest_free(struct sl_block_map *map) {
  while (map->free_count) {
    const struct free_block *first = &map->free_blocks[0];
    const struct block *block = block_find(map, first->address);
    if (block && block->state == SL_BLOCK_FREE && block->bytes == first->bytes)
      return first->bytes;
    map->free_blocks[0] = map->free_blocks[--map->free_count];
    if (map->free_count)
      free_block_sink(map, 0);
  }
  return 0;
}

/* Each block is free, or active: what is free in segments that hold active ones too is the rest. */
static uint64_t inactive_split(const struct sl_block_map *map) {
  return map->totals.reserved_bytes - map->totals.active_bytes - map->whole_bytes;
}

struct sl_free_blocks sl_block_map_free_blocks(const struct sl_block_map *map) {
  struct sl_free_blocks free_blocks = {.inactive_split_bytes = inactive_split(map)};
  for (const struct block *block = NULL; (block = block_table_next(&map->blocks, block));)
    if (block->state == SL_BLOCK_FREE && block->bytes > free_blocks.largest_bytes)
      free_blocks.largest_bytes = block->bytes;
  return free_blocks;
}

struct sl_free_blocks sl_block_map_watch_free(struct sl_block_map *map) {
  if (!map->free_blocks && !free_blocks_list(map))
    return sl_block_map_free_blocks(map);
  return (struct sl_free_blocks){.largest_bytes = largest_free(map), .inactive_split_bytes = inactive_split(map)};
}

static int compare_addresses(const void *left, const void *right) {
  const struct sl_block *a = left, *b = right;
  return (a->address > b->address) - (a->address < b->address);
}

struct sl_block *sl_block_map_blocks(const struct sl_block_map *map, size_t *count) {
  *count = map->blocks.count;
  struct sl_block *blocks = *count ? malloc(*count * sizeof *blocks) : NULL, *at = blocks;
  if (!blocks)
    return NULL;
  for (const struct block *block = NULL; (block = block_table_next(&map->blocks, block));)
    *at++ = (struct sl_block){.address = block->address,
                              .bytes = block->bytes,
                              .requested_bytes = block->requested,
                              .place = block->place,
                              .state = block->state,
                              .starts_segment = !block->previous,
                              .user = block->user};
  qsort(blocks, *count, sizeof *blocks, compare_addresses);
  return blocks;
}
