/* The list of allocations. Its structs are used again: a training step makes as many as it ends. */
#include "rank_allocations.h"

#include "storage/grow.h"

void sl_rank_allocations_free(struct sl_rank_allocations *all) {
  for (size_t i = 0; i < all->made; i++)
    free(all->list[i]);
  free(all->list);
  *all = (struct sl_rank_allocations){0};
}

struct sl_allocation *sl_rank_allocations_add(struct sl_rank_allocations *all, const struct sl_allocation *made) {
  void *grown = sl_list_room(all->list, all->count, &all->capacity, sizeof *all->list);
  if (!grown)
    return NULL;
  all->list = grown;
  if (all->count == all->made) {
    all->list[all->made] = malloc(sizeof **all->list);
    if (!all->list[all->made])
      return NULL;
    all->made++;
  }
  struct sl_allocation *a = all->list[all->count++];
  *a = *made;
  a->id = ++all->last_id;
  a->tag_category = -1;
  a->last_step = -1;
  return a;
}

size_t sl_rank_allocations_decided(const struct sl_rank_allocations *all) {
  size_t decided = all->count;
  while (decided && !all->list[decided - 1]->decided)
    decided--;
  return decided;
}

void sl_rank_allocations_outlive(struct sl_rank_allocations *all, int64_t step) {
  for (size_t i = 0; i < all->count; i++)
    if (!all->list[i]->free_at)
      all->list[i]->last_step = step;
}

void sl_rank_allocations_go_on(struct sl_rank_allocations *all, uint64_t since) {
  for (size_t i = 0; i < all->count; i++)
    all->list[i]->phase = all->list[i]->free_phase = NULL;
  for (size_t i = all->count; i-- > 0 && all->list[i]->alloc_at > since;)
    all->list[i]->number = (uint32_t)(all->count - i);
}

int sl_rank_allocations_settle(struct sl_rank_allocations *all, uint64_t until,
                               int (*take)(void *context, struct sl_allocation *allocation), void *context) {
  size_t kept = 0;
  int r = 0;
  for (size_t i = 0; i < all->count; i++) {
    struct sl_allocation *a = all->list[i];
    const bool ended = r == 0 && (until == UINT64_MAX || (a->complete_at && a->complete_at <= until));
    r = ended ? take(context, a) : r;
    if (ended && r == 0)
      continue;
    all->list[i] = all->list[kept];
    all->list[kept++] = a;
  }
  all->count = kept;
  return r;
}

const struct sl_allocation *sl_rank_allocations_holding(const struct sl_rank_allocations *all, uint64_t address) {
  for (size_t i = all->count; i-- > 0;) {
    const struct sl_allocation *a = all->list[i];
    if (!a->free_at && address >= a->address && address - a->address < a->bytes)
      return a;
  }
  return NULL;
}

uint64_t sl_rank_allocations_sized(const struct sl_rank_allocations *all, const struct sl_phase *phase, uint64_t bytes,
                                   uint64_t factor) {
  uint64_t found = 0;
  for (size_t i = all->count; i-- > 0 && all->list[i]->alloc_at > phase->start_at;) {
    const struct sl_allocation *a = all->list[i];
    const uint64_t times = a->requested_bytes / bytes;
    if (a->phase != phase || a->free_at || a->requested_bytes % bytes || (factor ? times != factor : times < 2))
      continue;
    if (found)
      return 0;
    found = a->id;
  }
  return found;
}
