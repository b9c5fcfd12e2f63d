/*
 * A hash table whose buckets are lists that only grow in front: an entry is whole before it is seen and never changes,
 * so that looking one up takes no lock.
 */
#include "string_table.h"

#include "tsan_host.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdatomic.h>
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
    if (entry->hash == hash && entry->length == length) {
      sl_tsan_acquire(entry);
      if (memcmp(entry->text, text, length) == 0)
        return entry->id;
    }
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
  sl_tsan_release(entry);
  atomic_store_explicit(bucket, entry, memory_order_release);
  count = id;
  return id;
}
