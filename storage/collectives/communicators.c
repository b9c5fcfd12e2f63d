/* A communicator that turned out to be another one stays, and points to it: whoever knows it need not be found. */
#include "communicators.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct held { /* a live driver-level allocation of NCCL */
  uint64_t address, bytes;
  struct sl_communicator *owner;
  UT_hash_handle hh;
};

struct sl_communicators {
  struct sl_communicator *first, *nameless, *busy, *by_id;
  struct sl_communicator *merged; /* those that are others: to be freed, ->next */
  struct held *held;
};

struct sl_communicators *sl_communicators_new(void) {
  return calloc(1, sizeof(struct sl_communicators));
}

static void communicator_free(struct sl_communicator *communicator) {
  SL_HASH_FREE(communicator->peers);
  free(communicator);
}

struct sl_communicators *sl_communicators_free(struct sl_communicators *all) {
  if (!all)
    return NULL;
  SL_HASH_FREE(all->held);
  HASH_CLEAR(hh, all->by_id);
  struct sl_communicator *communicator, *next;
  LL_FOREACH_SAFE(all->first, communicator, next)
  communicator_free(communicator);
  LL_FOREACH_SAFE(all->merged, communicator, next)
  communicator_free(communicator);
  free(all);
  return NULL;
}

struct sl_communicator *sl_communicators_list(const struct sl_communicators *all) {
  return all->first;
}

struct sl_communicator *sl_communicator_new(struct sl_communicators *all) {
  struct sl_communicator *communicator = calloc(1, sizeof *communicator);
  if (!communicator)
    return NULL;
  communicator->ranks = communicator->rank = -1;
  DL_APPEND(all->first, communicator);
  DL_APPEND2(all->nameless, communicator, prev_other, next_other);
  return communicator;
}

static struct sl_communicator *communicator_find(const struct sl_communicators *all, uint64_t id) {
  struct sl_communicator *communicator;
  HASH_FIND(hh, all->by_id, &id, sizeof id, communicator);
  return communicator;
}

static void forget_name(struct sl_communicators *all, struct sl_communicator *communicator) {
  if (communicator->named)
    HASH_DEL(all->by_id, communicator);
  else
    DL_DELETE2(all->nameless, communicator, prev_other, next_other);
}

static int give_name(struct sl_communicators *all, struct sl_communicator *communicator, uint64_t id) {
  forget_name(all, communicator);
  communicator->id = id;
  HASH_ADD(hh, all->by_id, id, sizeof communicator->id, communicator);
  communicator->named = !SL_HASH_FAILED(communicator);
  if (communicator->named)
    return 0;
  DL_APPEND2(all->nameless, communicator, prev_other, next_other);
  return -ENOMEM;
}

struct sl_communicator *sl_communicator_of(struct sl_communicators *all, uint64_t id) {
  struct sl_communicator *communicator = communicator_find(all, id);
  if (communicator)
    return communicator;
  const bool one_is_nameless = all->nameless && !all->nameless->next_other;
  communicator = one_is_nameless ? all->nameless : sl_communicator_new(all);
  return communicator && give_name(all, communicator, id) == 0 ? communicator : NULL;
}

static void busy_with(struct sl_communicators *all, struct sl_communicator *communicator, uint32_t workers) {
  if (communicator->workers && !workers)
    DL_DELETE2(all->busy, communicator, prev_busy, next_busy);
  else if (!communicator->workers && workers)
    DL_APPEND2(all->busy, communicator, prev_busy, next_busy);
  communicator->workers = workers;
}

int sl_communicator_name(struct sl_communicators *all, struct sl_communicator *fresh, uint64_t id) {
  struct sl_communicator *known = communicator_find(all, id);
  if (known == fresh)
    return 0;
  if (!known)
    return give_name(all, fresh, id);
  if (!known->start_ns) {
    known->start_ns = fresh->start_ns;
    known->end_ns = fresh->end_ns;
  }
  known->held += fresh->held;
  if (known->peak < known->held)
    known->peak = known->held;
  const uint32_t workers = fresh->workers;
  busy_with(all, fresh, 0);
  busy_with(all, known, known->workers + workers);
  forget_name(all, fresh);
  DL_DELETE(all->first, fresh);
  fresh->same = known;
  LL_PREPEND(all->merged, fresh);
  return 0;
}

struct sl_communicator *sl_communicator_itself(struct sl_communicator *communicator) {
  while (communicator && communicator->same) {
    if (communicator->same->same) /* the next one has a shorter way */
      communicator->same = communicator->same->same;
    communicator = communicator->same;
  }
  return communicator;
}

void sl_communicators_worker(struct sl_communicators *all, struct sl_communicator *before,
                             struct sl_communicator *now) {
  before = sl_communicator_itself(before);
  now = sl_communicator_itself(now);
  if (before == now)
    return;
  if (before)
    busy_with(all, before, before->workers - 1);
  if (now)
    busy_with(all, now, now->workers + 1);
}

struct sl_communicator *sl_communicators_only(const struct sl_communicators *all) {
  if (all->busy)
    return all->busy->next_busy ? NULL : all->busy;
  return all->first && !all->first->next ? all->first : NULL;
}

struct sl_peer_count *sl_communicator_peer(struct sl_communicator *communicator, int64_t number, bool receives) {
  struct sl_peer_count *peer, search;
  memset(&search, 0, sizeof search);
  search.key.peer = number;
  search.key.receives = receives;
  HASH_FIND(hh, communicator->peers, &search.key, sizeof search.key, peer);
  if (!peer && (peer = malloc(sizeof *peer))) {
    *peer = search;
    SL_HASH_ADD(communicator->peers, key, peer);
  }
  return peer;
}

void sl_communicators_release(struct sl_communicators *all, uint64_t address) {
  struct held *held;
  HASH_FIND(hh, all->held, &address, sizeof address, held);
  if (!held)
    return;
  sl_communicator_itself(held->owner)->held -= held->bytes;
  HASH_DEL(all->held, held);
  free(held);
}

int sl_communicators_hold(struct sl_communicators *all, struct sl_communicator *owner, uint64_t address,
                          uint64_t bytes) {
  struct held *held = malloc(sizeof *held);
  if (!held)
    return -ENOMEM;
  held->address = address;
  held->bytes = bytes;
  held->owner = owner;
  SL_HASH_ADD(all->held, address, held);
  if (!held)
    return -ENOMEM;
  owner->held += bytes;
  if (owner->held > owner->peak)
    owner->peak = owner->held;
  return 0;
}
