/*
 * A tracker learns what an allocation is only later than it sees it, and sums move from one label to another then. So
 * what it will learn something about is kept in lists: gradients and buffers that it takes for temporaries so far, and
 * buckets in which gradients gather.
 */
#include "tracker.h"

#include "storage/attribution/windows.h"
#include "storage/grow.h"
#include "tracker_label.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct chunk { /* of what is tracked, so that most allocations need none of their own */
  struct chunk *next;
  struct sl_tracked tracked[256];
};

struct taken { /* bytes of one label in a snapshot or window; the last of each has label -1 */
  int label;
  uint64_t bytes;
};

struct sl_tracker {
  const struct sl_phases *phases;
  struct chunk *chunks;
  struct sl_tracked *unused;
  struct {
    uint64_t total, bytes[SL_CATEGORY_limit];
  } now;
  struct sl_windows windows;
  struct sl_tracked **unrecognised; /* gradients and buffers that it takes for temporaries so far */
  size_t unrecognised_count;
  enum { SOON_nothing, SOON_made, SOON_freed } soon; /* of those among them that are recognised soon */
  struct sl_tracked **buckets;                       /* in the order in which gradients fill them */
  size_t bucket_count;
  uint64_t bucketed_bytes; /* gradients that have gone into them in this step */
  struct taken *taken;     /* by the last run */
  size_t taken_count, next;
  uint64_t next_bytes[SL_CATEGORY_limit];
};

struct sl_tracker *sl_tracker_new(const struct sl_phases *phases) {
  struct sl_tracker *tracker = calloc(1, sizeof *tracker);
  if (!tracker)
    return NULL;
  tracker->phases = phases;
  tracker->windows.maxima.sample_bytes = sizeof tracker->now.bytes;
  return tracker;
}

struct sl_tracker *sl_tracker_free(struct sl_tracker *tracker) {
  if (!tracker)
    return NULL;
  for (struct chunk *chunk; (chunk = tracker->chunks);) {
    tracker->chunks = chunk->next;
    free(chunk);
  }
  sl_windows_clear(&tracker->windows);
  free(tracker->unrecognised);
  free(tracker->buckets);
  free(tracker->taken);
  free(tracker);
  return NULL;
}

/* NULL: no memory. */
static struct sl_tracked *track(struct sl_tracker *tracker, struct sl_allocation *allocation) {
  if (!tracker->unused) {
    struct chunk *chunk = malloc(sizeof *chunk);
    if (!chunk)
      return NULL;
    chunk->next = tracker->chunks;
    tracker->chunks = chunk;
    for (size_t i = 0; i < sizeof chunk->tracked / sizeof chunk->tracked[0]; i++) {
      chunk->tracked[i].next = tracker->unused;
      tracker->unused = &chunk->tracked[i];
    }
  }
  struct sl_tracked *tracked = tracker->unused;
  tracker->unused = tracked->next;
  *tracked = (struct sl_tracked){.allocation = allocation, .label = -1, .later = -1, .counted = -1};
  allocation->tracked = tracked;
  return tracked;
}

/* ---- labels ---- */

static void label_set(struct sl_tracker *tracker, struct sl_tracked *tracked, int label) {
  if (tracked->counted >= 0) {
    tracker->now.total -= tracked->bytes;
    tracker->now.bytes[tracked->counted] -= tracked->bytes;
  }
  if (label >= 0) {
    tracker->now.total += tracked->bytes;
    tracker->now.bytes[label] += tracked->bytes;
  }
  tracked->counted = label;
}

static void windows_raise(struct sl_tracker *tracker) {
  sl_windows_raise(&tracker->windows, tracker->now.total, tracker->now.bytes);
}

static int list_add(struct sl_tracked ***list, size_t *count, struct sl_tracked *tracked) {
  struct sl_tracked **added = SL_LIST_ADD(*list, *count);
  if (!added)
    return -ENOMEM;
  *added = tracked;
  return 0;
}

static int unrecognised_add(struct sl_tracker *tracker, struct sl_tracked *tracked) {
  int r = list_add(&tracker->unrecognised, &tracker->unrecognised_count, tracked);
  if (r == 0)
    tracked->unrecognised = tracker->unrecognised_count;
  return r;
}

/* The last one takes its place. */
static void unrecognised_remove(struct sl_tracker *tracker, struct sl_tracked *tracked) {
  if (!tracked->unrecognised)
    return;
  struct sl_tracked *last = tracker->unrecognised[--tracker->unrecognised_count];
  tracker->unrecognised[tracked->unrecognised - 1] = last;
  last->unrecognised = tracked->unrecognised;
  tracked->unrecognised = 0;
}

/* A unit's post-backward, when the tracker looks at its parameters' gradients, or a collective, when at its buffers. */
static void labels_recognise(struct sl_tracker *tracker, uint32_t module, int category) {
  for (size_t i = tracker->unrecognised_count; i-- > 0;) {
    struct sl_tracked *tracked = tracker->unrecognised[i];
    if (tracked->allocation->module != module || tracked->later != category)
      continue;
    label_set(tracker, tracked, category);
    unrecognised_remove(tracker, tracked);
  }
}

static int bucket_add(struct sl_tracker *tracker, struct sl_tracked *tracked) {
  int r = list_add(&tracker->buckets, &tracker->bucket_count, tracked);
  tracked->in_buckets = r == 0;
  return r;
}

static void bucket_remove(struct sl_tracker *tracker, struct sl_tracked *tracked) {
  if (!tracked->in_buckets)
    return;
  tracked->in_buckets = false;
  for (size_t i = 0; i < tracker->bucket_count; i++)
    if (tracker->buckets[i] == tracked) {
      tracker->bucket_count--;
      memmove(&tracker->buckets[i], &tracker->buckets[i + 1], (tracker->bucket_count - i) * sizeof tracker->buckets[0]);
      return;
    }
}

/* A gradient goes into the first bucket that has room, which shows the bucket to the tracker. */
static void buckets_fill(struct sl_tracker *tracker, uint64_t bytes) {
  uint64_t before = 0;
  tracker->bucketed_bytes += bytes;
  for (size_t i = 0; i < tracker->bucket_count && before < tracker->bucketed_bytes; i++) {
    label_set(tracker, tracker->buckets[i], tracker->buckets[i]->later);
    before += tracker->buckets[i]->allocation->requested_bytes;
  }
  if (tracker->bucket_count)
    windows_raise(tracker);
}

/* What backward's next function does, or frees when it begins, comes after the gradients of the last one were noticed.
 */
static void labels_recognise_soon(struct sl_tracker *tracker) {
  for (size_t i = tracker->unrecognised_count; i-- > 0;) {
    struct sl_tracked *tracked = tracker->unrecognised[i];
    if (!tracked->soon)
      continue;
    label_set(tracker, tracked, tracked->later);
    unrecognised_remove(tracker, tracked);
    buckets_fill(tracker, tracked->allocation->requested_bytes);
  }
  tracker->soon = SOON_nothing;
}

/* The function's end shows in what it frees, after which comes something else, or in a module's state. */
static void recognise_before(struct sl_tracker *tracker, const struct sl_item *item) {
  if (item->type == SL_ITEM_none || tracker->soon == SOON_nothing)
    return;
  if (item->type == SL_ITEM_free) {
    if (!item->allocation->tracked || !item->allocation->tracked->scratch)
      tracker->soon = SOON_freed;
  } else if (item->type != SL_ITEM_alloc || tracker->soon == SOON_freed) {
    labels_recognise_soon(tracker);
  }
}

/* ---- totals ---- */

static int item_add(struct sl_tracker *tracker, struct sl_tracked *tracked) {
  int r = 0;
  label_set(tracker, tracked, tracked->label);
  if (tracked->bucket) {
    r = bucket_add(tracker, tracked);
  } else if (tracked->later >= 0) {
    r = unrecognised_add(tracker, tracked);
    if (tracked->soon)
      tracker->soon = SOON_made;
  }
  windows_raise(tracker);
  return r;
}

static void item_remove(struct sl_tracker *tracker, struct sl_tracked *tracked) {
  if (!tracked)
    return;
  label_set(tracker, tracked, -1);
  unrecognised_remove(tracker, tracked);
  bucket_remove(tracker, tracked);
}

void sl_tracker_forget(struct sl_tracker *tracker, struct sl_allocation *allocation) {
  struct sl_tracked *tracked = allocation->tracked;
  if (!tracked)
    return;
  item_remove(tracker, tracked);
  tracked->next = tracker->unused;
  tracker->unused = tracked;
  allocation->tracked = NULL;
}

void sl_tracker_step_ended(struct sl_tracker *tracker, struct sl_allocation *const *allocations, size_t count,
                           const struct sl_step_facts *facts) {
  for (size_t i = 0; i < count; i++) {
    struct sl_tracked *tracked = allocations[i]->tracked;
    if (!tracked || allocations[i]->free_at || !sl_tracker_loses_sight(tracked, facts, tracker->phases))
      continue;
    label_set(tracker, tracked, -1);
    if (tracked->bucket)
      continue; /* it is seen again when the next step fills it */
    unrecognised_remove(tracker, tracked);
    tracked->label = tracked->later = -1;
  }
}

/* ---- what is taken ---- */

static int taken_add(struct sl_tracker *tracker, int label, uint64_t bytes) {
  struct taken *added = SL_LIST_ADD(tracker->taken, tracker->taken_count);
  if (!added)
    return -ENOMEM;
  *added = (struct taken){label, bytes};
  return 0;
}

/* Few labels have bytes, and a step may have very many snapshots: only those are kept. */
static int take(struct sl_tracker *tracker, const uint64_t *bytes) {
  int r = 0;
  for (int label = 0; label < SL_CATEGORY_limit && r == 0; label++)
    if (bytes[label])
      r = taken_add(tracker, label, bytes[label]);
  return r < 0 ? r : taken_add(tracker, -1, 0);
}

const uint64_t *sl_tracker_next(struct sl_tracker *tracker) {
  memset(tracker->next_bytes, 0, sizeof tracker->next_bytes);
  while (tracker->next < tracker->taken_count) {
    const struct taken *taken = &tracker->taken[tracker->next++];
    if (taken->label < 0)
      break;
    tracker->next_bytes[taken->label] = taken->bytes;
  }
  return tracker->next_bytes;
}

/* item NULL: the newest of all. */
static int window_close(struct sl_tracker *tracker, const struct sl_item *item) {
  uint64_t bytes[SL_CATEGORY_limit];
  return sl_windows_close(&tracker->windows, item, bytes) ? take(tracker, bytes) : 0;
}

/* ---- the pass ---- */

/* What is new becomes tracked. A tag holds for the whole step: what it named is not there to be recognised any more. */
static int items_prepare(struct sl_tracker *tracker, enum sl_tracker_kind kind, const struct sl_item *items,
                         size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct sl_allocation *allocation = items[i].allocation;
    if (items[i].type != SL_ITEM_alloc && items[i].type != SL_ITEM_retag)
      continue;
    if (!allocation->tracked) {
      if (!track(tracker, allocation))
        return -ENOMEM;
      if (items[i].type == SL_ITEM_retag) /* its device was not known to be the rank's when it was made */
        sl_tracker_label(allocation->tracked, kind, tracker->phases);
    }
    if (items[i].type == SL_ITEM_retag && allocation->rule == SL_RULE_tag)
      sl_tracker_relabel(allocation->tracked, items[i].aside, tracker->phases);
  }
  sl_tracker_find_scratch(items, count);
  return 0;
}

static int item_sum(struct sl_tracker *tracker, const struct sl_item *item) {
  switch (item->type) {
  case SL_ITEM_retag:
  case SL_ITEM_alloc:
    item_remove(tracker, item->allocation->tracked); /* nothing to remove for a new one */
    return item_add(tracker, item->allocation->tracked);
  case SL_ITEM_free: item_remove(tracker, item->allocation->tracked); return 0;
  case SL_ITEM_snapshot:
    if (item->state == SL_STATE_before_post_backward)
      labels_recognise(tracker, item->module, SL_CATEGORY_unsharded_grad);
    if (item->state == SL_STATE_after_post_backward)
      labels_recognise(tracker, item->module, SL_CATEGORY_sharded_grad);
    return take(tracker, tracker->now.bytes);
  case SL_ITEM_window_open: return sl_windows_open(&tracker->windows, item, tracker->now.total, tracker->now.bytes);
  case SL_ITEM_window_close: return window_close(tracker, item);
  case SL_ITEM_recognise: labels_recognise(tracker, item->module, item->category); return 0;
  case SL_ITEM_open:
  case SL_ITEM_close:
  case SL_ITEM_none: return 0;
  }
  return 0;
}

int sl_tracker_run(struct sl_tracker *tracker, enum sl_tracker_kind kind, const struct sl_item *items, size_t count) {
  tracker->taken_count = tracker->next = 0;
  tracker->bucketed_bytes = 0;
  int r = items_prepare(tracker, kind, items, count);
  for (size_t i = 0; i < count && r == 0; i++) {
    recognise_before(tracker, &items[i]);
    if (items[i].type == SL_ITEM_alloc)
      sl_tracker_label(items[i].allocation->tracked, kind, tracker->phases);
    r = item_sum(tracker, &items[i]);
  }
  while (r == 0 && tracker->windows.newest)
    r = window_close(tracker, NULL);
  sl_windows_clear(&tracker->windows); /* items are only there until now */
  return r;
}
