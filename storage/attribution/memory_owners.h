/* Who held memory at one instant: the allocations alive then, grouped by what a person asks for, or by where in the
 * code they were made. */
#ifndef SHARDLEDGER_MEMORY_OWNERS_H
#define SHARDLEDGER_MEMORY_OWNERS_H

#include "allocation.h"
#include "storage/error.h"

enum sl_owners_by { SL_OWNERS_BY_phase, SL_OWNERS_BY_site }; /* beside category and module; detail goes with phase */

struct sl_memory_owner {
  enum sl_owners_by by;
  int category;       /* enum sl_category or a user category */
  const char *detail; /* NULL: none */
  uint32_t module;    /* 0: none */
  const char *phase;  /* kind of the phase that allocated it; NULL: none, or by site */
  uint32_t site;      /* 0: none, or by phase */
  uint64_t bytes, allocations;
};

/* 0, or a negative errno, which ends the listing. */
typedef int sl_owner_listener(void *context, const struct sl_memory_owner *owner, struct sl_error *error);

/* Groups those of the (decided) allocations that live on the device right after position at. */
int sl_memory_owners(struct sl_allocation *const *allocations, size_t count, uint32_t device, uint64_t at,
                     enum sl_owners_by by, sl_owner_listener *listener, void *context, struct sl_error *error);

#endif
