/* A parent counts its children in memory, so the last of them that goes takes it along. */
#include "phase_list.h"

#include <errno.h>
#include <stdlib.h>

struct sl_phase *sl_phase_list_add(struct sl_phase_list *list, const struct sl_phase *facts, struct sl_phase *parent) {
  struct sl_phase *phase = sl_spare_take(&list->spare, sizeof *phase);
  if (!phase)
    return NULL;
  while (parent && parent->depth >= SL_PHASE_DEPTH_MAX)
    parent = parent->parent;
  *phase = *facts;
  phase->id = ++list->last_id;
  phase->parent = parent;
  phase->depth = parent ? parent->depth + 1 : 0;
  if (parent)
    parent->children++;
  phase->previous = list->last;
  if (list->last)
    list->last->next = phase;
  else
    list->first = phase;
  list->last = phase;
  return phase;
}

void sl_phase_list_close(struct sl_phase_list *list, struct sl_phase *phase) {
  phase->closed = true;
  phase->next_closed = list->closed;
  list->closed = phase;
  list->closed_count++;
}

static int compare_ids(const void *left, const void *right) {
  const struct sl_phase *const *a = left, *const *b = right;
  return ((*a)->id > (*b)->id) - ((*a)->id < (*b)->id);
}

int sl_phase_list_closed(struct sl_phase_list *list, struct sl_phase ***out, size_t *count) {
  struct sl_phase **sorted = realloc(list->sorted, (list->closed_count + 1) * sizeof *sorted);
  if (!sorted)
    return -ENOMEM;
  *out = list->sorted = sorted;
  *count = 0;
  for (struct sl_phase *phase = list->closed; phase; phase = phase->next_closed)
    sorted[(*count)++] = phase;
  qsort(sorted, *count, sizeof *sorted, compare_ids);
  return 0;
}

/* Frees a phase that nobody looks at any more, and those around it that were kept for it alone. */
static void phase_drop(struct sl_phase_list *list, struct sl_phase *phase) {
  while (phase && phase->pruned && !phase->children) {
    struct sl_phase *parent = phase->parent;
    sl_spare_give(&list->spare, phase);
    if (parent)
      parent->children--;
    phase = parent;
  }
}

static void phase_unlink(struct sl_phase_list *list, struct sl_phase *phase) {
  if (phase->previous)
    phase->previous->next = phase->next;
  else
    list->first = phase->next;
  if (phase->next)
    phase->next->previous = phase->previous;
  else
    list->last = phase->previous;
  phase->previous = phase->next = NULL;
  phase->pruned = true;
}

void sl_phase_list_prune(struct sl_phase_list *list) {
  struct sl_phase *closed = list->closed, *next;
  list->closed = NULL;
  list->closed_count = 0;
  /* One that encloses another of these may be freed with it, so all are taken out before the first is freed. */
  for (struct sl_phase *phase = closed; phase; phase = phase->next_closed) {
    phase_unlink(list, phase);
    phase->children++;
  }
  for (struct sl_phase *phase = closed; phase; phase = next) {
    next = phase->next_closed;
    phase->children--;
    phase_drop(list, phase);
  }
}

void sl_phase_list_free(struct sl_phase_list *list) {
  while (list->first) {
    list->closed = list->first;
    list->closed->next_closed = NULL;
    sl_phase_list_prune(list);
  }
  sl_spare_free(&list->spare);
  free(list->sorted);
  *list = (struct sl_phase_list){0};
}
