/* One tensor-level allocation while the ledger is being built. */
#ifndef SHARDLEDGER_ALLOCATION_H
#define SHARDLEDGER_ALLOCATION_H

#include "storage/phases/phases.h"
#include "storage/rules/categories.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_allocation {
  uint64_t id; /* 1, 2, … in the rank */
  uint64_t address, bytes, requested_bytes;
  uint32_t place, thread, tid;
  uint32_t device;
  int64_t step;               /* of its allocation; -1 outside steps */
  uint64_t alloc_at, free_at; /* positions in the event sequence; free_at 0: alive */
  uint64_t alloc_ns, free_ns, complete_ns;
  uint32_t number;   /* among those that were alive at its step's end, from the latest; 0 until then */
  int64_t last_step; /* last step at whose end it was alive; -1: none */

  struct sl_phase *phase,
      *free_phase;                  /* innermost ones; valid until the step in which they were set has been decided */
  uint64_t phase_id, free_phase_id; /* their ids, set with the decision */
  enum sl_kind phase_kind;          /* of the phase that decided, for "who allocated at the peak" */

  uint32_t sequence; /* of the allocator event that made it */
  bool restored;     /* there before recording began */
  bool dropped;      /* made in a part of the log that was dropped */
  bool unplaced;     /* what else was going on then is not known */
  bool workspace;    /* PyTorch's table of workspaces for cuBLAS has it */
  int tag_category;  /* -1: no tag */
  uint32_t tag_module;
  int64_t tag_step;     /* the step of the last tag */
  const char *tag_name; /* owned by the log; "" or NULL: none */

  bool decided;
  int category;           /* enum sl_category or a user category */
  uint8_t rule;           /* enum sl_attribution_rule */
  uint32_t module;        /* 0: none */
  int tracker_label;      /* category that PyTorch's tracker would show at first; -1: it does not see this */
  int tracker_later;      /* and once it has recognised what this is; -1: the same */
  bool tracker_soon;      /* which is when backward's function that made it has ended, not later */
  bool tracker_bucket;    /* which is when the first gradient goes into it: one of DistributedDataParallel's buckets */
  bool tracker_scratch;   /* made and freed within one operation, as far as can be told */
  uint64_t tracker_bytes; /* as the tracker counts them */

  bool counted; /* part of the running totals, under the two below */
  int counted_category;
  uint32_t counted_module;
  int counted_label;   /* of the tracker; -1: none */
  size_t unrecognised; /* place among those whose label the tracker will learn, from 1; 0: none of them */
  bool in_buckets;     /* it is one of DistributedDataParallel's buckets */

  struct sl_allocation *next; /* list of its owner */
};

#endif
