/*
 * Sums over time: given what happened in a step in order, with every category decided, what was allocated by category
 * when modules reached their states, and at the highest point of every phase.
 *
 * Pure: items in, samples out. The running totals go on from one step to the next.
 */
#ifndef SHARDLEDGER_SWEEP_H
#define SHARDLEDGER_SWEEP_H

#include "allocation.h"

#include <stddef.h>
#include <stdint.h>

enum sl_state { /* of a module; the first ten and two peaks are FSDPMemTracker's, the rest MemTracker's */
#define STATE(name, word) SL_STATE_##name,
#include "states.def"
#undef STATE
                SL_STATE_count,
};

/* The trackers' own word for a state. */
const char *sl_state_name(enum sl_state state);

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
  uint64_t at_ns;
  union {
    struct sl_allocation *allocation;
    struct sl_phase *phase;
  };
};

/* Of a window's highest point the tracker's sums are those of the highest point that the tracker saw. */
struct sl_sample {
  uint64_t at_ns;
  uint64_t allocated_bytes;
  uint64_t category_bytes[SL_CATEGORY_limit];
  uint64_t tracker_total;                    /* the same as PyTorch's tracker would label it: tracker_label.h */
  uint64_t tracker_bytes[SL_CATEGORY_limit]; /* by the category whose word the tracker uses */
};

struct sl_own_bytes {
  uint64_t alone;         /* most that the module itself owned at one instant */
  uint64_t with_children; /* most that it and all modules below it owned together at one instant */
};

struct sl_sweep_listener {
  void *context;
  /*
   * The totals at a snapshot item, or at the highest point of a window, for which the item has the state that opened it
   * and the instant. 0, or a negative errno that ends the sweep.
   */
  int (*snapshot)(void *context, const struct sl_item *item, const struct sl_sample *sample);
  /* A phase's highest point and the most that its module owned within it. */
  int (*peak)(void *context, const struct sl_phase *phase, const struct sl_sample *sample,
              const struct sl_own_bytes *own);
  /* The module that contains this one, 0 for a root; asked once for each. NULL: no module contains another. */
  uint32_t (*parent)(void *context, uint32_t module);
};

struct sl_sweep;

struct sl_sweep *sl_sweep_new(const struct sl_sweep_listener *listener); /* NULL: no memory */
struct sl_sweep *sl_sweep_free(struct sl_sweep *sweep);                  /* returns NULL */

/*
 * What a tag says holds for all of the items that are run next, so that a peak's categories are those of the allocations
 * that made it. 0 or -errno.
 */
int sl_sweep_retag(struct sl_sweep *sweep, const struct sl_item *items, size_t count);

/* Runs over the items of one period in order; phases still open at the end are reported as they are. 0 or -errno. */
int sl_sweep_run(struct sl_sweep *sweep, const struct sl_item *items, size_t count);

/* The tracker knows no more of this allocation, if it ever did. */
void sl_sweep_unlabel(struct sl_sweep *sweep, struct sl_allocation *allocation);

/* The allocation goes: the sums are without it from here on, also where nobody said that it was freed. */
void sl_sweep_forget(struct sl_sweep *sweep, struct sl_allocation *allocation);

#endif
