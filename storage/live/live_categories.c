/* An allocation whose end has not come is put through the rules several times, once for each end that it may have. */
#include "live_categories.h"

#include "storage/rank/rank_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 256 };

struct group {
  uint64_t categories; /* a bit for each that is possible */
  bool decided;
  uint64_t bytes;
};

/* What has none of these may still get a tag: a parameter, once its model is called. */
static bool is_final(int category) {
  return category != SL_CATEGORY_unattributed && category != SL_CATEGORY_program;
}

static int judge(const struct sl_rank_view *view, const struct sl_allocation *allocation,
                 const struct sl_step_facts *facts, uint64_t free_at, struct sl_phase *free_phase) {
  struct sl_allocation copy = *allocation;
  copy.free_at = free_at;
  copy.free_phase = free_phase;
  sl_attribute(&copy, facts);
  sl_attribute_by_user(&copy, view->phases);
  return copy.category;
}

struct outlook {                                /* what the step may be like once it has ended */
  struct sl_step_facts cut_off, whole, goes_on; /* ends now; ends now in order; has another backward and an optimizer */
  struct sl_workspaces workspaces;              /* decisions that are none yet must not add to the rank's */
};

/* The positions and one more, that of the next event but one; the caller frees it. NULL: no memory. */
static uint64_t *and_next(const struct sl_rank_view *view, const struct sl_positions *positions) {
  uint64_t *at = malloc((positions->count + 1) * sizeof *at);
  if (!at)
    return NULL;
  if (positions->count)
    memcpy(at, positions->list, positions->count * sizeof *at);
  at[positions->count] = view->at + 2;
  return at;
}

/* What the allocation may be once its step has ended. */
static struct group possible(const struct sl_rank_view *view, const struct sl_allocation *allocation,
                             const struct outlook *outlook) {
  const uint64_t dies_at = view->at + 1;
  const int lives = judge(view, allocation, &outlook->cut_off, 0, NULL);
  const int survives = judge(view, allocation, &outlook->whole, 0, NULL);
  const int dies = judge(view, allocation, &outlook->goes_on, dies_at, NULL);
  uint64_t bits = 1ull << lives | 1ull << dies;
  if (sl_phase_enclosing(allocation->phase, SL_KIND_backward)) {
    /* A gradient that FSDP will reduce dies in its reduce; one that will be none is seen once gradients are tagged. */
    struct sl_phase reduce = {.point = SL_POINT_reduce_scatter};
    if (view->saw_fsdp)
      bits |= 1ull << judge(view, allocation, &outlook->goes_on, dies_at, &reduce);
    bits |= 1ull << survives;
  } else if (lives != dies && lives == SL_CATEGORY_activation && !sl_phase_module(allocation->phase)) {
    bits |= 1ull << SL_CATEGORY_input; /* its tag comes with the forward of the root */
  }
  if (!outlook->cut_off.workspaces && allocation->step <= 1 && sl_has_workspace_size(allocation))
    bits |= 1ull << SL_CATEGORY_workspace; /* its tag, by PyTorch's table, comes with the end of the step */
  return (struct group){bits, bits == 1ull << survives && is_final(survives), allocation->bytes};
}

static void group_add(struct group *groups, size_t *count, struct group added) {
  size_t i = 0;
  while (i < *count && (groups[i].categories != added.categories || groups[i].decided != added.decided))
    i++;
  if (i == GROUPS_MAX)
    i--;
  if (i == *count)
    groups[(*count)++] = (struct group){added.categories, added.decided, 0};
  groups[i].bytes += added.bytes;
}

static int by_size(const void *left, const void *right) {
  const struct group *a = left, *b = right;
  return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : a->categories < b->categories ? -1 : 1;
}

static void name_group(const struct sl_rank_view *view, const struct group *group, struct sl_live_category *out) {
  const uint64_t categories = group->categories;
  size_t used = 0;
  *out = (struct sl_live_category){
      .several = (categories & (categories - 1)) != 0, .decided = group->decided, .bytes = group->bytes};
  if (!out->decided && categories & 1ull << SL_CATEGORY_unattributed && categories & (categories - 1)) {
    strcpy(out->name, "not known yet");
    return;
  }
  /* The last of the words is the one that dies: "activation or temp". */
  const uint64_t temp = categories & 1ull << SL_CATEGORY_temp;
  for (int pass = 0; pass < 2; pass++)
    for (int c = 0; c < view->categories->count; c++)
      if ((pass ? temp : categories & ~temp) >> c & 1 && used < sizeof out->name)
        used += (size_t)snprintf(out->name + used, sizeof out->name - used, "%s%s", used ? " or " : "",
                                 sl_category_name(view->categories, c));
}

/* Tags and the ends of steps have decided. */
static struct group decided(const struct sl_allocation *allocation) {
  return (struct group){1ull << allocation->category, is_final(allocation->category), allocation->bytes};
}

size_t sl_live_categories(const struct sl_rank_view *view, struct sl_live_category *out, size_t capacity) {
  struct group groups[GROUPS_MAX];
  size_t count = 0;
  struct outlook outlook = {.workspaces = view->steps->workspaces};
  struct sl_rank_steps steps = *view->steps;
  outlook.cut_off = sl_rank_steps_facts(&steps, view->current->kind == SL_PERIOD_step ? view->current->step : -1, true);
  if (outlook.cut_off.workspaces)
    outlook.cut_off.workspaces = &outlook.workspaces;
  outlook.whole = outlook.goes_on = outlook.cut_off;
  outlook.whole.cut_off = false;
  outlook.whole.gradients_tagged = true;
  uint64_t *optimizers = and_next(view, &view->steps->optimizer_starts),
           *backwards = and_next(view, &view->steps->backward_starts);
  if (!optimizers || !backwards) {
    free(optimizers);
    free(backwards);
    return SIZE_MAX;
  }
  outlook.goes_on.optimizer_starts = optimizers;
  outlook.goes_on.optimizer_start_count++;
  outlook.goes_on.backward_starts = backwards;
  outlook.goes_on.backward_start_count++;
  for (size_t i = 0; i < view->allocations->count; i++) {
    const struct sl_allocation *allocation = view->allocations->list[i];
    if (!allocation->free_at && (int)allocation->device == view->memory->device)
      group_add(groups, &count, allocation->decided ? decided(allocation) : possible(view, allocation, &outlook));
  }
  free(optimizers);
  free(backwards);
  qsort(groups, count, sizeof *groups, by_size);
  for (size_t i = 0; i < count && i < capacity; i++)
    name_group(view, &groups[i], &out[i]);
  if (count <= capacity || !capacity)
    return count < capacity ? count : capacity;
  strcpy(out[capacity - 1].name, "all others");
  out[capacity - 1].several = true;
  out[capacity - 1].decided = false;
  for (size_t i = capacity; i < count; i++)
    out[capacity - 1].bytes += groups[i].bytes;
  return capacity;
}
