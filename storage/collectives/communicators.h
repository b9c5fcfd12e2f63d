/*
 * NCCL's communicators of a rank: by id, and those whose id is not told yet; which of them threads work for, and the
 * device memory that NCCL holds for each.
 *
 * What one event costs does not depend on how many communicators, threads and allocations there are.
 */
#ifndef SHARDLEDGER_COMMUNICATORS_H
#define SHARDLEDGER_COMMUNICATORS_H

#include "storage/hash_table.h"
#include <stdbool.h>
#include <stdint.h>

struct sl_peer_count { /* sends or receives so far between this rank and a peer */
  struct {
    int64_t peer;
    int64_t receives; /* 1: of receives */
  } key;
  uint64_t count;
  UT_hash_handle hh;
};

struct sl_communicator {
  bool named; /* id is known; an initialisation's is not before it ends */
  uint64_t id;
  int64_t ranks, rank;       /* -1: unknown */
  const char *name;          /* owned by the log; NULL: none */
  uint64_t calls;            /* collectives so far */
  uint64_t held, peak;       /* device memory */
  uint64_t start_ns, end_ns; /* its initialisation, as the thread that asked for it saw it; 0: unknown */

  /* communicators.c's own. */
  struct sl_peer_count *peers;
  struct sl_communicator *same;                    /* it turned out to be this one, which goes on for both */
  struct sl_communicator *prev, *next;             /* all of them, in order */
  struct sl_communicator *prev_other, *next_other; /* those without a name */
  uint32_t workers;                                /* threads that work for it */
  struct sl_communicator *prev_busy, *next_busy;   /* those with workers */
  UT_hash_handle hh;                               /* those with a name, by id */
};

struct sl_communicators;

struct sl_communicators *sl_communicators_new(void); /* NULL: no memory */
struct sl_communicators *sl_communicators_free(struct sl_communicators *all);

/* The first one, ->next. Valid, as all of them, until the end. */
struct sl_communicator *sl_communicators_list(const struct sl_communicators *all);

/* One whose id is not known yet. NULL: no memory. */
struct sl_communicator *sl_communicator_new(struct sl_communicators *all);

/*
 * The communicator of this id. When a single initialisation has ended without telling its id, as in logs that lack the
 * payloads of ends, a new id is that communicator's. NULL: no memory.
 */
struct sl_communicator *sl_communicator_of(struct sl_communicators *all, uint64_t id);

/* A communicator's id gets known: 0 or -ENOMEM. What was counted for it goes to the one that has the id already. */
int sl_communicator_name(struct sl_communicators *all, struct sl_communicator *fresh, uint64_t id);

/* Which one goes on for it: itself, but for those that turned out to be another one. NULL stays NULL. */
struct sl_communicator *sl_communicator_itself(struct sl_communicator *communicator);

/* A thread that worked for the one works for the other now; each may be NULL. */
void sl_communicators_worker(struct sl_communicators *all, struct sl_communicator *before, struct sl_communicator *now);

/* The only one that threads work for, else the only one there is; NULL: not one, or not only one. */
struct sl_communicator *sl_communicators_only(const struct sl_communicators *all);

/* How often a peer has been sent to, or received from. NULL: no memory. */
struct sl_peer_count *sl_communicator_peer(struct sl_communicator *communicator, int64_t number, bool receives);

/* NCCL allocated device memory for it (0 or -ENOMEM), and freed it. */
int sl_communicators_hold(struct sl_communicators *all, struct sl_communicator *owner, uint64_t address,
                          uint64_t bytes);
void sl_communicators_release(struct sl_communicators *all, uint64_t address);

#endif
