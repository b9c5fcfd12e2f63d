/*
 * What happens in a period is kept as items, in order, until it is closed: allocations, frees, tags, module states, and
 * where phases begin and end.
 */
#include "rank_builder.h"

#include <errno.h>
#include <stdlib.h>

void *sl_rank_list_grow(struct sl_rank_builder *b, void *list, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity)
    return list;
  size_t grown_capacity = *capacity ? 2 * *capacity : 1024;
  void *grown = realloc(list, grown_capacity * size);
  if (!grown) {
    b->r = sl_no_memory(b->error);
    return NULL;
  }
  *capacity = grown_capacity;
  return grown;
}

struct sl_item *sl_rank_item_add(struct sl_rank_builder *b, enum sl_item_type type) {
  void *grown = sl_rank_list_grow(b, b->items, b->item_count, &b->item_capacity, sizeof *b->items);
  if (!grown)
    return NULL;
  b->items = grown;
  struct sl_item *item = &b->items[b->item_count++];
  *item = (struct sl_item){.type = type, .at_ns = b->now_ns};
  return item;
}

static void position_add(struct sl_rank_builder *b, struct positions *positions) {
  void *grown = sl_rank_list_grow(b, positions->at, positions->count, &positions->capacity, sizeof *positions->at);
  if (!grown)
    return;
  positions->at = grown;
  positions->at[positions->count++] = b->at;
}

size_t sl_rank_state_item_add(void *context, const struct sl_item *state) {
  struct sl_rank_builder *b = context;
  struct sl_item *item = sl_rank_item_add(b, state->type);
  if (!item)
    return SIZE_MAX;
  uint64_t at_ns = item->at_ns;
  *item = *state;
  item->at_ns = at_ns;
  return b->item_count - 1;
}

void sl_rank_state_item_withdraw(void *context, size_t index) {
  struct sl_rank_builder *b = context;
  if (index < b->item_count)
    b->items[index].type = SL_ITEM_none;
}

void sl_rank_state_item_fail(void *context) {
  struct sl_rank_builder *b = context;
  b->r = sl_no_memory(b->error);
}

/* Phases whose highest point is worth a row. */
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

/* Its highest point is looked for from here on. */
void sl_rank_watch(struct sl_rank_builder *b, struct sl_phase *phase) {
  struct sl_item *item = sl_rank_item_add(b, SL_ITEM_open);
  if (item)
    item->phase = phase;
}

void sl_rank_phase_opened(void *context, struct sl_phase *phase) {
  struct sl_rank_builder *b = context;
  if (phase->kind == SL_KIND_step && b->r == 0)
    b->r = sl_rank_step_begins(b, phase);
  if (phase->kind == SL_KIND_optimizer_step)
    position_add(b, &b->optimizer_starts);
  if (phase->kind == SL_KIND_backward && !phase->module)
    position_add(b, &b->backward_starts);
  sl_module_states_opened(b->states, phase);
  sl_rank_pattern_opened(b, phase);
  if (has_peak(phase))
    sl_rank_watch(b, phase);
}

/* An item that keeps the place at which a reshard ended. */
static struct sl_item *reshard_item_add(struct sl_rank_builder *b) {
  void *grown = sl_rank_list_grow(b, b->reshards, b->reshard_count, &b->reshard_capacity, sizeof *b->reshards);
  struct sl_item *item = grown ? sl_rank_item_add(b, SL_ITEM_none) : NULL;
  if (grown)
    b->reshards = grown;
  if (item)
    b->reshards[b->reshard_count++] = (struct reshard){.at = b->at, .item = b->item_count - 1};
  return item;
}

/* A backward that its unit's reshard ended is closed later, when no reduce has followed: its peaks end where it did. */
static struct sl_item *close_item_of(struct sl_rank_builder *b, const struct sl_phase *phase) {
  size_t low = 0, high = phase->end_at < b->at ? b->reshard_count : 0;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (b->reshards[middle].at < phase->end_at)
      low = middle + 1;
    else
      high = middle;
  }
  if (phase->end_at < b->at && low < b->reshard_count && b->reshards[low].at == phase->end_at) {
    struct sl_item *item = &b->items[b->reshards[low].item];
    if (item->type == SL_ITEM_none)
      return item;
  }
  return sl_rank_item_add(b, SL_ITEM_close);
}

void sl_rank_phase_closed(void *context, struct sl_phase *phase) {
  struct sl_rank_builder *b = context;
  sl_module_states_closed(b->states, phase);
  sl_rank_pattern_closed(b, phase);
  struct sl_item *item = NULL;
  if (has_peak(phase) && (item = close_item_of(b, phase)))
    item->type = SL_ITEM_close;
  else if (phase->point == SL_POINT_post_backward_reshard)
    item = reshard_item_add(b);
  if (item)
    item->phase = phase;
  sl_rank_period_names(b, phase);
  if (phase->kind == SL_KIND_step && b->r == 0)
    b->r = sl_rank_step_ends(b, phase);
}

/* After a piece of a period: the phases that go on are looked at from here on. */
void sl_rank_items_restart(struct sl_rank_builder *b) {
  b->item_count = b->reshard_count = 0;
  sl_rank_watch(b, &b->whole);
  for (struct sl_phase *phase = sl_phases_list(b->phases); phase; phase = phase->next)
    if (!phase->end_at && has_peak(phase))
      sl_rank_watch(b, phase);
}
