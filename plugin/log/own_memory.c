/*
 * The kernel itself tells a child from its parent: it wipes pages that are marked for it (MADV_WIPEONFORK), whichever
 * way the child was made. Where it can't, the pid does.
 */
#include "own_memory.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define CHUNK_BYTES (64u * 1024)
#define LINE_BYTES 64u

static atomic_uint *mark;  /* 1 in this process; NULL where the kernel (before 4.14) can't wipe it in a child */
static atomic_int process; /* what counts then */
static char *chunk;
static size_t chunk_left;

static void *map(size_t bytes, bool *wiped) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return NULL;
  *wiped = madvise(memory, bytes, MADV_WIPEONFORK) == 0;
  return memory;
}

void sl_own_process_set(void) {
  bool wiped = false;
  void *page = mark ? NULL : map(sizeof(*mark), &wiped);
  if (wiped)
    mark = page;
  if (mark)
    atomic_store_explicit(mark, 1, memory_order_relaxed);
  atomic_store_explicit(&process, getpid(), memory_order_relaxed);
}

bool sl_own_process(void) {
  if (mark)
    return atomic_load_explicit(mark, memory_order_relaxed) != 0;
  const pid_t own = atomic_load_explicit(&process, memory_order_relaxed);
  return own == 0 || own == getpid();
}

void *sl_own_memory(size_t bytes) {
  bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
  if (bytes > chunk_left) {
    bool wiped;
    char *fresh = map(CHUNK_BYTES, &wiped);
    if (!fresh)
      return NULL;
    chunk = fresh;
    chunk_left = CHUNK_BYTES;
  }
  void *memory = chunk;
  chunk += bytes;
  chunk_left -= bytes;
  return memory;
}
