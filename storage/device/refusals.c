/*
 * The list has every refusal in order. Those of the driver can still turn out to be none: each thread's attempts with
 * one library are found by their bytes, and the smallest of them first.
 */
#include "refusals.h"
#include "storage/grow.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct asker { /* a thread, with the library that asks the driver for it */
  struct {
    const char *source; /* the log has each name once */
    uint64_t thread;
  } key;
  struct attempt **smallest; /* a heap by bytes */
  size_t count;
  UT_hash_handle hh;
};

struct attempt {
  struct {
    struct asker *asker;
    uint64_t bytes;
  } key;
  size_t at; /* in the list */
  UT_hash_handle hh;
};

struct sl_refusals {
  struct sl_refusal *list; /* source NULL: it was none */
  size_t count;
  struct asker *askers;
  struct attempt *attempts;
};

struct sl_refusals *sl_refusals_new(void) {
  return calloc(1, sizeof(struct sl_refusals));
}

struct sl_refusals *sl_refusals_free(struct sl_refusals *refusals) {
  if (!refusals)
    return NULL;
  sl_refusals_clear(refusals);
  free(refusals->list);
  free(refusals);
  return NULL;
}

static struct asker *asker_find(const struct sl_refusals *refusals, uint32_t thread, const char *source) {
  struct asker *asker;
  __typeof__(asker->key) key = {source, thread};
  HASH_FIND(hh, refusals->askers, &key, sizeof key, asker);
  return asker;
}

static struct asker *asker_of(struct sl_refusals *refusals, uint32_t thread, const char *source) {
  struct asker *asker;
  __typeof__(asker->key) key = {source, thread};
  SL_HASH_FIND_OR_ADD(refusals->askers, key, key, asker);
  return asker;
}

static int attempt_push(struct asker *asker, struct attempt *attempt) {
  if (!SL_LIST_ADD(asker->smallest, asker->count))
    return -ENOMEM;
  size_t at = asker->count - 1;
  for (; at > 0 && asker->smallest[(at - 1) / 2]->key.bytes > attempt->key.bytes; at = (at - 1) / 2)
    asker->smallest[at] = asker->smallest[(at - 1) / 2];
  asker->smallest[at] = attempt;
  return 0;
}

static struct attempt *attempt_pop(struct asker *asker) {
  struct attempt **heap = asker->smallest, *first = heap[0], *moving = heap[--asker->count];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < asker->count; at = child) {
    if (child + 1 < asker->count && heap[child + 1]->key.bytes < heap[child]->key.bytes)
      child++;
    if (heap[child]->key.bytes >= moving->key.bytes)
      break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
  return first;
}

/* The driver's refusal at the end of the list takes the place of the same attempt before it. */
static int attempt_note(struct sl_refusals *refusals, const struct sl_refusal *refusal, size_t at) {
  struct asker *asker = asker_of(refusals, refusal->thread, refusal->source);
  struct attempt *attempt;
  if (!asker)
    return -ENOMEM;
  __typeof__(attempt->key) key = {asker, refusal->row.requested_bytes};
  HASH_FIND(hh, refusals->attempts, &key, sizeof key, attempt);
  if (attempt) {
    refusals->list[attempt->at].source = NULL;
    attempt->at = at;
    return 0;
  }
  attempt = calloc(1, sizeof *attempt);
  if (!attempt)
    return -ENOMEM;
  attempt->key.asker = asker;
  attempt->key.bytes = key.bytes;
  attempt->at = at;
  SL_HASH_ADD(refusals->attempts, key, attempt);
  if (attempt && attempt_push(asker, attempt) < 0) {
    HASH_DEL(refusals->attempts, attempt);
    free(attempt);
    return -ENOMEM;
  }
  return attempt ? 0 : -ENOMEM;
}

int sl_refusals_add(struct sl_refusals *refusals, const struct sl_refusal *refusal, struct sl_error *error) {
  struct sl_refusal *grown = sl_list_grow(refusals->list, refusals->count, sizeof *grown);
  if (!grown)
    return sl_no_memory(error);
  refusals->list = grown;
  if (strcmp(refusal->source, SL_REFUSED_BY_ALLOCATOR) != 0 && attempt_note(refusals, refusal, refusals->count) < 0)
    return sl_no_memory(error);
  refusals->list[refusals->count++] = *refusal;
  return 0;
}

void sl_refusals_site(struct sl_refusals *refusals, uint32_t thread, uint32_t device, uint32_t site) {
  for (size_t i = refusals->count; i-- > 0;)
    if (refusals->list[i].thread == thread && refusals->list[i].device == device) {
      refusals->list[i].row.site = site;
      return;
    }
}

void sl_refusals_saved(struct sl_refusals *refusals, uint32_t thread, const char *source, uint64_t bytes) {
  struct asker *asker = refusals->askers ? asker_find(refusals, thread, source) : NULL;
  while (asker && asker->count && asker->smallest[0]->key.bytes <= bytes) {
    struct attempt *attempt = attempt_pop(asker);
    refusals->list[attempt->at].source = NULL;
    HASH_DEL(refusals->attempts, attempt);
    free(attempt);
  }
}

const struct sl_refusal *sl_refusals_list(struct sl_refusals *refusals, size_t *count) {
  size_t kept = 0;
  for (size_t i = 0; i < refusals->count; i++)
    if (refusals->list[i].source)
      refusals->list[kept++] = refusals->list[i];
  SL_HASH_FREE(refusals->attempts);
  struct asker *asker, *next_asker;
  HASH_ITER(hh, refusals->askers, asker, next_asker) {
    HASH_DEL(refusals->askers, asker);
    free(asker->smallest);
    free(asker);
  }
  refusals->count = kept;
  *count = kept;
  return refusals->list;
}

void sl_refusals_clear(struct sl_refusals *refusals) {
  size_t count;
  sl_refusals_list(refusals, &count);
  refusals->count = 0;
}
