/*
 * Of two segments of one size and place the driver's order of addresses decides which is used first, and that order
 * differs between two processes of one program. The n-th one that is asked for gets the recorded address of the n-th,
 * unless another one is there still: then a new one.
 */
#include "segment_addresses.h"

#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_ADDRESS (UINT64_C(1) << 52) /* above all that a driver gives */
#define UNIT (UINT64_C(2) << 20)
#define SPAN (UINT64_C(1) << 60) /* in which shuffled ones lie, above the first */

struct taken {
  uint64_t address, bytes;
};

struct sl_segment_addresses {
  const struct sl_tape *tape;
  enum sl_replay_addresses kind;
  uint32_t *next;  /* of each segment of the tape: the next one of its size and place; UINT32_MAX: none */
  uint32_t *heads; /* segments of the tape that are the first unused ones of their size and place */
  size_t head_count;
  uint64_t next_address, random;
  struct taken *taken; /* that are there */
  size_t count;
  bool failed; /* memory ran out: addresses are new ones then, and nothing is known to be taken */
};

static bool is_like(const struct sl_segment_addresses *a, uint32_t segment, uint64_t stream, uint32_t pool,
                    uint64_t bytes) {
  const struct sl_tape_segment *s = &a->tape->segments[segment];
  return s->bytes == bytes && a->tape->places[s->place].stream == stream && a->tape->places[s->place].pool == pool;
}

/* Chains of the recorded ones, in their order. */
static int chains_make(struct sl_segment_addresses *a) {
  const size_t count = a->tape->segment_count;
  uint32_t *last = NULL; /* of each head's chain */
  int r = 0;
  a->next = reallocarray(NULL, count + 1, sizeof *a->next);
  if (!a->next)
    return -ENOMEM;
  for (uint32_t i = 0; i < count && r == 0; i++) {
    const struct sl_tape_segment *s = &a->tape->segments[i];
    const struct sl_tape_place *place = &a->tape->places[s->place];
    a->next[i] = UINT32_MAX;
    if (s->action != SL_TAPE_taken || s->is_range)
      continue;
    size_t head = 0;
    while (head < a->head_count && !is_like(a, a->heads[head], place->stream, place->pool, s->bytes))
      head++;
    if (head < a->head_count) {
      a->next[last[head]] = i;
      last[head] = i;
      continue;
    }
    uint32_t *heads = sl_list_grow(a->heads, head, sizeof *heads);
    if (heads)
      a->heads = heads;
    uint32_t *lasts = heads ? sl_list_grow(last, head, sizeof *last) : NULL;
    if (!lasts) {
      r = -ENOMEM;
      break;
    }
    last = lasts;
    a->heads[head] = last[head] = i;
    a->head_count++;
  }
  free(last);
  return r;
}

struct sl_segment_addresses *sl_segment_addresses_new(const struct sl_tape *tape, enum sl_replay_addresses kind,
                                                      uint64_t seed) {
  struct sl_segment_addresses *a = calloc(1, sizeof *a);
  if (!a)
    return NULL;
  *a = (struct sl_segment_addresses){.tape = tape, .kind = kind, .next_address = FIRST_ADDRESS, .random = seed};
  if (kind == SL_ADDRESSES_recorded && chains_make(a) < 0)
    return sl_segment_addresses_free(a);
  return a;
}

struct sl_segment_addresses *sl_segment_addresses_free(struct sl_segment_addresses *a) {
  if (!a)
    return NULL;
  free(a->next);
  free(a->heads);
  free(a->taken);
  free(a);
  return NULL;
}

int sl_segment_addresses_keep(struct sl_segment_addresses *a, uint64_t address, uint64_t bytes) {
  struct taken *added = SL_LIST_ADD(a->taken, a->count);
  if (!added) {
    a->failed = true;
    return -ENOMEM;
  }
  *added = (struct taken){address, bytes};
  return 0;
}

static bool is_taken(const struct sl_segment_addresses *a, uint64_t address, uint64_t bytes) {
  for (size_t i = 0; i < a->count; i++)
    if (address < a->taken[i].address + a->taken[i].bytes && a->taken[i].address < address + bytes)
      return true;
  return a->failed;
}

/* Its recorded address; 0: there is none that is free. */
static uint64_t recorded(struct sl_segment_addresses *a, uint64_t stream, uint32_t pool, uint64_t bytes) {
  for (size_t i = 0; i < a->head_count; i++) {
    const uint32_t segment = a->heads[i];
    if (segment == UINT32_MAX || !is_like(a, segment, stream, pool, bytes))
      continue;
    if (a->next[segment] == UINT32_MAX) {
      a->heads[i] = a->heads[--a->head_count];
    } else {
      a->heads[i] = a->next[segment];
    }
    const uint64_t address = a->tape->segments[segment].address;
    return is_taken(a, address, bytes) ? 0 : address;
  }
  return 0;
}

/* Where nobody has been. */
static uint64_t new_address(struct sl_segment_addresses *a, uint64_t room) {
  uint64_t address = a->next_address;
  switch (a->kind) {
  case SL_ADDRESSES_shuffled:
    do { /* SplitMix64 */
      uint64_t mixed = a->random += UINT64_C(0x9e3779b97f4a7c15);
      mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
      mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
      address = FIRST_ADDRESS + (mixed ^ mixed >> 31) % SPAN / UNIT * UNIT;
    } while (!a->failed && is_taken(a, address, room));
    return address;
  case SL_ADDRESSES_falling: return a->next_address -= room; /* far from what a driver gives, for long */
  default: a->next_address += room; return address;
  }
}

uint64_t sl_segment_addresses_place(void *context, uint64_t stream, uint32_t pool, uint64_t bytes, bool expandable) {
  struct sl_segment_addresses *a = context;
  const uint64_t room = (bytes + UNIT - 1) / UNIT * UNIT;
  uint64_t address = a->kind == SL_ADDRESSES_recorded && !expandable ? recorded(a, stream, pool, bytes) : 0;
  if (!address)
    address = new_address(a, room);
  if (!expandable || a->kind == SL_ADDRESSES_shuffled)
    sl_segment_addresses_keep(a, address, bytes);
  return address;
}

void sl_segment_addresses_gone(void *context, uint64_t address) {
  struct sl_segment_addresses *a = context;
  for (size_t i = a->count; i-- > 0;)
    if (a->taken[i].address == address) {
      a->taken[i] = a->taken[a->count - 1];
      a->count--;
      return;
    }
}
