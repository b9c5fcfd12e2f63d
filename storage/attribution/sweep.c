#include "sweep.h"

#include "maxima.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of a sample, what belongs to its allocated bytes. */
enum { POINT_BYTES = offsetof(struct sl_sample, tracker_total) };

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

struct window { /* an open window of a tracker */
  const struct sl_item *opened;
  int64_t peak, tracker;
  struct windows_of *of;
  struct window *older, *newer, *older_of_same;
};

struct windows_of { /* of one module and state */
  uint64_t key;     /* module << 8 | state */
  struct window *newest;
  UT_hash_handle hh;
};

enum { MAX_MODULE_DEPTH = 256 }; /* ends the way up where a log has parents in a circle */

struct sl_sweep {
  struct sl_sweep_listener listener;
  struct sl_sample now;
  struct module_sum *modules, *watched; /* by id; those with watches */
  struct watch *watches, *newest_watch; /* by phase */
  struct sl_maxima watch_peaks;
  struct windows_of *windows;
  struct window *newest_window;
  struct sl_maxima window_peaks, window_tracker;
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
  if (!sweep)
    return NULL;
  sweep->listener = *listener;
  sweep->watch_peaks.sample_bytes = sweep->window_peaks.sample_bytes = POINT_BYTES;
  sweep->window_tracker.sample_bytes = sizeof sweep->now.tracker_bytes;
  return sweep;
}

static void watch_free(struct sl_sweep *sweep, struct watch *watch) {
  if (watch->newer)
    watch->newer->older = watch->older;
  else
    sweep->newest_watch = watch->older;
  if (watch->older)
    watch->older->newer = watch->newer;
  HASH_DEL(sweep->watches, watch);
  free(watch);
}

static void window_free(struct sl_sweep *sweep, struct window *window) {
  if (window->newer)
    window->newer->older = window->older;
  else
    sweep->newest_window = window->older;
  if (window->older)
    window->older->newer = window->newer;
  window->of->newest = window->older_of_same; /* only the newest of its kind is ever closed */
  if (!window->of->newest) {
    HASH_DEL(sweep->windows, window->of);
    free(window->of);
  }
  free(window);
}

/* No phase and no window is open any more. */
static void maxima_clear(struct sl_sweep *sweep) {
  while (sweep->newest_watch)
    watch_free(sweep, sweep->newest_watch);
  while (sweep->newest_window)
    window_free(sweep, sweep->newest_window);
  for (struct module_sum *module; (module = sweep->watched);) {
    sweep->watched = module->next_watched;
    module->watched = false;
    sl_maxima_clear(&module->alone);
    sl_maxima_clear(&module->with_children);
  }
  sl_maxima_clear(&sweep->watch_peaks);
  sl_maxima_clear(&sweep->window_peaks);
  sl_maxima_clear(&sweep->window_tracker);
}

struct sl_sweep *sl_sweep_free(struct sl_sweep *sweep) {
  if (!sweep)
    return NULL;
  maxima_clear(sweep);
  struct module_sum *module, *next;
  HASH_ITER(hh, sweep->modules, module, next) {
    HASH_DEL(sweep->modules, module);
    free(module);
  }
  free(sweep->unrecognised);
  free(sweep->buckets);
  free(sweep);
  return NULL;
}

/* ---- what modules own ---- */

static struct module_sum *module_of(struct sl_sweep *sweep, uint32_t id) {
  struct module_sum *module;
  HASH_FIND(hh, sweep->modules, &id, sizeof id, module);
  if (!module && (module = calloc(1, sizeof *module))) {
    module->id = id;
    SL_HASH_ADD(sweep->modules, id, module);
  }
  return module;
}

/* Makes room for the module and everything above it, so that own_change can't fail. */
static int own_prepare(struct sl_sweep *sweep, uint32_t id) {
  struct module_sum *module = module_of(sweep, id);
  for (int depth = 0; module && depth < MAX_MODULE_DEPTH; depth++) {
    if (!module->parent_known) {
      uint32_t parent =
          module->id && sweep->listener.parent ? sweep->listener.parent(sweep->listener.context, module->id) : 0;
      if (parent && !(module->parent = module_of(sweep, parent)))
        return -ENOMEM;
      module->parent_known = true;
    }
    if (!module->parent)
      return 0;
    module = module->parent;
  }
  return module ? 0 : -ENOMEM;
}

/* bytes may be negative: unsigned arithmetic takes them away. */
static void own_change(struct sl_sweep *sweep, uint32_t id, uint64_t bytes) {
  struct module_sum *module = module_of(sweep, id);
  module->now.alone += bytes;
  for (int depth = 0; module && module->id && depth < MAX_MODULE_DEPTH; depth++, module = module->parent)
    module->now.with_children += bytes;
}

/* ---- highest points ---- */

static void windows_raise(struct sl_sweep *sweep) {
  if (!sweep->newest_window)
    return;
  sl_maxima_raise(&sweep->window_peaks, sweep->now.allocated_bytes, &sweep->now);
  sl_maxima_raise(&sweep->window_tracker, sweep->now.tracker_total, sweep->now.tracker_bytes);
}

/* The module of this allocation, and those around it, may own more than before. */
static void peaks_raise(struct sl_sweep *sweep, const struct sl_allocation *allocation) {
  windows_raise(sweep);
  if (!sweep->newest_watch)
    return;
  sl_maxima_raise(&sweep->watch_peaks, sweep->now.allocated_bytes, &sweep->now);
  struct module_sum *module = module_of(sweep, allocation->counted_module);
  sl_maxima_raise(&module->alone, module->now.alone, NULL);
  for (int depth = 0; module && depth < MAX_MODULE_DEPTH; depth++, module = module->parent)
    sl_maxima_raise(&module->with_children, module->now.with_children, NULL);
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
  allocation->unrecognised = sweep->unrecognised_count;
  return 0;
}

/* The last one takes its place. */
static void unrecognised_remove(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  if (!allocation->unrecognised)
    return;
  struct sl_allocation *last = sweep->unrecognised[--sweep->unrecognised_count];
  sweep->unrecognised[allocation->unrecognised - 1] = last;
  last->unrecognised = allocation->unrecognised;
  allocation->unrecognised = 0;
}

/* A unit's post-backward, when the tracker looks at its parameters' gradients, or a collective, when at its buffers. */
static void labels_recognise(struct sl_sweep *sweep, uint32_t module, int category) {
  for (size_t i = sweep->unrecognised_count; i-- > 0;) {
    struct sl_allocation *allocation = sweep->unrecognised[i];
    if (allocation->module != module || allocation->tracker_later != category)
      continue;
    label_set(sweep, allocation, category);
    unrecognised_remove(sweep, allocation);
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
  allocation->in_buckets = true;
  return 0;
}

static void bucket_remove(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  if (!allocation->in_buckets)
    return;
  allocation->in_buckets = false;
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
  if (sweep->bucket_count)
    windows_raise(sweep);
}

/* What backward's next function does, or frees when it begins, comes after the gradients of the last one were noticed.
 */
static void labels_recognise_soon(struct sl_sweep *sweep) {
  for (size_t i = sweep->unrecognised_count; i-- > 0;) {
    struct sl_allocation *allocation = sweep->unrecognised[i];
    if (!allocation->tracker_soon)
      continue;
    label_set(sweep, allocation, allocation->tracker_later);
    unrecognised_remove(sweep, allocation);
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

void sl_sweep_forget(struct sl_sweep *sweep, struct sl_allocation *allocation) {
  item_remove(sweep, allocation);
}

/* The tracker's labels are not touched: they follow what it learns, when it does. */
int sl_sweep_retag(struct sl_sweep *sweep, const struct sl_item *items, size_t count) {
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
      .older = sweep->newest_watch,
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
  if (watch->older)
    watch->older->newer = watch;
  sweep->newest_watch = watch;
  return 0;
}

static int watch_close(struct sl_sweep *sweep, struct watch *watch) {
  struct module_sum *module = watch->module;
  const struct sl_maximum peak = sl_maxima_of(&sweep->watch_peaks, watch->peak);
  struct sl_sample sample = {0};
  memcpy(&sample, peak.sample, POINT_BYTES);
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

static uint64_t window_key(const struct sl_item *item) {
  return (uint64_t)item->module << 8 | (uint64_t)item->state;
}

static struct windows_of *windows_find(const struct sl_sweep *sweep, const struct sl_item *item) {
  const uint64_t key = window_key(item);
  struct windows_of *windows;
  HASH_FIND(hh, sweep->windows, &key, sizeof key, windows);
  return windows;
}

static int window_open(struct sl_sweep *sweep, const struct sl_item *item) {
  struct window *window = calloc(1, sizeof *window);
  struct windows_of *of = windows_find(sweep, item);
  if (window && !of && (of = calloc(1, sizeof *of))) {
    of->key = window_key(item);
    SL_HASH_ADD(sweep->windows, key, of);
  }
  if (!window || !of) {
    free(window);
    return -ENOMEM;
  }
  *window = (struct window){
      .opened = item,
      .peak = sl_maxima_open(&sweep->window_peaks, sweep->now.allocated_bytes, &sweep->now),
      .tracker = sl_maxima_open(&sweep->window_tracker, sweep->now.tracker_total, sweep->now.tracker_bytes),
      .of = of,
      .older = sweep->newest_window,
      .older_of_same = of->newest,
  };
  of->newest = window;
  if (window->older)
    window->older->newer = window;
  sweep->newest_window = window;
  return window->peak < 0 || window->tracker < 0 ? -ENOMEM : 0;
}

static int window_close(struct sl_sweep *sweep, struct window *window) {
  const struct sl_maximum peak = sl_maxima_of(&sweep->window_peaks, window->peak);
  const struct sl_maximum tracker = sl_maxima_of(&sweep->window_tracker, window->tracker);
  struct sl_sample sample = {.tracker_total = tracker.value};
  memcpy(&sample, peak.sample, POINT_BYTES);
  memcpy(sample.tracker_bytes, tracker.sample, sizeof sample.tracker_bytes);
  struct sl_item item = *window->opened;
  item.at_ns = sample.at_ns;
  sl_maxima_close(&sweep->window_peaks, window->peak);
  sl_maxima_close(&sweep->window_tracker, window->tracker);
  int r = sweep->listener.snapshot(sweep->listener.context, &item, &sample);
  window_free(sweep, window);
  return r;
}

static int window_close_of(struct sl_sweep *sweep, const struct sl_item *item) {
  const struct windows_of *windows = windows_find(sweep, item);
  return windows ? window_close(sweep, windows->newest) : 0;
}

int sl_sweep_run(struct sl_sweep *sweep, const struct sl_item *items, size_t count) {
  int r = 0;
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
      if (r == 0)
        peaks_raise(sweep, item->allocation);
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
    case SL_ITEM_close: r = watch_close_of(sweep, item->phase); break;
    case SL_ITEM_window_open: r = window_open(sweep, item); break;
    case SL_ITEM_window_close: r = window_close_of(sweep, item); break;
    case SL_ITEM_recognise: labels_recognise(sweep, item->module, item->category); break;
    case SL_ITEM_none: break;
    }
  }
  while (r == 0 && sweep->newest_window)
    r = window_close(sweep, sweep->newest_window);
  while (r == 0 && sweep->newest_watch)
    r = watch_close(sweep, sweep->newest_watch);
  maxima_clear(sweep); /* items and phases are only there until now */
  return r;
}
