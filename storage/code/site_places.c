/* A table by the hash of a place. Two places with one hash would need 2^32 of them. */
#include "site_places.h"

#include "storage/hash_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PLACES_MAX = 1 << 20 }; /* of sampled steps whose sizes all differ, the later ones are forgotten */

struct place {
  uint64_t key;
  struct sl_place_site is;
  enum { OUTLIVED_never, OUTLIVED_unused, OUTLIVED_used } outlived;
  int64_t unused_step;
  uint32_t steps; /* in which it was recorded, with the same site each time; 0: with several */
  UT_hash_handle hh;
};

struct sl_site_places {
  struct place *places;
  bool lack_memory;
};

struct sl_site_places *sl_site_places_new(void) {
  return calloc(1, sizeof(struct sl_site_places));
}

struct sl_site_places *sl_site_places_free(struct sl_site_places *places) {
  if (places)
    SL_HASH_FREE(places->places);
  free(places);
  return NULL;
}

/* Steps are told apart by their numbers, which are left out. */
static uint64_t key_of(const struct sl_phase *phase, uint32_t nth) {
  uint64_t key = nth;
  for (; phase && phase->kind != SL_KIND_step; phase = phase->parent) {
    const uint64_t parts[] = {key, (uint64_t)phase->kind << 32 | phase->module, phase->call_index};
    key = XXH3_64bits(parts, sizeof parts);
    if (!phase->module && phase->name)
      key = XXH3_64bits_withSeed(phase->name, strlen(phase->name), key);
  }
  return key;
}

static uint64_t key_with_size(uint64_t key, uint64_t bytes) {
  const uint64_t parts[] = {key, bytes};
  return XXH3_64bits(parts, sizeof parts);
}

static struct place *place_find(const struct sl_site_places *places, uint64_t key) {
  struct place *place = NULL;
  HASH_FIND(hh, places->places, &key, sizeof key, place);
  return place;
}

static void place_note(struct sl_site_places *places, uint64_t key, struct sl_place_site is) {
  struct place *place = place_find(places, key);
  if (place) {
    place->steps = place->is.site != is.site || !place->steps ? 0 : place->steps + (place->is.step != is.step);
    place->is = is;
  } else if (HASH_COUNT(places->places) < PLACES_MAX) {
    place = calloc(1, sizeof *place);
    if (place) {
      place->key = key;
      place->is = is;
      place->steps = 1;
      SL_HASH_ADD(places->places, key, place);
    }
    places->lack_memory |= !place;
  }
}

struct sl_place_site sl_site_places_site(struct sl_site_places *places, const struct sl_phase *phase, uint32_t nth,
                                         uint64_t requested_bytes, int64_t step, uint32_t site) {
  struct sl_place_site own = {site, step, 0};
  if (!site && !places->places)
    return own; /* as in every log without sites */
  const uint64_t key = key_of(phase, nth), sized = key_with_size(key, requested_bytes);
  own.place = sized;
  if (site) {
    place_note(places, sized, own);
    place_note(places, key, own);
    return own;
  }
  const struct place *place = place_find(places, sized);
  if (place)
    return place->is;
  place = place_find(places, key);
  if (place && place->steps >= 2) {
    own.site = place->is.site;
    own.step = place->is.step;
  }
  return own;
}

void sl_site_places_outlived(struct sl_site_places *places, uint64_t place_number, int64_t step, bool used) {
  struct place *place = place_find(places, place_number);
  if (!place || place->outlived == OUTLIVED_used)
    return;
  place->outlived = used ? OUTLIVED_used : OUTLIVED_unused;
  place->unused_step = step;
}

int64_t sl_site_places_unused(const struct sl_site_places *places, uint64_t place_number) {
  const struct place *place = place_find(places, place_number);
  return place && place->outlived == OUTLIVED_unused ? place->unused_step : -1;
}

bool sl_site_places_lack_memory(const struct sl_site_places *places) {
  return places->lack_memory;
}
