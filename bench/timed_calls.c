/*
 * Functions of libshardledger.so and libshardledger_nvtx.so with a clock around each call, to be handed to the torch
 * bridge in their place: what one event takes in the middle of real training, with caches as that leaves them
 * (tests/gpu/in_situ.py). The clock is the processor's counter, whose ticks the caller converts.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <x86intrin.h>

#define EXPORT __attribute__((visibility("default")))

enum timed { ALLOCATOR, PUSH, POP, START, END, NOTHING, TIMED_COUNT };

static void *functions[TIMED_COUNT];
static atomic_uint_fast64_t calls[TIMED_COUNT], ticks[TIMED_COUNT];

EXPORT void timed_set(int what, void *function) {
  functions[what] = function;
}

EXPORT void timed_clear(void) {
  for (int i = 0; i < TIMED_COUNT; i++)
    calls[i] = ticks[i] = 0;
}

EXPORT uint64_t timed_calls(int what) {
  return calls[what];
}

EXPORT uint64_t timed_ticks(int what) {
  return ticks[what];
}

EXPORT uint64_t timed_now(void) {
  return __rdtsc();
}

static void count(enum timed what, uint64_t begin) {
  uint64_t took = __rdtsc() - begin;
  atomic_fetch_add_explicit(&calls[what], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&ticks[what], took, memory_order_relaxed);
}

EXPORT void timed_allocator(int device, int action, uint64_t address, uint64_t bytes, uint64_t stream,
                            uint64_t pool_owner, uint64_t pool_id) {
  uint64_t begin = __rdtsc();
  ((void (*)(int, int, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t))functions[ALLOCATOR])(
      device, action, address, bytes, stream, pool_owner, pool_id);
  count(ALLOCATOR, begin);
}

EXPORT void timed_push(uint32_t kind, const char *name, uint64_t value) {
  uint64_t begin = __rdtsc();
  ((void (*)(uint32_t, const char *, uint64_t))functions[PUSH])(kind, name, value);
  count(PUSH, begin);
}

EXPORT void timed_pop(void) {
  uint64_t begin = __rdtsc();
  ((void (*)(void))functions[POP])();
  count(POP, begin);
}

EXPORT uint64_t timed_start(uint32_t kind, const char *name, uint64_t value) {
  uint64_t begin = __rdtsc();
  uint64_t id = ((uint64_t(*)(uint32_t, const char *, uint64_t))functions[START])(kind, name, value);
  count(START, begin);
  return id;
}

EXPORT void timed_end(uint64_t id) {
  uint64_t begin = __rdtsc();
  ((void (*)(uint64_t))functions[END])(id);
  count(END, begin);
}

/* What the clock itself takes; called once for each of the others, to be taken off. */
EXPORT void timed_nothing(void) {
  count(NOTHING, __rdtsc());
}
