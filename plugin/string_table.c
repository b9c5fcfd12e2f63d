#include "string_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

/* Buckets are a power of two; half a megabyte of zero pages, of which only those in use cost memory. */
#define BUCKETS 65536u
#define CHUNK_BYTES (64u * 1024u)

struct entry {
  struct entry *next; /* written before the entry is published, never after */
  uint64_t hash;
  uint32_t id;
  uint32_t length;
  char text[];
};

static struct entry *_Atomic buckets[BUCKETS];
static uint32_t count;

/* Not malloc: a name may arrive from inside an allocator that some other tool instruments with NVTX. */
static char *chunk;
static size_t chunk_left;

static struct entry *entry_allocate(size_t length) {
  size_t bytes = (sizeof(struct entry) + length + 7) & ~(size_t)7;
  if (bytes > chunk_left) {
    void *map = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
      return NULL;
    chunk = map;
    chunk_left = CHUNK_BYTES;
  }
  struct entry *entry = (void *)chunk;
  chunk += bytes;
  chunk_left -= bytes;
  return entry;
}

uint32_t sl_names_find(const char *text, size_t length) {
  uint64_t hash = XXH3_64bits(text, length);
  struct entry *entry = atomic_load_explicit(&buckets[hash % BUCKETS], memory_order_acquire);
  for (; entry; entry = entry->next)
    if (entry->hash == hash && entry->length == length && memcmp(entry->text, text, length) == 0)
      return entry->id;
  return 0;
}

uint32_t sl_names_next(void) {
  return count < SL_NAMES_MAX ? count + 1 : 0;
}

uint32_t sl_names_add(const char *text, size_t length) {
  uint32_t id = sl_names_next();
  struct entry *entry = id ? entry_allocate(length) : NULL;
  if (!entry)
    return 0;
  entry->hash = XXH3_64bits(text, length);
  entry->id = id;
  entry->length = (uint32_t)length;
  memcpy(entry->text, text, length);
  struct entry *_Atomic *bucket = &buckets[entry->hash % BUCKETS];
  entry->next = atomic_load_explicit(bucket, memory_order_relaxed);
  atomic_store_explicit(bucket, entry, memory_order_release);
  count = id;
  return id;
}

/* Bytes of the valid UTF-8 character at text, or 0. Overlong forms, surrogates and beyond U+10FFFF are not valid. */
static size_t character_length(const unsigned char *text, size_t left) {
  unsigned char first = text[0];
  if (first < 0x80)
    return 1;
  size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || length > left)
    return 0;
  for (size_t i = 1; i < length; i++)
    if ((text[i] & 0xc0) != 0x80)
      return 0;
  unsigned char second = text[1];
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
      (first == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

size_t sl_name_clip(const char *text, size_t length) {
  if (length <= SL_NAME_MAX)
    return length;
  length = SL_NAME_MAX;
  /* A character has at most three continuation bytes; more of them are garbage, to be cut anywhere. */
  for (int back = 0; back < 3 && ((unsigned char)text[length] & 0xc0) == 0x80; back++)
    length--;
  return length;
}

size_t sl_name_clean(const char *text, size_t length, char *out) {
  static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
  const unsigned char *from = (const unsigned char *)text;
  size_t used = 0;
  for (size_t i = 0; i < length;) {
    size_t bytes = character_length(from + i, length - i);
    const char *copy = text + i;
    size_t copy_bytes = bytes;
    bool control = from[i] < 0x20 || from[i] == 0x7f || (bytes == 2 && from[i] == 0xc2 && from[i + 1] < 0xa0);
    if (bytes == 0) {
      copy = replacement;
      bytes = 1;
      copy_bytes = sizeof(replacement) - 1;
    } else if (control) {
      copy = "?";
      copy_bytes = 1;
    }
    if (used + copy_bytes > SL_NAME_MAX)
      break;
    memcpy(out + used, copy, copy_bytes);
    used += copy_bytes;
    i += bytes;
  }
  return used;
}
