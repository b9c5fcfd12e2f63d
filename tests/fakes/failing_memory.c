/*
 * To be preloaded: memory that runs out in the plugin. Requests of threads that are marked, and of those that they
 * start, are counted; the one with the number FAIL_AT fails, or each from FAIL_FROM on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void failing_memory_mark(int on);
long failing_memory_count(void);

static __thread __attribute__((tls_model("initial-exec"))) int marked;
static atomic_long count, at, from;
static char early[1 << 16]; /* for what dlsym asks for before the real functions are known */
static size_t early_used;

static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

__attribute__((constructor)) static void begin(void) {
  const char *text = getenv("FAIL_AT");
  at = text ? atol(text) : 0;
  text = getenv("FAIL_FROM");
  from = text ? atol(text) : 0;
  *(void **)&real_free = dlsym(RTLD_NEXT, "free");
  *(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
  *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
  *(void **)&real_mmap = dlsym(RTLD_NEXT, "mmap");
  *(void **)&real_create = dlsym(RTLD_NEXT, "pthread_create");
  *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
}

void failing_memory_mark(int on) {
  marked = on;
}

long failing_memory_count(void) {
  return count;
}

static int fails(void) {
  if (!marked)
    return 0;
  const long number = atomic_fetch_add(&count, 1) + 1;
  if (number != at && !(from && number >= from))
    return 0;
  errno = ENOMEM;
  return 1;
}

static void *early_allocate(size_t bytes) {
  void *memory = early + early_used;
  early_used += (bytes + 15) & ~(size_t)15;
  return memory;
}

void *malloc(size_t bytes) {
  if (!real_malloc)
    return early_allocate(bytes);
  return fails() ? NULL : real_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
  if (!real_calloc)
    return early_allocate(number * bytes);
  return fails() ? NULL : real_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes) {
  if (fails())
    return NULL;
  if ((char *)memory < early || (char *)memory >= early + sizeof(early))
    return real_realloc(memory, bytes);
  void *larger = real_malloc(bytes);
  return larger ? memcpy(larger, memory, bytes) : NULL;
}

void free(void *memory) {
  if (((char *)memory < early || (char *)memory >= early + sizeof(early)) && real_free)
    real_free(memory);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return fails() ? MAP_FAILED : real_mmap(address, bytes, protection, flags, file, offset);
}

struct start {
  void *(*body)(void *);
  void *argument;
};

static void *marked_body(void *argument) {
  struct start start = *(struct start *)argument;
  real_free(argument);
  marked = 1;
  return start.body(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
  if (!marked)
    return real_create(thread, attributes, body, argument);
  struct start *start = real_malloc(sizeof(*start));
  *start = (struct start){body, argument};
  return real_create(thread, attributes, marked_body, start);
}
