/*
 * Address space is reserved once and filled from its beginning, so that nothing is allocated where a definition comes
 * from: it may be inside of an allocator.
 */
#include "pending_definitions.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PENDING_MAX (16u * 1024 * 1024) /* of address space; pages that are not used cost nothing */

struct entry {
  uint32_t type, bytes, tail_bytes;
};

static char *memory; /* entries, each followed by its bytes */
static size_t used;

bool sl_pending_add(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes) {
  const struct entry entry = {type, (uint32_t)bytes, (uint32_t)tail_bytes};
  const size_t need = sizeof(entry) + bytes + tail_bytes;
  if (!memory) {
    void *map = mmap(NULL, PENDING_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
      return false;
    memory = map;
  }
  if (need > PENDING_MAX - used)
    return false;
  char *at = memory + used;
  memcpy(at, &entry, sizeof(entry));
  memcpy(at + sizeof(entry), fields, bytes);
  if (tail_bytes)
    memcpy(at + sizeof(entry) + bytes, tail, tail_bytes);
  used += need;
  return true;
}

void sl_pending_replay(void (*define)(enum sl_event_type type, const void *fields, size_t bytes, const void *tail,
                                      size_t tail_bytes)) {
  for (size_t at = 0; at < used;) {
    struct entry entry;
    memcpy(&entry, memory + at, sizeof(entry));
    const char *fields = memory + at + sizeof(entry);
    define(entry.type, fields, entry.bytes, fields + entry.bytes, entry.tail_bytes);
    at += sizeof(entry) + entry.bytes + entry.tail_bytes;
  }
  if (memory)
    munmap(memory, PENDING_MAX);
  memory = NULL;
  used = 0;
}
