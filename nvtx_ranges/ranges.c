/*
 * libshardledger_nvtx.so: shardledger_nvtx.h behind plain functions, for callers that can't include a header (Python
 * through ctypes) or must share one NVTX instance (the torch bridge, through function pointers). It is a library of its
 * own and not part of libshardledger.so because NVTX must not be initialised by the tool that it initialises.
 */
#include "ranges.h"

#include "plugin/process/config.h"
#include "shardledger_nvtx.h"

#include <stddef.h>

int slr_attached(void) {
  return sl_nvtx_domain() != NULL;
}

const void *slr_domain(void) {
  return sl_nvtx_domain();
}

const char *slr_option(const char *name) {
  return sl_option_named(name);
}

/* ---- where NVTX has another tool than libshardledger.so ---- */

struct listener {
  slr_push_fn *push;
  slr_pop_fn *pop;
  slr_start_fn *start;
  slr_end_fn *end;
  slr_mark_fn *mark;
};

static struct listener listener;
static const struct listener *also; /* NULL: nobody else listens */

static const struct listener *other_listener(void) {
  return __atomic_load_n(&also, __ATOMIC_ACQUIRE);
}

void slr_hand_on(slr_push_fn *push, slr_pop_fn *pop, slr_start_fn *start, slr_end_fn *end, slr_mark_fn *mark) {
  listener = (struct listener){push, pop, start, end, mark};
  __atomic_store_n(&also, &listener, __ATOMIC_RELEASE);
}

/*
 * Start/end ranges that two listen to have two ids. Callers get the listener's, marked, because the other tool's may be
 * any number; where that stands is found by it.
 */
#define MARK (UINT64_C(1) << 63)
#define TAKEN UINT64_MAX
enum { OPEN_MAX = 1024 };

static struct {
  uint64_t id; /* 0: free; TAKEN: being written */
  uint64_t nvtx;
} open_ranges[OPEN_MAX];

/* Returns the id for the caller; 0, with the range ended again, when too many are open. */
static uint64_t remember(const struct listener *to, uint64_t id, uint64_t nvtx) {
  for (size_t i = 0; i < OPEN_MAX; i++) {
    size_t at = (id + i) % OPEN_MAX;
    uint64_t expected = 0;
    if (!__atomic_compare_exchange_n(&open_ranges[at].id, &expected, TAKEN, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      continue;
    open_ranges[at].nvtx = nvtx;
    __atomic_store_n(&open_ranges[at].id, id | MARK, __ATOMIC_RELEASE);
    return id | MARK;
  }
  to->end(id);
  sl_nvtx_end(nvtx);
  return 0;
}

/* The other tool's id of a range that remember() gave this id, which is forgotten. False when it is none of those. */
static int recall(uint64_t id, uint64_t *nvtx) {
  for (size_t i = 0; (id & MARK) && i < OPEN_MAX; i++) {
    size_t at = ((id & ~MARK) + i) % OPEN_MAX;
    if (__atomic_load_n(&open_ranges[at].id, __ATOMIC_ACQUIRE) != id)
      continue;
    *nvtx = open_ranges[at].nvtx;
    __atomic_store_n(&open_ranges[at].id, 0, __ATOMIC_RELEASE);
    return 1;
  }
  return 0;
}

/* ---- ranges ---- */

void slr_push(uint32_t category, const char *name, uint64_t value) {
  const struct listener *to = other_listener();
  sl_nvtx_push(category, name, value);
  if (to)
    to->push(category, name, value);
}

void slr_pop(void) {
  const struct listener *to = other_listener();
  sl_nvtx_pop();
  if (to)
    to->pop();
}

uint64_t slr_start(uint32_t category, const char *name, uint64_t value) {
  const struct listener *to = other_listener();
  uint64_t nvtx = sl_nvtx_start(category, name, value);
  return to ? remember(to, to->start(category, name, value), nvtx) : nvtx;
}

void slr_end(uint64_t id) {
  uint64_t nvtx;
  if (!recall(id, &nvtx)) {
    sl_nvtx_end(id);
    return;
  }
  sl_nvtx_end(nvtx);
  other_listener()->end(id & ~MARK);
}

void slr_mark(uint32_t category, const char *name, uint64_t value) {
  const struct listener *to = other_listener();
  sl_nvtx_mark(category, name, value);
  if (to)
    to->mark(category, name, value);
}
