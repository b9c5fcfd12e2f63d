/* Items, and which phases' highest points are worth a row. */
#include "rank_items.h"

#include "storage/grow.h"

#include <errno.h>

void sl_rank_items_free(struct sl_rank_items *items) {
  free(items->list);
  free(items->reshards);
  *items = (struct sl_rank_items){0};
}

void sl_rank_items_clear(struct sl_rank_items *items) {
  items->count = items->reshard_count = 0;
}

struct sl_item *sl_rank_items_add(struct sl_rank_items *items, enum sl_item_type type, uint64_t at_ns) {
  struct sl_item *item = SL_LIST_ADD_ROOM(items->list, items->count, &items->capacity);
  if (item)
    *item = (struct sl_item){.type = type, .at_ns = at_ns};
  return item;
}

int sl_rank_items_allocation(struct sl_rank_items *items, enum sl_item_type type, struct sl_allocation *allocation,
                             uint64_t at_ns) {
  struct sl_item *item = sl_rank_items_add(items, type, at_ns);
  if (!item)
    return -ENOMEM;
  item->allocation = allocation;
  return 0;
}

/* ---- phases ---- */

static bool has_peak(const struct sl_phase *phase) {
  switch (phase->kind) {
  case SL_KIND_optimizer_step:
  case SL_KIND_backward: return true; /* without a module: all of it */
  case SL_KIND_forward:
  case SL_KIND_eval:
  case SL_KIND_recompute: return phase->module != 0;
  default: return false;
  }
}

static int watch(struct sl_rank_items *items, struct sl_phase *phase, uint64_t at_ns) {
  struct sl_item *item = sl_rank_items_add(items, SL_ITEM_open, at_ns);
  if (!item)
    return -ENOMEM;
  item->phase = phase;
  return 0;
}

int sl_rank_items_watch(struct sl_rank_items *items, uint64_t at_ns) {
  return watch(items, &items->whole, at_ns);
}

int sl_rank_items_opened(struct sl_rank_items *items, struct sl_phase *phase, uint64_t at_ns) {
  return has_peak(phase) ? watch(items, phase, at_ns) : 0;
}

/* An item that keeps the place at which a reshard ended. */
static struct sl_item *reshard_add(struct sl_rank_items *items, uint64_t at, uint64_t at_ns) {
  void *grown = sl_list_room(items->reshards, items->reshard_count, &items->reshard_capacity, sizeof *items->reshards);
  if (!grown)
    return NULL;
  items->reshards = grown;
  struct sl_item *item = sl_rank_items_add(items, SL_ITEM_none, at_ns);
  if (item)
    items->reshards[items->reshard_count++] = (struct sl_reshard){.at = at, .item = items->count - 1};
  return item;
}

/* A backward that its unit's reshard ended is closed later, when no reduce has followed: its peaks end where it did. */
static struct sl_item *close_item_of(struct sl_rank_items *items, const struct sl_phase *phase, uint64_t at,
                                     uint64_t at_ns) {
  size_t low = 0, high = phase->end_at < at ? items->reshard_count : 0;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (items->reshards[middle].at < phase->end_at)
      low = middle + 1;
    else
      high = middle;
  }
  if (phase->end_at < at && low < items->reshard_count && items->reshards[low].at == phase->end_at) {
    struct sl_item *item = &items->list[items->reshards[low].item];
    if (item->type == SL_ITEM_none)
      return item;
  }
  return sl_rank_items_add(items, SL_ITEM_close, at_ns);
}

int sl_rank_items_closed(struct sl_rank_items *items, struct sl_phase *phase, uint64_t at, uint64_t at_ns) {
  const bool is_watched = has_peak(phase);
  if (!is_watched && phase->point != SL_POINT_post_backward_reshard)
    return 0;
  struct sl_item *item = is_watched ? close_item_of(items, phase, at, at_ns) : reshard_add(items, at, at_ns);
  if (!item)
    return -ENOMEM;
  if (is_watched)
    item->type = SL_ITEM_close;
  item->phase = phase;
  return 0;
}

int sl_rank_items_restart(struct sl_rank_items *items, struct sl_phases *phases, uint64_t at_ns) {
  sl_rank_items_clear(items);
  int r = sl_rank_items_watch(items, at_ns);
  for (struct sl_phase *phase = sl_phases_list(phases); phase && r == 0; phase = phase->next)
    if (!phase->end_at)
      r = sl_rank_items_opened(items, phase, at_ns);
  return r;
}
