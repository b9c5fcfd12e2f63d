/* One tensor-level allocation while the ledger is being built. */
#ifndef SHARDLEDGER_ALLOCATION_H
#define SHARDLEDGER_ALLOCATION_H

#include "storage/phases/phases.h"
#include "storage/rules/categories.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* By operators, in the steps in which these are followed; times are 0 where there is none. */
struct sl_allocation_uses {
  uint64_t first_ns, last_ns;
  uint64_t forward_ns;                      /* the last one before a backward that came later */
  uint64_t hidden_first_ns, hidden_last_ns; /* launches that no operator made, while it was alive */
  uint32_t last_site;                       /* 0: not known */
  bool later;                               /* after the step of its allocation */
  bool in_backward;
  bool has_unused_step; /* it is not used after its step, as little as that of the same place in this one: */
  int64_t unused_step;
};

struct sl_allocation {
  uint64_t id; /* 1, 2, … in the rank */
  uint64_t address, bytes, requested_bytes;
  uint32_t place, thread, tid;
  uint32_t device;
  uint64_t period;                         /* of its allocation */
  int64_t step;                            /* of its allocation; -1 outside steps */
  uint64_t alloc_at, free_at, complete_at; /* positions in the event sequence; 0: not yet */
  uint64_t alloc_ns, free_ns, complete_ns;
  uint64_t alloc_event, free_event, complete_event; /* numbers of the allocator's events; 0: none, or not yet */
  uint32_t number;   /* among those that were alive at its step's end, from the latest; 0 until then */
  int64_t last_step; /* last step at whose end it was alive; -1: none */

  struct sl_phase *phase,
      *free_phase;                  /* innermost ones; valid until the step in which they were set has been decided */
  uint64_t phase_id, free_phase_id; /* their ids, set with the decision */
  enum sl_kind phase_kind;          /* of the phase that decided, for "who allocated at the peak" */

  uint32_t sequence;                    /* of the allocator event that made it */
  const char *note;                     /* the program's own word; owned by the log. NULL: none */
  const struct sl_user_rule *note_rule; /* that gives such memory a category; NULL: none */
  uint32_t site;                        /* where in the code; 0: not known */
  int64_t site_step;   /* the step in which that was recorded; -1: for this allocation itself, or not at all */
  uint64_t step_place; /* in its step (storage/code/site_places.h); 0: none */
  struct sl_allocation_uses uses;
  bool restored;    /* there before recording began */
  bool dropped;     /* made in a part of the log that was dropped */
  bool unplaced;    /* what else was going on then is not known */
  bool workspace;   /* PyTorch's table of workspaces for cuBLAS has it */
  int tag_category; /* -1: no tag */
  uint32_t tag_module;
  int64_t tag_step;     /* the step of the last tag */
  const char *tag_name; /* owned by the log; "" or NULL: none */

  bool decided;
  int category;    /* enum sl_category or a user category */
  uint8_t rule;    /* enum sl_attribution_rule */
  uint32_t module; /* 0: none */

  bool counted; /* part of the running totals, under the two below */
  int counted_category;
  uint32_t counted_module;

  struct sl_tracked *tracked; /* what storage/tracker knows of it; the tracker's own. NULL: nothing */

  struct sl_allocation *next; /* list of its owner */
};

#endif
