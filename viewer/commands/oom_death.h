/* A death that `shardledger oom` speaks of, and what its files share. */
#ifndef SHARDLEDGER_OOM_DEATH_H
#define SHARDLEDGER_OOM_DEATH_H

#include "ask_ledger.h"
#include "storage/tables/db.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct sl_death {
  int64_t rank, at_ns;  /* at_ns -1: the log's end */
  int64_t step;         /* -1: outside steps */
  int64_t before;       /* the step before; -1: none */
  int64_t phase;        /* innermost; 0: none */
  int64_t wanted_bytes; /* from the driver: of PyTorch's allocator the segment, which its message names */
  int64_t requested_bytes, free_bytes, cached_bytes, allocated_bytes, reserved_bytes, largest_free_bytes;
  int64_t other_bytes; /* of the device, of neither this process nor explained */
  int64_t requests, ranks;
  int64_t unordered; /* deadly ones whose clocks can't be compared; below 0: this is one of them */
  char source[64], reason[16], place[160]; /* place: outside of steps, the period in words */
  bool free_known, allocated_known, reserved_known, clean, deadly, is_snapshot;
};

/* Makes the view `request` of oom.sql, with its function, and the table `death`. 0 or a negative errno. */
int sl_add_requests(struct sl_db *db, struct sl_error *error);

/*
 * The first deadly request of these ranks: the others' are often its consequence. Else the last one that was survived.
 * 1, 0 where none was refused, or a negative errno. sl_add_requests comes before it.
 */
int sl_read_request(struct sl_db *db, const struct sl_ranks *ranks, struct sl_death *out, struct sl_error *error);

/*
 * PyTorch takes a free block that fits before it asks the driver, but only one of the request's own stream and pool,
 * and none that max_split_size_mb keeps whole.
 */
static inline bool sl_is_block_of_others(const struct sl_death *death) {
  return strcmp(death->source, "allocator") == 0 && death->reserved_known &&
         death->largest_free_bytes >= death->requested_bytes;
}

#endif
