/* The replay of a rank's allocators. Private pools are counted beside it, since it needs no pools to be exact. */
#include "rank_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLACES = 65536 };

void sl_rank_memory_init(struct sl_rank_memory *memory) {
  memory->device = -1;
}

void sl_rank_memory_free(struct sl_rank_memory *memory) {
  for (int i = 0; i < SL_DEVICES_MAX; i++)
    memory->devices[i].map = sl_block_map_free(memory->devices[i].map);
  for (uint32_t i = 0; i < memory->named_places; i++)
    free(memory->places[i].pool);
  free(memory->places);
  memory->places = NULL;
  memory->place_count = memory->named_places = 0;
}

void sl_rank_memory_facts(struct sl_rank_memory *memory, const struct sl_log *log) {
  const char *backend = sl_log_info(log, "allocator_backend");
  sl_allocator_config_parse(sl_log_info(log, "allocator_config"), &memory->config);
  memory->uncached = memory->uncached || (backend && strcmp(backend, "uncached") == 0);
  memory->drivers_pool = memory->uncached || (backend && strcmp(backend, "cudaMallocAsync") == 0);
}

/* ---- places ---- */

static int places_reach(struct sl_rank_memory *memory, uint32_t count) {
  if (count <= memory->place_count)
    return 0;
  struct sl_place *grown = reallocarray(memory->places, count, sizeof *grown);
  if (!grown)
    return -ENOMEM;
  memset(grown + memory->place_count, 0, (count - memory->place_count) * sizeof *grown);
  memory->places = grown;
  memory->place_count = count;
  return 0;
}

int sl_rank_memory_place_add(struct sl_rank_memory *memory, const struct sl_event_allocator_place *place) {
  if (place->id >= MAX_PLACES)
    return 0;
  int r = places_reach(memory, place->id + 1);
  if (r == 0 && !memory->places[place->id].pool)
    memory->places[place->id] =
        (struct sl_place){place->device, place->stream, place->pool_owner, place->pool_id, NULL};
  return r;
}

int sl_rank_memory_place_of(struct sl_rank_memory *memory, uint32_t device, uint64_t stream) {
  for (int i = 0; i < memory->stream_places; i++)
    if (memory->places[i].device == device && memory->places[i].stream == stream)
      return i;
  if (memory->stream_places == MAX_PLACES)
    return -EINVAL;
  if (places_reach(memory, (uint32_t)memory->stream_places + 1) < 0)
    return -ENOMEM;
  memory->places[memory->stream_places] = (struct sl_place){.device = device, .stream = stream};
  return memory->stream_places++;
}

bool sl_place_is_private(const struct sl_place *place) {
  return place->pool_owner || place->pool_id;
}

int sl_rank_memory_pool(struct sl_rank_memory *memory, uint32_t number, const char **out) {
  struct sl_place *place = number < memory->place_count ? &memory->places[number] : NULL;
  *out = NULL;
  if (!place)
    return 0;
  if (sl_place_is_private(place) && !place->pool &&
      asprintf(&place->pool, "%llu.%llu", (unsigned long long)place->pool_owner, (unsigned long long)place->pool_id) <
          0) {
    place->pool = NULL;
    return -ENOMEM;
  }
  if (place->pool && number >= memory->named_places)
    memory->named_places = number + 1;
  *out = place->pool;
  return 0;
}

/* ---- blocks ---- */

struct sl_block_map *sl_rank_memory_map(struct sl_rank_memory *memory, uint32_t device) {
  struct sl_block_map **map = &memory->devices[device].map;
  if (!*map)
    *map = sl_block_map_new(&memory->config);
  return *map;
}

int sl_rank_memory_restart(struct sl_rank_memory *memory, uint32_t device, uint32_t next_sequence) {
  struct sl_device_memory *known = &memory->devices[device];
  known->map = sl_block_map_free(known->map);
  known->private_pools = (struct sl_block_totals){0};
  known->next_sequence = next_sequence;
  return sl_rank_memory_map(memory, device) ? 0 : -ENOMEM;
}

struct sl_block_totals sl_rank_memory_now(const struct sl_rank_memory *memory) {
  const struct sl_block_map *map = memory->device >= 0 ? memory->devices[memory->device].map : NULL;
  return map ? *sl_block_map_totals(map) : (struct sl_block_totals){0};
}

static void subtract(uint64_t *from, uint64_t bytes) {
  *from -= bytes < *from ? bytes : *from; /* more only where events are missing */
}

static void private_pools_update(struct sl_block_totals *pools, int action, uint64_t segment_bytes,
                                 uint64_t block_bytes) {
  switch (action) {
  case SL_SEGMENT_ALLOC:
  case SL_SEGMENT_MAP: pools->reserved_bytes += segment_bytes; break;
  case SL_SEGMENT_FREE:
  case SL_SEGMENT_UNMAP: subtract(&pools->reserved_bytes, segment_bytes); break;
  case SL_ALLOC:
    pools->allocated_bytes += block_bytes;
    pools->active_bytes += block_bytes;
    break;
  case SL_FREE_REQUESTED: subtract(&pools->allocated_bytes, block_bytes); break;
  case SL_FREE_COMPLETED: subtract(&pools->active_bytes, block_bytes); break;
  default: break;
  }
}

int sl_rank_memory_apply(struct sl_rank_memory *memory, const struct sl_event_allocator *event,
                         struct sl_block_change *change) {
  const struct sl_place *place = sl_rank_memory_place(memory, event->place);
  struct sl_device_memory *known = &memory->devices[place->device];
  known->next_sequence = event->sequence + 1;
  int r = sl_block_map_apply(known->map, event->action, event->address, event->bytes, event->place, change);
  if (r < 0)
    return r;
  memory->unknown += change->unknown;
  if (sl_place_is_private(place) && !change->unknown)
    private_pools_update(&known->private_pools, event->action, event->bytes, change->block_bytes);
  return 0;
}

int sl_rank_memory_restore(struct sl_rank_memory *memory, const struct sl_known_block *block) {
  struct sl_device_memory *known = &memory->devices[block->device];
  int r = sl_block_map_restore(known->map, block->address, block->bytes, block->requested_bytes, block->state,
                               block->place, block->starts_segment);
  if (r < 0 || !sl_place_is_private(sl_rank_memory_place(memory, block->place)))
    return r;
  known->private_pools.reserved_bytes += block->bytes;
  known->private_pools.active_bytes += block->state == SL_BLOCK_FREE ? 0 : block->bytes;
  known->private_pools.allocated_bytes += block->state == SL_BLOCK_ALLOCATED ? block->bytes : 0;
  return 0;
}

struct sl_allocation *sl_rank_memory_find(const struct sl_rank_memory *memory, uint64_t address, uint32_t *device) {
  struct sl_allocation *a = NULL;
  for (uint32_t i = 0; i < SL_DEVICES_MAX && !a; i++)
    if (memory->devices[i].map && (a = sl_block_map_find(memory->devices[i].map, address)))
      *device = i;
  return a;
}

bool sl_rank_memory_is_partial(const struct sl_rank_memory *memory) {
  for (int i = 0; i < SL_DEVICES_MAX; i++)
    if (memory->devices[i].missing)
      return true;
  return false;
}
