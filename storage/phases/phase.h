/* A phase: a stretch of a thread's time that has a meaning, made of a range. */
#ifndef SHARDLEDGER_PHASE_H
#define SHARDLEDGER_PHASE_H

#include "nvtx_ranges/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_user_rule;

enum sl_phase_point { /* ranges of FSDP with a fixed meaning, from phase_rules.def */
                      SL_POINT_none,
                      SL_POINT_pre_forward,
                      SL_POINT_post_forward,
                      SL_POINT_pre_backward,
                      SL_POINT_copy_out,
                      SL_POINT_all_gather,
                      SL_POINT_accumulate,
                      SL_POINT_post_backward_reshard,
                      SL_POINT_reduce_scatter,
                      SL_POINT_inputs,
                      SL_POINT_root_callback,
                      SL_POINT_ddp_buckets,
                      SL_POINT_fsdp1_unshard, /* FSDP1 gathers into the unsharded parameter itself */
};

#define SL_STEP_MAX ((1ull << 53) - 1) /* numbers that every reader of a ledger has exactly */

struct sl_phase {
  uint64_t id; /* 1, 2, … in the rank */
  enum sl_kind kind;
  enum sl_phase_point point;
  const char *name; /* owned by the log */
  uint32_t module;  /* 0: none of its own */
  uint32_t tid, thread;
  int64_t step;           /* -1 outside steps */
  uint64_t recorded_step; /* of a step: its number as recorded, which may be another */
  uint32_t call_index;    /* among phases of this kind and module in the step */
  uint64_t start_ns, end_ns;
  uint64_t start_at, end_at;            /* positions in the event sequence; end_at 0: open */
  struct sl_phase *parent;              /* enclosing phase */
  const struct sl_user_rule *user_rule; /* category that the user gave to what is made in it; NULL: none */
  struct sl_phase *next, *previous;     /* list of the phases of the rank that are open, or closed and not pruned */
  bool derived;                         /* a module backward made of FSDP's ranges */
  bool resharded;                       /* a module backward that its reshard ended, unless its reduce follows */
  bool needed;                          /* for the owner: rows that are always kept speak of it */
  uint32_t number;                      /* for the owner: among those of its thread in its step */
  uint32_t allocations;                 /* for the owner: made in it, in none of the phases within, until now */

  /* phase_list.h: how long it is kept */
  bool closed, pruned;
  uint32_t depth;    /* phases around it */
  uint64_t children; /* phases in memory whose parent it is */
  struct sl_phase *next_closed;
  /* who forgets it when it is closed */
  struct sl_open_range *range;         /* open_ranges.h; NULL: none is open */
  struct sl_module_backward *backward; /* module_backwards.h; NULL: it is none, or has ended */
  bool reopened;                       /* scratch of sl_phases_jump */
};

/* The module that a phase serves: its own or the nearest enclosing one's; 0 for none. */
uint32_t sl_phase_module(const struct sl_phase *phase);

/* The nearest enclosing phase (itself included) of a kind, or NULL. */
struct sl_phase *sl_phase_enclosing(struct sl_phase *phase, enum sl_kind kind);
const struct sl_phase *sl_phase_enclosing_point(const struct sl_phase *phase, enum sl_phase_point point);

/* Word of a kind for the ledger. */
const char *sl_kind_name(enum sl_kind kind);

#endif
