/* Keeps a snapshot's texts and call stacks once each. */
#include "snapshot_names.h"

#include "storage/grow.h"
#include "storage/hash_table.h"

#include <stdlib.h>
#include <string.h>

struct sl_name_entry {
  const char *text; /* in the file: not terminated */
  uint32_t number;
  UT_hash_handle hh;
};

struct sl_place_entry {
  struct {
    uint32_t file, function, line;
  } key;
  uint32_t number;
  UT_hash_handle hh;
};

struct sl_frame_slot {
  uint64_t key;    /* caller and place */
  uint32_t number; /* 0: free */
};

static const struct {
  const char *text;
  size_t length;
} words[SL_WORD_count] = {
#define WORD(name, text) [SL_WORD_##name] = {text, sizeof(text) - 1},
#include "snapshot_words.def"
#undef WORD
};

void sl_snapshot_names_free(struct sl_snapshot_names *names) {
  SL_HASH_FREE(names->strings);
  SL_HASH_FREE(names->places);
  free(names->frames);
  free(names->list);
  free(names->path);
  *names = (struct sl_snapshot_names){0};
}

enum sl_snapshot_word sl_snapshot_word(struct sl_snapshot_names *names, const struct sl_unpickler *reader,
                                       struct sl_pickled value) {
  if (value.kind != SL_PICKLED_text)
    return SL_WORD_none;
  const uint64_t place = (uint64_t)value.number + 1; /* 0: nothing is cached */
  const size_t slot = place * UINT64_C(0x9e3779b97f4a7c15) >> 56;
  if (names->cache[slot].text == place)
    return names->cache[slot].word;
  size_t length;
  const char *text = sl_unpickle_text(reader, value, &length);
  enum sl_snapshot_word word = SL_WORD_none;
  for (int i = 1; i < SL_WORD_count && word == SL_WORD_none; i++)
    if (words[i].length == length && memcmp(words[i].text, text, length) == 0)
      word = (enum sl_snapshot_word)i;
  names->cache[slot].text = place;
  names->cache[slot].word = word;
  return word;
}

/* Room for number `next` in a list that begins with 1; what lies before is zero. NULL: no memory. */
static void *list_from_one(void *list, uint32_t next, size_t size) {
  return next == 1 ? calloc(4, size) : sl_list_grow(list, next, size);
}

bool sl_snapshot_string(struct sl_snapshot_names *names, const struct sl_unpickler *reader, struct sl_pickled value,
                        uint32_t *out) {
  struct sl_snapshot *snapshot = names->snapshot;
  size_t length;
  const char *text = sl_unpickle_text(reader, value, &length);
  struct sl_name_entry *entry;
  *out = 0;
  if (!text || !length)
    return true;
  HASH_FIND(hh, names->strings, text, length, entry);
  if (entry) {
    *out = entry->number;
    return true;
  }
  const uint32_t number = snapshot->string_count ? snapshot->string_count : 1;
  struct sl_snapshot_text *grown = list_from_one(snapshot->strings, number, sizeof *grown);
  entry = calloc(1, sizeof *entry);
  if (grown)
    snapshot->strings = grown;
  if (!grown || !entry) {
    free(entry);
    return false;
  }
  entry->text = text;
  entry->number = number;
  HASH_ADD_KEYPTR(hh, names->strings, entry->text, length, entry);
  if (SL_HASH_FAILED(entry)) {
    free(entry);
    return false;
  }
  grown[number] = (struct sl_snapshot_text){text, (uint32_t)length};
  snapshot->string_count = number + 1;
  *out = number;
  return true;
}

bool sl_snapshot_code_at(struct sl_snapshot_names *names, uint32_t file, uint32_t function, uint32_t line,
                         uint32_t *out) {
  struct sl_place_entry search = {.key = {file, function, line}}, *place;
  HASH_FIND(hh, names->places, &search.key, sizeof search.key, place);
  if (place) {
    *out = place->number;
    return true;
  }
  void *room = sl_list_room(names->list, names->place_count, &names->place_capacity, sizeof *names->list);
  if (!room)
    return false;
  names->list = room;
  place = malloc(sizeof *place);
  if (!place)
    return false;
  *place = search;
  place->number = *out = (uint32_t)names->place_count;
  SL_HASH_ADD(names->places, key, place);
  if (!place)
    return false;
  names->list[names->place_count].file = file;
  names->list[names->place_count].function = function;
  names->list[names->place_count++].line = line;
  return true;
}

/* Where this key is, or would go. */
static struct sl_frame_slot *slot_of(const struct sl_snapshot_names *names, uint64_t key) {
  size_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> 20;
  while (names->frames[at & (names->frame_slots - 1)].number && names->frames[at & (names->frame_slots - 1)].key != key)
    at++;
  return &names->frames[at & (names->frame_slots - 1)];
}

static bool slots_grow(struct sl_snapshot_names *names) {
  enum { FIRST_SLOTS = 1 << 12 };
  const struct sl_snapshot_names before = *names;
  const size_t count = before.frame_slots ? 2 * before.frame_slots : FIRST_SLOTS;
  struct sl_frame_slot *grown = calloc(count, sizeof *grown);
  if (!grown)
    return false;
  names->frames = grown;
  names->frame_slots = count;
  for (size_t i = 0; i < before.frame_slots; i++)
    if (before.frames[i].number)
      *slot_of(names, before.frames[i].key) = before.frames[i];
  free(before.frames);
  return true;
}

/* The frame at a place that this frame calls. 0: no memory. */
static uint32_t frame_of(struct sl_snapshot_names *names, uint32_t caller, uint32_t place) {
  struct sl_snapshot *snapshot = names->snapshot;
  const uint32_t number = snapshot->frame_count ? snapshot->frame_count : 1;
  if (2 * (size_t)number >= names->frame_slots && !slots_grow(names))
    return 0;
  const uint64_t key = (uint64_t)caller << 32 | place;
  struct sl_frame_slot *slot = slot_of(names, key);
  if (slot->number)
    return slot->number;
  struct sl_snapshot_frame *grown = list_from_one(snapshot->frames, number, sizeof *grown);
  if (!grown)
    return 0;
  snapshot->frames = grown;
  grown[number] =
      (struct sl_snapshot_frame){caller, names->list[place].file, names->list[place].function, names->list[place].line};
  snapshot->frame_count = number + 1;
  *slot = (struct sl_frame_slot){key, number};
  return number;
}

bool sl_snapshot_stack(struct sl_snapshot_names *names, const struct sl_pickled *places, size_t count, uint32_t *out) {
  if (count > names->path_capacity) {
    void *grown = reallocarray(names->path, 2 * count, sizeof *names->path);
    if (!grown)
      return false;
    names->path = grown;
    names->path_capacity = 2 * count;
  }
  uint32_t frame = 0;
  size_t depth = 0;
  bool same = true; /* as the stack before, so far */
  for (size_t i = count; i-- > 0;) {
    if (places[i].kind != SL_PICKLED_own || places[i].number >= names->place_count)
      continue; /* no frame */
    const uint32_t place = (uint32_t)places[i].number;
    same = same && depth < names->path_length && names->path[depth].place == place;
    if (!same) {
      const uint32_t next = frame_of(names, frame, place);
      if (!next)
        return false;
      names->path[depth].place = place;
      names->path[depth].frame = next;
    }
    frame = names->path[depth++].frame;
  }
  names->path_length = depth;
  *out = frame;
  return true;
}
