#include "sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct watch { /* an open phase */
  const struct sl_phase *phase;
  struct sl_sample peak;
  struct sl_own_bytes own;
};

struct window { /* an open window of a tracker */
  const struct sl_item *opened;
  struct sl_sample peak;
};

struct module_sum { /* what a module owns now */
  struct sl_own_bytes now;
  uint32_t parent, parent_slot;
  bool parent_known; /* asked for once, so that what is added and what is removed go the same way up */
};

enum {
  MAX_MODULE_DEPTH = 256, /* ends the way up where a log has parents in a circle */
  DIRECT_MODULES = 65536, /* ids below it are their own slots; ids count from 1, but a log may say anything */
};

struct far_module { /* one with a higher id */
  uint32_t id, slot;
  UT_hash_handle hh;
};

struct sl_sweep {
  struct sl_sweep_listener listener;
  struct sl_sample now;
  struct module_sum *own; /* by slot */
  size_t own_count;
  struct far_module *far_modules;
  struct watch *watches;
  size_t watch_count, watch_capacity;
  struct window *windows;
  size_t window_count, window_capacity;
  struct sl_allocation **unrecognised; /* gradients that the tracker takes for temporaries so far */
  size_t unrecognised_count, unrecognised_capacity;
  enum { SOON_nothing, SOON_made, SOON_freed } soon; /* of those among them that are recognised soon */
  struct sl_allocation **buckets;                    /* in the order in which gradients fill them */
  size_t bucket_count, bucket_capacity;
  uint64_t bucketed_bytes; /* gradients that have gone into them in this step */
};

const char *sl_state_name(enum sl_state state) {
  static const char *const words[] = {
#define STATE(name, word) word,
#include "states.def"
#undef STATE
  };
  return words[state];
}

struct sl_sweep *sl_sweep_new(const struct sl_sweep_listener *listener) {
  struct sl_sweep *sweep = calloc(1, sizeof *sweep);
  if (sweep)
    sweep->listener = *listener;
  return sweep;
}

struct sl_sweep *sl_sweep_free(struct sl_sweep *sweep) {
  if (sweep) {
    struct far_module *far, *next;
    HASH_ITER(hh, sweep->far_modules, far, next) {
      HASH_DEL(sweep->far_modules, far);
      free(far);
    }
    free(sweep->own);
    free(sweep->watches);
    free(sweep->windows);
    free(sweep->unrecognised);
    free(sweep->buckets);
    free(sweep);
  }
  return NULL;
}

static int own_reserve(struct sl_sweep *sweep, uint32_t slot) {
  if (slot < sweep->own_count)
    return 0;
  size_t count = 2 * (size_t)slot + 64;
  struct module_sum *own = realloc(sweep->own, count * sizeof *own);
  if (!own)
    return -ENOMEM;
  memset(own + sweep->own_count, 0, (count - sweep->own_count) * sizeof *own);
  sweep->own = own;
  sweep->own_count = count;
  return 0;
}

/* UINT32_MAX: it has none yet. */
static uint32_t slot_of(const struct sl_sweep *sweep, uint32_t module) {
  struct far_module *far;
  if (module < DIRECT_MODULES)
    return module;
  HASH_FIND(hh, sweep->far_modules, &module, sizeof module, far);
  return far ? far->slot : UINT32_MAX;
}

/* The module's slot, with room for its sums, or -ENOMEM. */
static int64_t slot_make(struct sl_sweep *sweep, uint32_t module) {
  uint32_t slot = slot_of(sweep, module);
  if (slot == UINT32_MAX) {
    struct far_module *far = calloc(1, sizeof *far);
    if (!far)
      return -ENOMEM;
    far->id = module;
    far->slot = slot = DIRECT_MODULES + HASH_COUNT(sweep->far_modules);
    HASH_ADD(hh, sweep->far_modules, id, sizeof far->id, far);
  }
  return own_reserve(sweep, slot) < 0 ? -ENOMEM : (int64_t)slot;
}

/* The module's parent, with room for its own sums; 0 for a root. Negative: -errno. */
static int64_t parent_of(struct sl_sweep *sweep, uint32_t module) {
  const uint32_t slot = slot_of(sweep, module);
  if (!sweep->own[slot].parent_known) {
    uint32_t parent = module && sweep->listener.parent ? sweep->listener.parent(sweep->listener.context, module) : 0;
    const int64_t parent_slot = slot_make(sweep, parent);
    if (parent_slot < 0)
      return parent_slot;
    sweep->own[slot].parent = parent;
    sweep->own[slot].parent_slot = (uint32_t)parent_slot;
    sweep->own[slot].parent_known = true;
  }
  return sweep->own[slot].parent;
}

/* Makes room for the module and everything above it, so that own_change can't fail. */
static int own_prepare(struct sl_sweep *sweep, uint32_t module) {
  int64_t r = slot_make(sweep, module);
  int64_t above = r < 0 ? r : module;
  for (int depth = 0; above > 0 && depth < MAX_MODULE_DEPTH; depth++)
    above = parent_of(sweep, (uint32_t)above);
  return above < 0 ? (int)above : 0;
}

/* bytes may be negative: unsigned arithmetic takes them away. */
static void own_change(struct sl_sweep *sweep, uint32_t module, uint64_t bytes) {
  uint32_t slot = slot_of(sweep, module);
  sweep->own[slot].now.alone += bytes;
  for (int depth = 0; slot && depth < MAX_MODULE_DEPTH; depth++) {
    sweep->own[slot].now.with_children += bytes;
    slot = sweep->own[slot].parent_slot;
  }
}

static void peak_update(const struct sl_sample *now, struct sl_sample *peak) {
  if (now->allocated_bytes > peak->allocated_bytes) {
    peak->at_ns = now->at_ns;
    peak->allocated_bytes = now->allocated_bytes;
    memcpy(peak->category_bytes, now->category_bytes, sizeof peak->category_bytes);
  }
}

static void window_update(const struct sl_sample *now, struct sl_sample *peak) {
  peak_update(now, peak);
  if (now->tracker_total > peak->tracker_total) {
    peak->tracker_total = now->tracker_total;
    memcpy(peak->tracker_bytes, now->tracker_bytes, sizeof peak->tracker_bytes);
  }
}

static void watch_update(struct sl_sweep *sweep, struct watch *watch) {
  const uint32_t slot = slot_of(sweep, watch->phase->module);
  peak_update(&sweep->now, &watch->peak);
  if (slot < sweep->own_count) {
    const struct sl_own_bytes *now = &sweep->own[slot].now;
    if (now->alone > watch->own.alone)
      watch->own.alone = now->alone;
    if (now->with_children > watch->own.with_children)
      watch->own.with_children = now->with_children;
  }
}

/* ---- the tracker's view ---- */

static void label_set(struct sl_sweep *sweep, struct sl_allocation *allocation, int label) {
  if (allocation->counted_label >= 0) {
    sweep->now.tracker_total -= allocation->tracker_bytes;
    sweep->now.tracker_bytes[allocation->counted_label] -= allocation->tracker_bytes;
  }
  if (label >= 0) {
    sweep->now.tracker_total += allocation->tracker_bytes;
    sweep->now.tracker_bytes[label] += allocation->tracker_bytes;
  }
  allocation->counted_label = label;
}

static int unrecognised_add(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  if (sweep->unrecognised_count == sweep->unrecognised_capacity) {
    size_t capacity = sweep->unrecognised_capacity ? 2 * sweep->unrecognised_capacity : 64;
    void *grown = realloc(sweep->unrecognised, capacity * sizeof *sweep->unrecognised);
    if (!grown)
      return -ENOMEM;
    sweep->unrecognised = grown;
    sweep->unrecognised_capacity = capacity;
  }
  sweep->unrecognised[sweep->unrecognised_count++] = allocation;
  return 0;
}

static void unrecognised_remove(struct sl_sweep *sweep, const struct sl_allocation *allocation) {
  for (size_t i = sweep->unrecognised_count; i-- > 0;)
    if (sweep->unrecognised[i] == allocation) {
      sweep->unrecognised[i] = sweep->unrecognised[--sweep->unrecognised_count];
      return;
    }
}

/* A unit's post-backward, when the tracker looks at its parameters' gradients, or a collective, when at its buffers. */
static void labels_recognise(struct sl_sweep *sweep, uint32_t module, int category) {
  for (size_t i = sweep->unrecognised_count; i-- > 0;) {
    struct sl_allocation *allocation = sweep->unrecognised[i];
    if (allocation->module != module || allocation->tracker_later != category)
      continue;
    label_set(sweep, allocation, category);
    sweep->unrecognised[i] = sweep->unrecognised[--sweep->unrecognised_count];
  }
}

static int bucket_add(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  if (sweep->bucket_count == sweep->bucket_capacity) {
    size_t capacity = sweep->bucket_capacity ? 2 * sweep->bucket_capacity : 16;
    void *grown = realloc(sweep->buckets, capacity * sizeof *sweep->buckets);
    if (!grown)
      return -ENOMEM;
    sweep->buckets = grown;
    sweep->bucket_capacity = capacity;
  }
  sweep->buckets[sweep->bucket_count++] = allocation;
  return 0;
}

static void bucket_remove(struct sl_sweep *sweep, const struct sl_allocation *allocation) {
  for (size_t i = 0; i < sweep->bucket_count; i++)
    if (sweep->buckets[i] == allocation) {
      memmove(&sweep->buckets[i], &sweep->buckets[i + 1], (sweep->bucket_count - i - 1) * sizeof sweep->buckets[0]);
      sweep->bucket_count--;
      return;
    }
}

/* A gradient goes into the first bucket that has room, which shows the bucket to the tracker. */
static void buckets_fill(struct sl_sweep *sweep, uint64_t bytes) {
  uint64_t before = 0;
  sweep->bucketed_bytes += bytes;
  for (size_t i = 0; i < sweep->bucket_count && before < sweep->bucketed_bytes; i++) {
    label_set(sweep, sweep->buckets[i], sweep->buckets[i]->tracker_later);
    before += sweep->buckets[i]->requested_bytes;
  }
  for (size_t w = 0; w < sweep->window_count && sweep->bucket_count; w++)
    window_update(&sweep->now, &sweep->windows[w].peak);
}

/* What backward's next function does, or frees when it begins, comes after the gradients of the last one were noticed.
 */
static void labels_recognise_soon(struct sl_sweep *sweep) {
  for (size_t i = sweep->unrecognised_count; i-- > 0;) {
    struct sl_allocation *allocation = sweep->unrecognised[i];
    if (!allocation->tracker_soon)
      continue;
    label_set(sweep, allocation, allocation->tracker_later);
    sweep->unrecognised[i] = sweep->unrecognised[--sweep->unrecognised_count];
    buckets_fill(sweep, allocation->requested_bytes);
  }
  sweep->soon = SOON_nothing;
}

/* The function's end shows in what it frees, after which comes something else, or in a module's state. */
static void recognise_before(struct sl_sweep *sweep, const struct sl_item *item) {
  if (item->type == SL_ITEM_none || sweep->soon == SOON_nothing)
    return;
  if (item->type == SL_ITEM_free) {
    if (!item->allocation->tracker_scratch)
      sweep->soon = SOON_freed;
  } else if (item->type != SL_ITEM_alloc || sweep->soon == SOON_freed) {
    labels_recognise_soon(sweep);
  }
}

void sl_sweep_unlabel(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  if (allocation->counted)
    label_set(sweep, allocation, -1);
  if (allocation->tracker_bucket)
    return; /* it is seen again when the next step fills it */
  unrecognised_remove(sweep, allocation);
  allocation->tracker_label = allocation->tracker_later = -1;
}

/* ---- totals ---- */

static int item_add(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  int r = own_prepare(sweep, allocation->module);
  if (r < 0)
    return r;
  allocation->counted = true;
  allocation->counted_category = allocation->category;
  allocation->counted_module = allocation->module;
  sweep->now.allocated_bytes += allocation->bytes;
  sweep->now.category_bytes[allocation->category] += allocation->bytes;
  own_change(sweep, allocation->module, allocation->bytes);
  allocation->counted_label = -1;
  label_set(sweep, allocation, allocation->tracker_label);
  if (allocation->tracker_bucket)
    return bucket_add(sweep, allocation);
  if (allocation->tracker_later >= 0 && allocation->tracker_soon)
    sweep->soon = SOON_made;
  return allocation->tracker_later >= 0 ? unrecognised_add(sweep, allocation) : 0;
}

static void item_remove(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  if (!allocation->counted)
    return;
  allocation->counted = false;
  label_set(sweep, allocation, -1);
  unrecognised_remove(sweep, allocation);
  bucket_remove(sweep, allocation);
  sweep->now.allocated_bytes -= allocation->bytes;
  sweep->now.category_bytes[allocation->counted_category] -= allocation->bytes;
  own_change(sweep, allocation->counted_module, 0 - allocation->bytes);
}

/*
 * What a tag says holds for the whole step, so that a peak's categories are those of the allocations that made it. The
 * tracker's labels are not touched: they follow what it learns, when it does.
 */
static int retags_ahead(struct sl_sweep *sweep, const struct sl_item *items, size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct sl_allocation *allocation = items[i].allocation;
    if (items[i].type != SL_ITEM_retag || !allocation->counted)
      continue;
    int r = own_prepare(sweep, allocation->module);
    if (r < 0)
      return r;
    sweep->now.category_bytes[allocation->counted_category] -= allocation->bytes;
    sweep->now.category_bytes[allocation->category] += allocation->bytes;
    own_change(sweep, allocation->counted_module, 0 - allocation->bytes);
    own_change(sweep, allocation->module, allocation->bytes);
    allocation->counted_category = allocation->category;
    allocation->counted_module = allocation->module;
  }
  return 0;
}

static int watch_open(struct sl_sweep *sweep, const struct sl_phase *phase) {
  if (sweep->watch_count == sweep->watch_capacity) {
    size_t capacity = sweep->watch_capacity ? 2 * sweep->watch_capacity : 32;
    void *grown = realloc(sweep->watches, capacity * sizeof *sweep->watches);
    if (!grown)
      return -ENOMEM;
    sweep->watches = grown;
    sweep->watch_capacity = capacity;
  }
  struct watch *watch = &sweep->watches[sweep->watch_count++];
  watch->phase = phase;
  watch->peak = sweep->now;
  watch->own = (struct sl_own_bytes){0};
  watch_update(sweep, watch);
  return 0;
}

static int watch_close(struct sl_sweep *sweep, size_t index) {
  struct watch *watch = &sweep->watches[index];
  int r = sweep->listener.peak(sweep->listener.context, watch->phase, &watch->peak, &watch->own);
  memmove(watch, watch + 1, (sweep->watch_count - index - 1) * sizeof *watch);
  sweep->watch_count--;
  return r;
}

static int window_open(struct sl_sweep *sweep, const struct sl_item *item) {
  if (sweep->window_count == sweep->window_capacity) {
    size_t capacity = sweep->window_capacity ? 2 * sweep->window_capacity : 32;
    void *grown = realloc(sweep->windows, capacity * sizeof *sweep->windows);
    if (!grown)
      return -ENOMEM;
    sweep->windows = grown;
    sweep->window_capacity = capacity;
  }
  sweep->windows[sweep->window_count++] = (struct window){.opened = item, .peak = sweep->now};
  return 0;
}

static int window_close(struct sl_sweep *sweep, size_t index) {
  struct window *window = &sweep->windows[index];
  struct sl_item item = *window->opened;
  item.at_ns = window->peak.at_ns;
  int r = sweep->listener.snapshot(sweep->listener.context, &item, &window->peak);
  memmove(window, window + 1, (sweep->window_count - index - 1) * sizeof *window);
  sweep->window_count--;
  return r;
}

static int window_close_of(struct sl_sweep *sweep, const struct sl_item *item) {
  for (size_t i = sweep->window_count; i-- > 0;)
    if (sweep->windows[i].opened->module == item->module && sweep->windows[i].opened->state == item->state)
      return window_close(sweep, i);
  return 0;
}

int sl_sweep_run(struct sl_sweep *sweep, const struct sl_item *items, size_t count) {
  int r = retags_ahead(sweep, items, count);
  sweep->bucketed_bytes = 0;
  for (size_t i = 0; i < count && r == 0; i++) {
    const struct sl_item *item = &items[i];
    sweep->now.at_ns = item->at_ns;
    recognise_before(sweep, item);
    switch (item->type) {
    case SL_ITEM_retag:
    case SL_ITEM_alloc:
      item_remove(sweep, item->allocation); /* nothing to remove for a new one */
      r = item_add(sweep, item->allocation);
      for (size_t w = 0; w < sweep->watch_count; w++)
        watch_update(sweep, &sweep->watches[w]);
      for (size_t w = 0; w < sweep->window_count; w++)
        window_update(&sweep->now, &sweep->windows[w].peak);
      break;
    case SL_ITEM_free: item_remove(sweep, item->allocation); break;
    case SL_ITEM_snapshot:
      if (item->state == SL_STATE_before_post_backward)
        labels_recognise(sweep, item->module, SL_CATEGORY_unsharded_grad);
      if (item->state == SL_STATE_after_post_backward)
        labels_recognise(sweep, item->module, SL_CATEGORY_sharded_grad);
      r = sweep->listener.snapshot(sweep->listener.context, item, &sweep->now);
      break;
    case SL_ITEM_open: r = watch_open(sweep, item->phase); break;
    case SL_ITEM_close:
      for (size_t w = sweep->watch_count; w-- > 0;)
        if (sweep->watches[w].phase == item->phase) {
          r = watch_close(sweep, w);
          break;
        }
      break;
    case SL_ITEM_window_open: r = window_open(sweep, item); break;
    case SL_ITEM_window_close: r = window_close_of(sweep, item); break;
    case SL_ITEM_recognise: labels_recognise(sweep, item->module, item->category); break;
    case SL_ITEM_none: break;
    }
  }
  while (r == 0 && sweep->window_count)
    r = window_close(sweep, sweep->window_count - 1);
  sweep->window_count = 0; /* items are only there until now */
  while (r == 0 && sweep->watch_count)
    r = watch_close(sweep, sweep->watch_count - 1);
  return r;
}
