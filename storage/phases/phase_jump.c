/*
 * A log whose middle was dropped goes on with the ranges that are open then. Those that were open before are the same
 * phases; the others begin within the gap.
 */
#include "open_phases.h"
#include "range_meaning.h"
#include "unit_backwards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct candidate { /* a phase that was open before the gap and may be open behind it */
  struct sl_phase *phase;
  size_t taken; /* of the first one of its kind: so many of them are */
};

static int compare_ranges(uint32_t thread, uint64_t start_ns, const char *name, const struct sl_phase *phase) {
  if (thread != phase->thread)
    return thread < phase->thread ? -1 : 1;
  if (start_ns != phase->start_ns)
    return start_ns < phase->start_ns ? -1 : 1;
  return strcmp(name, phase->name);
}

static int compare_candidates(const void *left, const void *right) {
  const struct sl_phase *a = ((const struct candidate *)left)->phase, *b = ((const struct candidate *)right)->phase;
  int order = compare_ranges(a->thread, a->start_ns, a->name, b);
  return order ? order : (a->id > b->id) - (a->id < b->id);
}

struct candidates {
  struct candidate *all;
  size_t count;
};

static int candidates_find(const struct sl_phases *phases, struct candidates *out) {
  size_t count = 0;
  for (const struct sl_phase *phase = phases->list.first; phase; phase = phase->next)
    count++;
  *out = (struct candidates){.all = malloc((count + 1) * sizeof *out->all)};
  if (!out->all)
    return -ENOMEM;
  for (struct sl_phase *phase = phases->list.first; phase; phase = phase->next) {
    phase->reopened = false;
    if (!phase->closed && !phase->derived && phase->kind != SL_KIND_step)
      out->all[out->count++] = (struct candidate){.phase = phase};
  }
  qsort(out->all, out->count, sizeof *out->all, compare_candidates);
  return 0;
}

/* The phase of the range, each one once, the first one first. NULL: none was open before the gap. */
static struct sl_phase *candidate_take(const struct candidates *candidates, const struct sl_event_kept_range *range,
                                       const char *name) {
  size_t low = 0, high = candidates->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare_ranges(range->thread, range->start_ns, name, candidates->all[middle].phase) > 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == candidates->count)
    return NULL;
  size_t next = low + candidates->all[low].taken;
  if (next >= candidates->count ||
      compare_ranges(range->thread, range->start_ns, name, candidates->all[next].phase) != 0)
    return NULL;
  candidates->all[low].taken++;
  return candidates->all[next].phase;
}

/* The phase of a range that was opened before or within a gap, and is open after it. */
static int range_reopen(struct sl_phases *phases, const struct candidates *candidates,
                        const struct sl_event_kept_range *range, uint64_t at) {
  const char *name = sl_log_string(phases->log, range->name);
  const struct sl_event event = {.thread = range->thread, .tid = range->tid, .time_ns = range->start_ns};
  struct sl_phase *phase = NULL;
  bool is_new = false;
  if (range->id || !sl_phases_ignores(phases, range->domain)) {
    phase = candidate_take(candidates, range, name);
    if (!phase) {
      struct meaning meaning =
          sl_range_meaning(phases, range->thread, range->domain, range->category, range->value, name);
      enum sl_kind kind =
          meaning.kind == SL_KIND_step || meaning.kind == SL_KIND_backward ? SL_KIND_user : meaning.kind;
      phase = sl_phase_open(phases, &event, at, kind, name, meaning.module, sl_phases_current(phases, range->thread));
      if (!phase)
        return -ENOMEM;
      phase->point = meaning.point;
      is_new = true;
    }
    phase->reopened = true;
  }
  int r = range->id ? sl_open_ranges_start(&phases->ranges, range->id, phase)
                    : sl_open_ranges_push(&phases->ranges, range->thread, range->domain, phase);
  if (r == 0 && is_new)
    sl_phase_tell(phases, phase);
  return r;
}

int sl_phases_jump(struct sl_phases *phases, const struct sl_event_kept_range *ranges, size_t count, uint64_t time_ns,
                   uint64_t at) {
  struct candidates candidates;
  sl_unit_backwards_end(phases, time_ns, at);
  sl_open_ranges_clear(&phases->ranges);
  int r = candidates_find(phases, &candidates);
  for (size_t i = 0; i < count && r == 0; i++)
    r = range_reopen(phases, &candidates, &ranges[i], at);
  for (struct sl_phase *phase = phases->list.first, *next; phase && r == 0; phase = next) {
    next = phase->next;
    if (phase->closed || phase->reopened)
      continue;
    if (phase->kind == SL_KIND_step)
      sl_phase_end(phases, phase, time_ns, at); /* what the gap cuts is no step */
    else
      sl_phase_close(phases, phase, time_ns, at);
  }
  free(candidates.all);
  return r < 0 ? r : phases->r;
}
