/*
 * Running totals by category and by module, and of the latter also with all modules below. Highest points are watched
 * for as maxima, so that what an allocation costs does not grow with the number of open phases.
 */
#include "sweep.h"

#include "maxima.h"
#include "storage/hash_table.h"
#include "windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct module_sum { /* what a module owns now */
  uint32_t id;
  bool parent_known, watched;
  struct sl_own_bytes now;
  struct module_sum *parent; /* asked for once, so that what is added and what is removed go the same way up */
  struct sl_maxima alone, with_children;
  struct module_sum *next_watched;
  UT_hash_handle hh;
};

struct watch { /* an open phase */
  const struct sl_phase *phase;
  int64_t peak, alone, with_children; /* numbers in the sums' maxima */
  struct module_sum *module;
  struct watch *older, *newer;
  UT_hash_handle hh;
};

enum { MAX_MODULE_DEPTH = 256 }; /* ends the way up where a log has parents in a circle */

struct sl_sweep {
  struct sl_sweep_listener listener;
  struct sl_sample now;
  struct module_sum *modules, *watched; /* by id; those with watches */
  struct watch *watches, *newest_watch; /* by phase */
  struct sl_maxima watch_peaks;
  struct sl_windows windows;
};

struct sl_sweep *sl_sweep_new(const struct sl_sweep_listener *listener) {
  struct sl_sweep *sweep = calloc(1, sizeof *sweep);
  if (!sweep)
    return NULL;
  sweep->listener = *listener;
  sweep->watch_peaks.sample_bytes = sweep->windows.maxima.sample_bytes = sizeof sweep->now;
  return sweep;
}

static void watch_free(struct sl_sweep *sweep, struct watch *watch) {
  DL_DELETE2(sweep->newest_watch, watch, newer, older);
  HASH_DEL(sweep->watches, watch);
  free(watch);
}

/* No phase and no window is open any more. */
static void maxima_clear(struct sl_sweep *sweep) {
  while (sweep->newest_watch)
    watch_free(sweep, sweep->newest_watch);
  for (struct module_sum *module; (module = sweep->watched);) {
    sweep->watched = module->next_watched;
    module->watched = false;
    sl_maxima_clear(&module->alone);
    sl_maxima_clear(&module->with_children);
  }
  sl_maxima_clear(&sweep->watch_peaks);
  sl_windows_clear(&sweep->windows);
}

struct sl_sweep *sl_sweep_free(struct sl_sweep *sweep) {
  if (!sweep)
    return NULL;
  maxima_clear(sweep);
  SL_HASH_FREE(sweep->modules);
  free(sweep);
  return NULL;
}

/* ---- what modules own ---- */

static struct module_sum *module_of(struct sl_sweep *sweep, uint32_t id) {
  struct module_sum *module;
  SL_HASH_FIND_OR_ADD(sweep->modules, id, id, module);
  return module;
}

/* The module, with everything above it, so that own_change can't fail. NULL: no memory. */
static struct module_sum *own_prepare(struct sl_sweep *sweep, uint32_t id) {
  struct module_sum *own = module_of(sweep, id), *module = own;
  for (int depth = 0; module && depth < MAX_MODULE_DEPTH; depth++) {
    if (!module->parent_known) {
      uint32_t parent =
          module->id && sweep->listener.parent ? sweep->listener.parent(sweep->listener.context, module->id) : 0;
      if (parent && !(module->parent = module_of(sweep, parent)))
        return NULL;
      module->parent_known = true;
    }
    if (!module->parent)
      break;
    module = module->parent;
  }
  return own;
}

/* bytes may be negative: unsigned arithmetic takes them away. */
static void own_change(struct module_sum *module, uint64_t bytes) {
  module->now.alone += bytes;
  for (int depth = 0; module && module->id && depth < MAX_MODULE_DEPTH; depth++, module = module->parent)
    module->now.with_children += bytes;
}

/* ---- highest points ---- */

/* The module, and those around it, may own more than before. */
static void peaks_raise(struct sl_sweep *sweep, struct module_sum *module) {
  sl_windows_raise(&sweep->windows, sweep->now.allocated_bytes, &sweep->now);
  if (!sweep->newest_watch)
    return;
  sl_maxima_raise(&sweep->watch_peaks, sweep->now.allocated_bytes, &sweep->now);
  sl_maxima_raise(&module->alone, module->now.alone, NULL);
  for (int depth = 0; module && depth < MAX_MODULE_DEPTH; depth++, module = module->parent)
    sl_maxima_raise(&module->with_children, module->now.with_children, NULL);
}

/* ---- totals ---- */

static int item_add(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  struct module_sum *module = own_prepare(sweep, allocation->module);
  if (!module)
    return -ENOMEM;
  allocation->counted = true;
  allocation->counted_category = allocation->category;
  allocation->counted_module = allocation->module;
  sweep->now.allocated_bytes += allocation->bytes;
  sweep->now.category_bytes[allocation->category] += allocation->bytes;
  own_change(module, allocation->bytes);
  peaks_raise(sweep, module);
  return 0;
}

static void item_remove(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  if (!allocation->counted)
    return;
  allocation->counted = false;
  sweep->now.allocated_bytes -= allocation->bytes;
  sweep->now.category_bytes[allocation->counted_category] -= allocation->bytes;
  own_change(module_of(sweep, allocation->counted_module), 0 - allocation->bytes);
}

void sl_sweep_forget(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  item_remove(sweep, allocation);
}

int sl_sweep_retag(struct sl_sweep *sweep, const struct sl_item *items, size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct sl_allocation *allocation = items[i].allocation;
    if (items[i].type != SL_ITEM_retag || !allocation->counted)
      continue;
    struct module_sum *module = own_prepare(sweep, allocation->module);
    if (!module)
      return -ENOMEM;
    sweep->now.category_bytes[allocation->counted_category] -= allocation->bytes;
    sweep->now.category_bytes[allocation->category] += allocation->bytes;
    own_change(module_of(sweep, allocation->counted_module), 0 - allocation->bytes);
    own_change(module, allocation->bytes);
    allocation->counted_category = allocation->category;
    allocation->counted_module = allocation->module;
  }
  return 0;
}

static int watch_open(struct sl_sweep *sweep, const struct sl_phase *phase) {
  struct module_sum *module = module_of(sweep, phase->module);
  struct watch *watch = module ? calloc(1, sizeof *watch) : NULL;
  if (!watch)
    return -ENOMEM;
  *watch = (struct watch){
      .phase = phase,
      .peak = sl_maxima_open(&sweep->watch_peaks, sweep->now.allocated_bytes, &sweep->now),
      .alone = sl_maxima_open(&module->alone, module->now.alone, NULL),
      .with_children = sl_maxima_open(&module->with_children, module->now.with_children, NULL),
      .module = module,
  };
  if (!module->watched) {
    module->watched = true;
    module->next_watched = sweep->watched;
    sweep->watched = module;
  }
  if (watch->peak < 0 || watch->alone < 0 || watch->with_children < 0) {
    free(watch);
    return -ENOMEM;
  }
  SL_HASH_ADD(sweep->watches, phase, watch);
  if (!watch)
    return -ENOMEM;
  DL_PREPEND2(sweep->newest_watch, watch, newer, older);
  return 0;
}

static int watch_close(struct sl_sweep *sweep, struct watch *watch) {
  struct module_sum *module = watch->module;
  const struct sl_maximum peak = sl_maxima_of(&sweep->watch_peaks, watch->peak);
  struct sl_sample sample;
  memcpy(&sample, peak.sample, sizeof sample);
  const struct sl_own_bytes own = {
      .alone = sl_maxima_of(&module->alone, watch->alone).value,
      .with_children = sl_maxima_of(&module->with_children, watch->with_children).value,
  };
  sl_maxima_close(&sweep->watch_peaks, watch->peak);
  sl_maxima_close(&module->alone, watch->alone);
  sl_maxima_close(&module->with_children, watch->with_children);
  int r = sweep->listener.peak(sweep->listener.context, watch->phase, &sample, &own);
  watch_free(sweep, watch);
  return r;
}

static int watch_close_of(struct sl_sweep *sweep, const struct sl_phase *phase) {
  struct watch *watch;
  HASH_FIND_PTR(sweep->watches, &phase, watch);
  return watch ? watch_close(sweep, watch) : 0;
}

/* item NULL: the newest of all. */
static int window_close(struct sl_sweep *sweep, const struct sl_item *item) {
  struct sl_sample sample;
  const struct sl_item *opened = sl_windows_close(&sweep->windows, item, &sample);
  return opened ? sweep->listener.snapshot(sweep->listener.context, opened, &sample) : 0;
}

int sl_sweep_run(struct sl_sweep *sweep, const struct sl_item *items, size_t count) {
  int r = 0;
  for (size_t i = 0; i < count && r == 0; i++) {
    const struct sl_item *item = &items[i];
    sweep->now.at_ns = item->at_ns;
    switch (item->type) {
    case SL_ITEM_retag:
    case SL_ITEM_alloc:
      item_remove(sweep, item->allocation); /* nothing to remove for a new one */
      r = item_add(sweep, item->allocation);
      break;
    case SL_ITEM_free: item_remove(sweep, item->allocation); break;
    case SL_ITEM_snapshot: r = sweep->listener.snapshot(sweep->listener.context, item, &sweep->now); break;
    case SL_ITEM_open: r = watch_open(sweep, item->phase); break;
    case SL_ITEM_close: r = watch_close_of(sweep, item->phase); break;
    case SL_ITEM_window_open:
      r = sl_windows_open(&sweep->windows, item, sweep->now.allocated_bytes, &sweep->now);
      break;
    case SL_ITEM_window_close: r = window_close(sweep, item); break;
    case SL_ITEM_recognise:
    case SL_ITEM_none: break;
    }
  }
  while (r == 0 && sweep->windows.newest)
    r = window_close(sweep, NULL);
  while (r == 0 && sweep->newest_watch)
    r = watch_close(sweep, sweep->newest_watch);
  maxima_clear(sweep); /* items and phases are only there until now */
  return r;
}
