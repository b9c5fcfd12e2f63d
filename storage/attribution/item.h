/*
 * What happened in a step, in order and one item each, as the passes over it at its end are given it.
 */
#ifndef SHARDLEDGER_ITEM_H
#define SHARDLEDGER_ITEM_H

#include "allocation.h"

#include <stddef.h>
#include <stdint.h>

enum sl_state { /* of a module; the first ten and two peaks are FSDPMemTracker's, the rest MemTracker's */
#define STATE(name, word) SL_STATE_##name,
#include "states.def"
#undef STATE
                SL_STATE_count,
};

enum sl_item_type {
  SL_ITEM_alloc,        /* allocation becomes part of the totals */
  SL_ITEM_free,         /* and leaves them */
  SL_ITEM_retag,        /* its category or module changed */
  SL_ITEM_snapshot,     /* a module reached a state: take the totals */
  SL_ITEM_open,         /* a phase begins: watch for its highest point */
  SL_ITEM_close,        /* and ends */
  SL_ITEM_window_open,  /* a tracker begins to look for a module's highest point */
  SL_ITEM_window_close, /* and stops; without an open window of that module and state nothing happens */
  SL_ITEM_recognise,    /* the tracker learns which allocations of the module are of the category */
  SL_ITEM_none,         /* withdrawn */
};

struct sl_item {
  enum sl_item_type type;
  enum sl_state state; /* of snapshots and windows */
  uint32_t module;     /* of snapshots, windows and what is recognised */
  uint32_t call_index; /* of snapshots, and of windows where they open */
  int category;        /* of what is recognised */
  bool aside;          /* of a retag: another model is trained, as far as was known then */
  uint64_t at_ns;
  union {
    struct sl_allocation *allocation;
    struct sl_phase *phase;
  };
};

#endif
