/*
 * Preloaded into a command: memory runs out at the FAIL_AT-th request (counted from 1 over all threads), once, or with
 * FAIL_ON=1 from there on. FAIL_COUNT names a file that gets the number of all requests at the end. Linked into a test,
 * it does so from failing_malloc_begin() to failing_malloc_end().
 */
#include <stdbool.h>

#include "failing_malloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_ulong requests;
static unsigned long fail_at;
static bool fail_on;

/* The dynamic loader's own requests come before this, and are not counted. */
__attribute__((constructor)) static void begin(void) {
  const char *at = getenv("FAIL_AT"), *on = getenv("FAIL_ON");
  atomic_store(&requests, 0);
  fail_on = on && *on == '1';
  fail_at = at ? strtoul(at, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("FAIL_COUNT");
  char text[32];
  int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
  int length = snprintf(text, sizeof text, "%lu", atomic_load(&requests));
  if (file >= 0 && write(file, text, (size_t)length) == length)
    close(file);
}

void failing_malloc_begin(unsigned long at, bool on) {
  atomic_store(&requests, 0);
  fail_on = on;
  fail_at = at;
}

unsigned long failing_malloc_end(void) {
  fail_at = 0;
  return atomic_load(&requests);
}

static bool fails(void) {
  unsigned long number = atomic_fetch_add(&requests, 1) + 1;
  if (!fail_at || (fail_on ? number < fail_at : number != fail_at))
    return false;
  errno = ENOMEM;
  return true;
}

void *malloc(size_t size) {
  return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
  return fails() ? NULL : __libc_realloc(memory, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
  *out = fails() ? NULL : __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : __libc_memalign(alignment, size);
}
