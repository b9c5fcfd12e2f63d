/*
 * Sums over time: given what happened in a step in order, with every category decided, what was allocated by category
 * when modules reached their states, and at the highest point of every phase.
 *
 * Pure: items in, samples out. The running totals go on from one step to the next.
 */
#ifndef SHARDLEDGER_SWEEP_H
#define SHARDLEDGER_SWEEP_H

#include "item.h"

struct sl_sample {
  uint64_t at_ns;
  uint64_t allocated_bytes;
  uint64_t category_bytes[SL_CATEGORY_limit];
};

struct sl_own_bytes {
  uint64_t alone;         /* most that the module itself owned at one instant */
  uint64_t with_children; /* most that it and all modules below it owned together at one instant */
};

struct sl_sweep_listener {
  void *context;
  /*
   * The totals at a snapshot, or at the highest point of a window, of which the item is the one that opened it. 0, or a
   * negative errno that ends the sweep.
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
 * What a tag says holds for all of the items that are run next, so that a peak's categories are those of the
 * allocations that made it. 0 or -errno.
 */
int sl_sweep_retag(struct sl_sweep *sweep, const struct sl_item *items, size_t count);

/* Runs over the items of one period in order; phases still open at the end are reported as they are. 0 or -errno. */
int sl_sweep_run(struct sl_sweep *sweep, const struct sl_item *items, size_t count);

/* The allocation goes: the sums are without it from here on, also where nobody said that it was freed. */
void sl_sweep_forget(struct sl_sweep *sweep, struct sl_allocation *allocation);

#endif
