/* Windows are few; hidden launches are as many as compiled code makes, and in order but for threads that raced. */
#include "rank_uses.h"

#include "rank_builder.h"
#include "storage/grow.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>

void sl_rank_uses_free(struct sl_rank_uses *uses) {
  free(uses->windows);
  free(uses->hidden);
  *uses = (struct sl_rank_uses){0};
}

static struct sl_use_window *window_open(const struct sl_rank_uses *uses) {
  struct sl_use_window *last = uses->window_count ? &uses->windows[uses->window_count - 1] : NULL;
  return last && !last->end_ns ? last : NULL;
}

static int hidden_add(struct sl_rank_uses *uses, uint64_t at_ns) {
  if (!SL_LIST_ADD(uses->hidden, uses->hidden_count))
    return -ENOMEM;
  size_t i = uses->hidden_count - 1;
  for (; i > 0 && uses->hidden[i - 1] > at_ns; i--)
    uses->hidden[i] = uses->hidden[i - 1];
  uses->hidden[i] = at_ns;
  return 0;
}

/* A use_watch event's state, at this time. 0 or -ENOMEM. */
static int watch(struct sl_rank_uses *uses, uint32_t state, uint64_t at_ns) {
  struct sl_use_window *open = window_open(uses);
  switch (state) {
  case SL_USES_HIDDEN: return open ? hidden_add(uses, at_ns) : 0;
  case SL_USES_OFF:
    if (open)
      open->end_ns = at_ns;
    return 0;
  case SL_USES_FOLLOWED:
  case SL_USES_PARTLY:
    if (open && open->sees_launches == (state == SL_USES_FOLLOWED))
      return 0;
    if (open)
      open->end_ns = at_ns;
    open = SL_LIST_ADD(uses->windows, uses->window_count);
    if (!open)
      return -ENOMEM;
    *open = (struct sl_use_window){.start_ns = at_ns, .sees_launches = state == SL_USES_FOLLOWED};
    return 0;
  default: return 0;
  }
}

/* Whether one window has all of a time, from an instant to another; UINT64_MAX: which has not come. */
static bool is_followed(const struct sl_rank_uses *uses, uint64_t from_ns, uint64_t until_ns) {
  for (size_t i = uses->window_count; i-- > 0;) {
    const struct sl_use_window *window = &uses->windows[i];
    if (window->start_ns <= from_ns)
      return until_ns <= (window->end_ns ? window->end_ns : UINT64_MAX - 1);
  }
  return false;
}

/* First and last hidden launch of that time, where there is one. */
static void hidden_within(const struct sl_rank_uses *uses, uint64_t from_ns, uint64_t until_ns, uint64_t *first,
                          uint64_t *last) {
  size_t low = 0, high = uses->hidden_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (uses->hidden[middle] < from_ns)
      low = middle + 1;
    else
      high = middle;
  }
  size_t end = low;
  for (high = uses->hidden_count; end < high;) {
    const size_t middle = end + (high - end) / 2;
    if (uses->hidden[middle] <= until_ns)
      end = middle + 1;
    else
      high = middle;
  }
  if (low == end)
    return;
  *first = uses->hidden[low];
  *last = uses->hidden[end - 1];
}

/* An operator that ran from an instant to another. */
struct operation {
  uint64_t from_ns, until_ns;
  uint32_t site;
  int64_t step; /* -1: outside of steps */
  bool in_backward;
};

static void allocation_used(struct sl_allocation *a, const struct operation *by) {
  struct sl_allocation_uses *uses = &a->uses;
  const uint64_t from_ns = by->from_ns > a->alloc_ns ? by->from_ns : a->alloc_ns;
  const uint64_t until_ns = a->free_ns && by->until_ns > a->free_ns ? a->free_ns : by->until_ns;
  if (by->in_backward && !uses->in_backward)
    uses->forward_ns = uses->last_ns;
  uses->in_backward |= by->in_backward;
  if (!uses->first_ns || from_ns < uses->first_ns)
    uses->first_ns = from_ns;
  if (until_ns >= uses->last_ns) {
    uses->last_ns = until_ns;
    uses->last_site = by->site;
  }
  uses->later |= by->step != a->step;
}

/* What an operator used, or made: what its thread has allocated since it began. */
int sl_rank_on_use(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_use *e = event->payload;
  const uint64_t lasted_ns = e->lasted_ns < event->time_ns ? e->lasted_ns : event->time_ns;
  const struct operation by = {
      .from_ns = event->time_ns - lasted_ns,
      .until_ns = event->time_ns,
      .site = sl_sites_known(b->sites.known, e->site),
      .step = sl_phases_step(b->phases),
      .in_backward = sl_phase_enclosing(sl_rank_phase_of(b, event), SL_KIND_backward) != NULL,
  };
  if (e->address) {
    uint32_t device;
    struct sl_allocation *a = sl_rank_memory_find(&b->memory, e->address, &device);
    if (a)
      allocation_used(a, &by);
    return 0;
  }
  for (size_t i = b->allocations.count; i-- > 0 && b->allocations.list[i]->alloc_ns >= by.from_ns;)
    if (b->allocations.list[i]->thread == event->thread)
      allocation_used(b->allocations.list[i], &by);
  return 0;
}

int sl_rank_on_use_watch(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_use_watch *e = event->payload;
  return sl_or_no_memory(watch(&b->uses, e->state, event->time_ns), b->error);
}

/* It is freed for good, or the log has ended: what it tells of its place, or its place of it. */
void sl_rank_uses_settle(struct sl_rank_builder *b, struct sl_allocation *a) {
  struct sl_allocation_uses *uses = &a->uses;
  if (!b->uses.window_count)
    return;
  hidden_within(&b->uses, a->alloc_ns, a->free_ns ? a->free_ns : UINT64_MAX, &uses->hidden_first_ns,
                &uses->hidden_last_ns);
  const bool outlived = a->step >= 0 && a->last_step >= a->step && a->free_ns;
  if (!outlived || !a->step_place)
    return;
  if (is_followed(&b->uses, a->alloc_ns, a->free_ns)) {
    sl_site_places_outlived(b->sites.places, a->step_place, a->step, uses->later);
  } else if (!uses->later && a->last_step == a->step) {
    uses->unused_step = sl_site_places_unused(b->sites.places, a->step_place);
    uses->has_unused_step = uses->unused_step >= 0;
  }
}

int sl_rank_uses_write(struct sl_rank_builder *b) {
  int r = 0;
  for (size_t i = 0; i < b->uses.window_count && r == 0; i++) {
    const struct sl_use_window *window = &b->uses.windows[i];
    const struct sl_use_window_cells cells = {
        .start_ns = (int64_t)window->start_ns,
        .end_ns = sl_known((int64_t)window->end_ns, 0),
        .sees_launches = window->sees_launches,
    };
    r = sl_put_use_window(b->writer, &cells, b->error);
  }
  return r;
}
