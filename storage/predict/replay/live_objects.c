/*
 * An event of a repeated period that ends something made in an earlier one says: the n-th from the latest of those that
 * were active when the period began. That is how the ledger tells periods to be the same.
 */
#include "live_objects.h"

#include "storage/allocator/chooser.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

enum { CHUNK = 512 };

struct entry {                           /* of an allocation of the tape */
  struct sl_live_object *own;            /* the one whose row it is */
  struct sl_live_object *copy;           /* made like it in the period that goes on, or found for it */
  uint32_t period;                       /* of the copy: 1 + index */
  uint32_t free_number, complete_number; /* of the object when it was ended, in the period that others repeat */
};

struct sl_live_objects {
  const struct sl_tape *tape;
  struct entry *entries;
  const struct sl_tape_period *template;
  uint32_t period; /* 1 + index */
  struct sl_live_object *newest;
  struct sl_live_object **at_start; /* from the latest, of a period that repeats another one */
  size_t start_count, start_capacity, active;
  struct sl_live_object **chunks, *spare;
  size_t chunk_count;
};

struct sl_live_objects *sl_live_objects_new(const struct sl_tape *tape) {
  struct sl_live_objects *o = calloc(1, sizeof *o);
  if (!o)
    return NULL;
  o->tape = tape;
  o->entries = calloc(tape->allocation_count + 1, sizeof *o->entries);
  return o->entries ? o : sl_live_objects_free(o);
}

struct sl_live_objects *sl_live_objects_free(struct sl_live_objects *o) {
  if (!o)
    return NULL;
  for (size_t i = 0; i < o->chunk_count; i++)
    free(o->chunks[i]);
  free(o->chunks);
  free(o->at_start);
  free(o->entries);
  free(o);
  return NULL;
}

int sl_live_period(struct sl_live_objects *o, const struct sl_tape_period *period,
                   const struct sl_tape_period *template) {
  o->period = (uint32_t)(period - o->tape->periods) + 1;
  o->template = template;
  o->start_count = 0;
  if (template && o->active > o->start_capacity) {
    struct sl_live_object **grown = reallocarray(o->at_start, 2 * o->active, sizeof(struct sl_live_object *));
    if (!grown)
      return -ENOMEM;
    o->at_start = grown;
    o->start_capacity = 2 * o->active;
  }
  uint32_t number = 0;
  for (struct sl_live_object *object = o->newest; object; object = object->older) {
    object->number = number++;
    if (template)
      o->at_start[o->start_count++] = object;
  }
  return 0;
}

static struct sl_live_object *object_make(struct sl_live_objects *o) {
  if (!o->spare) {
    struct sl_live_object **grown = sl_list_grow(o->chunks, o->chunk_count, sizeof *grown);
    if (!grown)
      return NULL;
    o->chunks = grown;
    struct sl_live_object *chunk = calloc(CHUNK, sizeof *chunk);
    if (!chunk)
      return NULL;
    grown[o->chunk_count++] = chunk;
    for (size_t i = 0; i < CHUNK; i++) {
      chunk[i].older = o->spare;
      o->spare = &chunk[i];
    }
  }
  struct sl_live_object *object = o->spare;
  o->spare = object->older;
  return object;
}

struct sl_live_object *sl_live_begin(struct sl_live_objects *o, uint32_t own, uint32_t repeated) {
  struct sl_live_object *object = object_make(o);
  if (!object)
    return NULL;
  *object = (struct sl_live_object){.allocation = own != UINT32_MAX ? own : repeated, .number = UINT32_MAX};
  DL_PREPEND2(o->newest, object, newer, older);
  o->active++;
  if (own != UINT32_MAX)
    o->entries[own].own = object;
  if (repeated != UINT32_MAX) {
    o->entries[repeated].copy = object;
    o->entries[repeated].period = o->period;
  }
  return object;
}

void sl_live_end(struct sl_live_objects *o, struct sl_live_object *object) {
  DL_DELETE2(o->newest, object, newer, older);
  struct entry *entry = &o->entries[object->allocation];
  if (entry->own == object)
    entry->own = NULL;
  o->active--;
  object->allocation = UINT32_MAX;
  object->older = o->spare;
  o->spare = object;
}

uint64_t sl_live_signature(const struct sl_live_objects *o, uint64_t signature) {
  for (const struct sl_live_object *object = o->newest; object; object = object->older) {
    signature = sl_signature_add(signature, (uint64_t)object->allocation << 1 | object->freed);
    signature = sl_signature_add(signature, object->block ? sl_chosen_address(object->block) : 0);
  }
  return signature;
}

static bool is_like(const struct sl_live_objects *o, const struct sl_live_object *object, uint32_t allocation,
                    bool freed) {
  if (!object || object->allocation == UINT32_MAX || object->freed != freed)
    return false;
  const struct sl_tape_allocation *a = &o->tape->allocations[object->allocation];
  const struct sl_tape_allocation *b = &o->tape->allocations[allocation];
  return a->requested == b->requested && a->place == b->place && a->category == b->category;
}

/* Of those that were active when the period began: the one with this number, else the nearest that is like it. */
static struct sl_live_object *numbered(const struct sl_live_objects *o, uint32_t allocation, uint32_t number,
                                       bool freed) {
  for (size_t distance = 0; distance <= o->start_count; distance++) {
    const size_t lower = number - distance, upper = number + distance;
    if (upper < o->start_count && is_like(o, o->at_start[upper], allocation, freed))
      return o->at_start[upper];
    if (distance <= number && lower < o->start_count && is_like(o, o->at_start[lower], allocation, freed))
      return o->at_start[lower];
  }
  return NULL;
}

struct sl_live_object *sl_live_find(struct sl_live_objects *o, uint32_t own, uint32_t repeated, bool complete) {
  if (own != UINT32_MAX) {
    struct entry *entry = &o->entries[own];
    if (!o->template && entry->own)
      *(complete ? &entry->complete_number : &entry->free_number) = entry->own->number;
    if (entry->own)
      return entry->own;
  }
  if (repeated == UINT32_MAX)
    return NULL;
  struct entry *entry = &o->entries[repeated];
  if (entry->period == o->period)
    return entry->copy;
  struct sl_live_object *object =
      numbered(o, repeated, complete ? entry->complete_number : entry->free_number, complete);
  if (object) {
    entry->copy = object;
    entry->period = o->period;
  }
  return object;
}
