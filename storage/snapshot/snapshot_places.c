/* Numbers the devices, streams and pools of a snapshot. */
#include "snapshot_places.h"

#include "storage/grow.h"

enum { PLACES_MAX = 4096 }; /* streams and pools of one program; more are place 0 */

uint16_t sl_snapshot_place_of(const struct sl_snapshot_places *places, uint32_t device, uint64_t stream,
                              uint64_t pool_owner, uint64_t pool_id) {
  for (size_t i = 0; i < places->count; i++) {
    const struct sl_event_allocator_place *place = &places->list[i];
    if (place->device == device && place->stream == stream && place->pool_owner == pool_owner &&
        place->pool_id == pool_id)
      return (uint16_t)place->id;
  }
  return 0;
}

int sl_snapshot_place_add(struct sl_snapshot_places *places, uint32_t device, uint64_t stream, uint64_t pool_owner,
                          uint64_t pool_id) {
  if (places->count == PLACES_MAX || sl_snapshot_place_of(places, device, stream, pool_owner, pool_id))
    return 0;
  struct sl_event_allocator_place *added = SL_LIST_ADD_ROOM(places->list, places->count, &places->capacity);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_event_allocator_place){
      .id = (uint32_t)places->count, .device = device, .stream = stream, .pool_owner = pool_owner, .pool_id = pool_id};
  return 0;
}

int sl_snapshot_places_find(const struct sl_snapshot *snapshot, struct sl_snapshot_places *places) {
  places->of_entries = calloc(snapshot->entry_count + 1, sizeof *places->of_entries);
  if (!places->of_entries)
    return -ENOMEM;
  for (uint32_t device = 0; device < SL_DEVICES_MAX; device++)
    for (size_t i = 0; i < snapshot->trace_counts[device]; i++) {
      const uint32_t row = snapshot->traces[device][i];
      const struct sl_snapshot_entry *entry = &snapshot->entries[row];
      const uint64_t owner = entry->pool ? snapshot->pools[entry->pool].owner : 0;
      const uint64_t id = entry->pool ? snapshot->pools[entry->pool].id : 0;
      int r = sl_snapshot_place_add(places, device, entry->stream, owner, id);
      if (r < 0)
        return r;
      places->of_entries[row] = sl_snapshot_place_of(places, device, entry->stream, owner, id);
    }
  return 0;
}

void sl_snapshot_places_free(struct sl_snapshot_places *places) {
  free(places->list);
  free(places->of_entries);
  *places = (struct sl_snapshot_places){0};
}
