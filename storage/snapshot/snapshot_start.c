/* Computes what the allocator held when a snapshot's history begins. */
#include "snapshot_start.h"

#include "segment_ranges.h"
#include "storage/grow.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct known { /* an address that the history speaks of */
  uint64_t address;
  size_t early; /* the early block at it, whose end is not complete; SIZE_MAX: none */
  UT_hash_handle hh;
};

struct early { /* a block from before the history */
  struct sl_start_block block;
  size_t until;   /* entry with which it is free; SIZE_MAX: it is there now */
  uint64_t bound; /* it ends here at the latest */
  bool is_sized;  /* its size is known */
};

struct search {
  const struct sl_snapshot *snapshot;
  const struct sl_allocator_config *config;
  uint32_t device;
  const uint32_t *trace;
  size_t trace_count;
  struct known *known;
  struct early *list;
  size_t count, capacity;
  struct sl_segment_ranges ranges;
};

static const struct sl_snapshot_entry *entry_of(const struct search *search, size_t at) {
  return &search->snapshot->entries[search->trace[at]];
}

bool sl_trace_has(const struct sl_snapshot *snapshot, uint32_t device, int action) {
  for (size_t i = 0; i < snapshot->trace_counts[device]; i++)
    if (snapshot->entries[snapshot->traces[device][i]].action == action)
      return true;
  return false;
}

/* ---- segments ---- */

static int ranges_find(struct search *search) {
  int r = 0;
  for (size_t i = 0; i < search->snapshot->segment_count && r == 0; i++) {
    const struct sl_snapshot_segment *segment = &search->snapshot->segments[i];
    const struct sl_segment_range range = {segment->address, segment->address + segment->bytes,
                                           segment->stream,  segment->pool_owner,
                                           segment->pool_id, segment->is_expandable};
    if (segment->device == search->device)
      r = sl_segment_ranges_add(&search->ranges, &range);
  }
  for (size_t i = search->trace_count; i-- > 0 && r == 0;) {
    const struct sl_snapshot_entry *entry = entry_of(search, i);
    const uint64_t until = entry->address + entry->bytes;
    const bool is_pooled = entry->pool != 0;
    const struct sl_segment_range range = {entry->address,
                                           until,
                                           entry->stream,
                                           is_pooled ? search->snapshot->pools[entry->pool].owner : 0,
                                           is_pooled ? search->snapshot->pools[entry->pool].id : 0,
                                           entry->action == SL_SEGMENT_UNMAP};
    if (entry->action == SL_SEGMENT_ALLOC || entry->action == SL_SEGMENT_MAP)
      r = sl_segment_ranges_cut(&search->ranges, entry->address, until);
    else if (entry->action == SL_SEGMENT_FREE || entry->action == SL_SEGMENT_UNMAP)
      r = sl_segment_ranges_add(&search->ranges, &range);
  }
  return r;
}

/* ---- blocks ---- */

static struct known *known_at(struct search *search, uint64_t address, bool *is_new) {
  struct known *known;
  HASH_FIND(hh, search->known, &address, sizeof address, known);
  *is_new = !known;
  if (known)
    return known;
  known = malloc(sizeof *known);
  if (known) {
    *known = (struct known){.address = address, .early = SIZE_MAX};
    SL_HASH_ADD(search->known, address, known);
  }
  return known;
}

static struct early *early_add(struct search *search) {
  struct early *added = SL_LIST_ADD_ROOM(search->list, search->count, &search->capacity);
  if (!added)
    return NULL;
  *added = (struct early){.until = SIZE_MAX};
  return added;
}

/* Those that the history frees before it hands them out. */
static int freed_find(struct search *search) {
  const bool tells_requests = sl_trace_has(search->snapshot, search->device, SL_FREE_REQUESTED);
  const bool tells_ends = sl_trace_has(search->snapshot, search->device, SL_FREE_COMPLETED);
  for (size_t i = 0; i < search->trace_count; i++) {
    const struct sl_snapshot_entry *entry = entry_of(search, i);
    if (entry->action != SL_ALLOC && entry->action != SL_FREE_REQUESTED && entry->action != SL_FREE_COMPLETED)
      continue;
    bool is_new;
    struct known *known = known_at(search, entry->address, &is_new);
    if (!known)
      return -ENOMEM;
    const bool ends = entry->action == SL_FREE_COMPLETED || !tells_ends;
    if (is_new && entry->action != SL_ALLOC) {
      struct early *early = early_add(search);
      if (!early)
        return -ENOMEM;
      early->block = (struct sl_start_block){
          .address = entry->address,
          .requested_bytes = entry->bytes,
          .state = entry->action == SL_FREE_COMPLETED && tells_requests ? SL_BLOCK_PENDING : SL_BLOCK_ALLOCATED};
      known->early = search->count - 1;
    }
    if (known->early != SIZE_MAX && (ends || entry->action == SL_ALLOC)) {
      search->list[known->early].until = i;
      known->early = SIZE_MAX;
    }
  }
  return 0;
}

/* Those that are there now. One whose end is not complete is among them. */
static int present_find(struct search *search) {
  for (size_t i = 0; i < search->snapshot->segment_count; i++) {
    const struct sl_snapshot_segment *segment = &search->snapshot->segments[i];
    for (size_t j = 0; j < segment->block_count && segment->device == search->device; j++) {
      const struct sl_snapshot_block *block = &search->snapshot->blocks[segment->first_block + j];
      if (block->state == SL_BLOCK_FREE)
        continue;
      struct known *known;
      HASH_FIND(hh, search->known, &block->address, sizeof block->address, known);
      if (known && known->early == SIZE_MAX)
        continue; /* the history handed it out */
      struct early *early = known ? &search->list[known->early] : early_add(search);
      if (!early)
        return -ENOMEM;
      early->block.address = block->address;
      early->block.bytes = block->bytes;
      early->block.requested_bytes = block->requested_bytes;
      early->block.stack = block->stack;
      early->block.state = known ? early->block.state : block->state;
      early->is_sized = true;
    }
  }
  return 0;
}

static int by_address(const void *left, const void *right) {
  const struct early *a = left, *b = right;
  return (a->block.address > b->block.address) - (a->block.address < b->block.address);
}

/* The last block that begins at the address or before it; NULL: none does. */
static struct early *early_before(const struct search *search, uint64_t address) {
  size_t low = 0, high = search->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (search->list[middle].block.address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low ? &search->list[low - 1] : NULL;
}

/*
 * A block ends where the next one begins. That may be one which the history hands out while this one lives: what is
 * free between the two at the beginning may not have been when this one was made.
 */
static void sizes_find(struct search *search) {
  size_t range = 0;
  if (search->count)
    qsort(search->list, search->count, sizeof *search->list, by_address);
  for (size_t i = 0; i < search->count; i++) {
    struct early *early = &search->list[i];
    while (range < search->ranges.count && search->ranges.list[range].until <= early->block.address)
      range++;
    early->bound = range < search->ranges.count ? search->ranges.list[range].until : UINT64_MAX;
    if (i + 1 < search->count && search->list[i + 1].block.address < early->bound)
      early->bound = search->list[i + 1].block.address;
  }
  for (size_t i = 0; i < search->trace_count; i++) {
    const struct sl_snapshot_entry *entry = entry_of(search, i);
    struct early *early = entry->action == SL_ALLOC ? early_before(search, entry->address) : NULL;
    if (early && early->block.address < entry->address && early->until > i && entry->address < early->bound)
      early->bound = entry->address;
  }
  for (size_t i = 0; i < search->count; i++) {
    struct early *early = &search->list[i];
    const uint64_t room = early->bound - early->block.address;
    const uint64_t rounded = sl_allocator_round(search->config, early->block.requested_bytes);
    if (!early->is_sized)
      early->block.bytes = room > rounded && sl_allocator_splits(search->config, room, rounded) ? rounded : room;
  }
}

/* ---- all of it ---- */

static int start_add(struct sl_start *out, size_t *capacity, const struct sl_segment_range *range,
                     struct sl_start_block block) {
  struct sl_start_block *added = SL_LIST_ADD_ROOM(out->blocks, out->count, capacity);
  if (!added)
    return -ENOMEM;
  block.stream = range->stream;
  block.pool_owner = range->pool_owner;
  block.pool_id = range->pool_id;
  block.starts_segment = block.address == range->from;
  *added = block;
  return 0;
}

static int start_write(const struct search *search, struct sl_start *out) {
  size_t capacity = 0, next = 0;
  int r = 0;
  out->segments = search->ranges.count;
  for (size_t i = 0; i < search->ranges.count && r == 0; i++) {
    const struct sl_segment_range *range = &search->ranges.list[i];
    uint64_t at = range->from;
    while (next < search->count && search->list[next].block.address < range->from)
      next++; /* of no segment: what frees it can't be replayed */
    for (; r == 0 && next < search->count && search->list[next].block.address < range->until; next++) {
      const struct sl_start_block *block = &search->list[next].block;
      if (block->address < at || !block->bytes || block->bytes > range->until - block->address)
        continue;
      if (block->address > at)
        r = start_add(out, &capacity, range, (struct sl_start_block){.address = at, .bytes = block->address - at});
      if (r == 0)
        r = start_add(out, &capacity, range, *block);
      at = block->address + block->bytes;
    }
    if (r == 0 && at < range->until)
      r = start_add(out, &capacity, range, (struct sl_start_block){.address = at, .bytes = range->until - at});
  }
  return r;
}

int sl_start_find(const struct sl_snapshot *snapshot, uint32_t device, const struct sl_allocator_config *config,
                  struct sl_start *out) {
  struct search search = {.snapshot = snapshot,
                          .config = config,
                          .device = device,
                          .trace = snapshot->traces[device],
                          .trace_count = snapshot->trace_counts[device]};
  *out = (struct sl_start){0};
  int r = ranges_find(&search);
  if (r == 0)
    r = freed_find(&search);
  if (r == 0)
    r = present_find(&search);
  if (r == 0) {
    sizes_find(&search);
    r = start_write(&search, out);
  }
  SL_HASH_FREE(search.known);
  free(search.list);
  free(search.ranges.list);
  return r;
}

void sl_start_free(struct sl_start *start) {
  free(start->blocks);
  *start = (struct sl_start){0};
}
