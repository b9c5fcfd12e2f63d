/*
 * A range is in two orders: the stack of its domain, which says what a pop ends, and its thread's, which says what is
 * innermost.
 */
#include "open_ranges.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>

/* So many threads, and stacks, may be kept without a range: for their next one. */
enum { EMPTY_MAX = 64 };

struct sl_range_thread { /* with or without a range that stands for a phase */
  uint32_t thread;
  struct sl_open_range *top;
  UT_hash_handle hh;
};

struct sl_range_domain { /* one stack of NVTX */
  uint64_t key;          /* thread << 32 | domain */
  struct sl_open_range *top;
  UT_hash_handle hh;
};

struct sl_open_range {
  struct sl_phase *phase; /* NULL: it stands for none */
  /* of one that was pushed */
  struct sl_open_range *below;         /* in its domain */
  struct sl_range_thread *thread;      /* NULL: it stands for none */
  struct sl_open_range *outer, *inner; /* on its thread, among those that stand for a phase */
  /* of one that was started */
  uint64_t id;
  UT_hash_handle hh;
};

static struct sl_range_thread *thread_find(const struct sl_open_ranges *ranges, uint32_t number) {
  struct sl_range_thread *thread = ranges->latest;
  if (!thread || thread->thread != number)
    HASH_FIND(hh, ranges->threads, &number, sizeof number, thread);
  return thread;
}

static struct sl_range_thread *thread_of(struct sl_open_ranges *ranges, uint32_t number) {
  struct sl_range_thread *thread = ranges->latest;
  if (!thread || thread->thread != number)
    SL_HASH_FIND_OR_ADD(ranges->threads, thread, number, thread);
  return ranges->latest = thread;
}

static struct sl_range_domain *domain_find(const struct sl_open_ranges *ranges, uint64_t key) {
  struct sl_range_domain *domain;
  HASH_FIND(hh, ranges->domains, &key, sizeof key, domain);
  return domain;
}

static struct sl_range_domain *domain_of(struct sl_open_ranges *ranges, uint64_t key) {
  struct sl_range_domain *domain;
  SL_HASH_FIND_OR_ADD(ranges->domains, key, key, domain);
  return domain;
}

static uint64_t domain_key(uint32_t thread, uint16_t domain) {
  return (uint64_t)thread << 32 | domain;
}

static void range_enters_thread(struct sl_open_range *range, struct sl_range_thread *thread) {
  range->thread = thread;
  range->outer = thread->top;
  if (thread->top)
    thread->top->inner = range;
  thread->top = range;
}

static void range_leaves_thread(struct sl_open_ranges *ranges, struct sl_open_range *range) {
  struct sl_range_thread *thread = range->thread;
  if (!thread)
    return;
  if (range->inner)
    range->inner->outer = range->outer;
  else
    thread->top = range->outer;
  if (range->outer)
    range->outer->inner = range->inner;
  range->thread = NULL;
  range->outer = range->inner = NULL;
  if (!thread->top && HASH_COUNT(ranges->threads) > EMPTY_MAX) {
    HASH_DEL(ranges->threads, thread);
    if (ranges->latest == thread)
      ranges->latest = NULL;
    free(thread);
  }
}

int sl_open_ranges_push(struct sl_open_ranges *ranges, uint32_t thread_number, uint16_t domain_id,
                        struct sl_phase *phase) {
  struct sl_range_domain *domain = domain_of(ranges, domain_key(thread_number, domain_id));
  struct sl_range_thread *thread = phase && domain ? thread_of(ranges, thread_number) : NULL;
  struct sl_open_range *range = domain && (thread || !phase) ? sl_spare_take(&ranges->spare, sizeof *range) : NULL;
  if (!range)
    return -ENOMEM;
  *range = (struct sl_open_range){.phase = phase, .below = domain->top};
  domain->top = range;
  if (phase) {
    phase->range = range;
    range_enters_thread(range, thread);
  }
  return 0;
}

int sl_open_ranges_start(struct sl_open_ranges *ranges, uint64_t id, struct sl_phase *phase) {
  struct sl_open_range *range = sl_spare_take(&ranges->spare, sizeof *range);
  if (!range)
    return -ENOMEM;
  *range = (struct sl_open_range){.phase = phase, .id = id};
  SL_HASH_ADD(ranges->started, id, range);
  if (!range)
    return -ENOMEM;
  if (phase)
    phase->range = range;
  return 0;
}

void sl_open_ranges_forget(struct sl_open_ranges *ranges, struct sl_phase *phase) {
  struct sl_open_range *range = phase->range;
  if (!range)
    return;
  range_leaves_thread(ranges, range);
  range->phase = NULL;
  phase->range = NULL;
}

static struct sl_phase *range_free(struct sl_open_ranges *ranges, struct sl_open_range *range) {
  struct sl_phase *phase = range->phase;
  if (phase)
    sl_open_ranges_forget(ranges, phase);
  sl_spare_give(&ranges->spare, range);
  return phase;
}

bool sl_open_ranges_pop(struct sl_open_ranges *ranges, uint32_t thread, uint16_t domain_id, struct sl_phase **phase) {
  struct sl_range_domain *domain = domain_find(ranges, domain_key(thread, domain_id));
  if (!domain || !domain->top)
    return false;
  struct sl_open_range *range = domain->top;
  domain->top = range->below;
  if (!domain->top && HASH_COUNT(ranges->domains) > EMPTY_MAX) {
    HASH_DEL(ranges->domains, domain);
    free(domain);
  }
  *phase = range_free(ranges, range);
  return true;
}

bool sl_open_ranges_end(struct sl_open_ranges *ranges, uint64_t id, struct sl_phase **phase) {
  struct sl_open_range *range;
  HASH_FIND(hh, ranges->started, &id, sizeof id, range);
  if (!range)
    return false;
  HASH_DEL(ranges->started, range);
  *phase = range_free(ranges, range);
  return true;
}

struct sl_phase *sl_open_ranges_top(const struct sl_open_ranges *ranges, uint32_t number) {
  const struct sl_range_thread *thread = thread_find(ranges, number);
  return thread && thread->top ? thread->top->phase : NULL;
}

bool sl_open_ranges_only_top(const struct sl_open_ranges *ranges, const struct sl_phase *waiting,
                             struct sl_phase **phase) {
  *phase = NULL;
  for (const struct sl_range_thread *thread = ranges->threads; thread; thread = thread->hh.next) {
    if (!thread->top || thread->top->phase == waiting)
      continue;
    if (*phase)
      return false;
    *phase = thread->top->phase;
  }
  return true;
}

void sl_open_ranges_clear(struct sl_open_ranges *ranges) {
  struct sl_range_domain *domain, *next_domain;
  struct sl_open_range *range, *next;
  HASH_ITER(hh, ranges->domains, domain, next_domain) {
    HASH_DEL(ranges->domains, domain);
    for (range = domain->top; range; range = next) {
      next = range->below;
      range_free(ranges, range);
    }
    free(domain);
  }
  HASH_ITER(hh, ranges->started, range, next) {
    HASH_DEL(ranges->started, range);
    range_free(ranges, range);
  }
  SL_HASH_FREE(ranges->threads);
  ranges->latest = NULL;
  sl_spare_free(&ranges->spare);
}
