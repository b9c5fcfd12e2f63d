/* A period's figures and its name: that of what ran in it the longest, outside of steps. */
#include "rank_period.h"

#include "rank_pattern.h"
#include "storage/grow.h"

#include <errno.h>
#include <string.h>

void sl_rank_period_free(struct sl_rank_period *period) {
  sl_rows_free(&period->rows);
  sl_rows_free(&period->device_rows);
  period->pattern = sl_rank_pattern_free(period->pattern);
  sl_rank_period_owners_clear(period);
}

int sl_rank_period_owner_add(struct sl_rank_period *period, const struct sl_memory_owner *owner) {
  struct sl_memory_owner *added = SL_LIST_ADD(period->owners, period->owner_count);
  if (!added)
    return -ENOMEM;
  *added = *owner;
  return 0;
}

void sl_rank_period_owners_clear(struct sl_rank_period *period) {
  free(period->owners);
  period->owners = NULL;
  period->owner_count = 0;
}

/* ---- its highest point ---- */

static void totals_max(struct sl_block_totals *peak, const struct sl_block_totals *now) {
  if (now->requested_bytes > peak->requested_bytes)
    peak->requested_bytes = now->requested_bytes;
  if (now->active_bytes > peak->active_bytes)
    peak->active_bytes = now->active_bytes;
  if (now->reserved_bytes > peak->reserved_bytes)
    peak->reserved_bytes = now->reserved_bytes;
  if (now->allocated_bytes > peak->allocated_bytes)
    peak->allocated_bytes = now->allocated_bytes;
}

void sl_rank_period_watch(struct sl_rank_period *period, const struct sl_block_totals *now, uint64_t device_used,
                          uint64_t at, uint64_t at_ns) {
  struct sl_period_row *row = &period->row;
  row->peak = *now;
  row->peak_ns = at_ns;
  row->peak_phase = 0;
  row->peak_module = 0;
  row->peak_device_bytes = device_used; /* what the period begins with */
  row->checked = -1;
  period->peak_at = at;
}

void sl_rank_period_peak(struct sl_rank_period *period, const struct sl_block_totals *now, const struct sl_phase *phase,
                         uint64_t at, uint64_t at_ns) {
  if (now->allocated_bytes > period->row.peak.allocated_bytes) {
    while (phase && phase->kind == SL_KIND_user && phase->parent)
      phase = phase->parent; /* a user's range says less than what stands around it */
    period->row.peak_ns = at_ns;
    period->row.peak_phase = phase ? phase->id : 0;
    period->row.peak_kind = phase ? (int)phase->kind : 0;
    period->row.peak_module = sl_phase_module(phase);
    period->peak_at = at;
  }
  totals_max(&period->row.peak, now);
}

bool sl_rank_period_rises(const struct sl_rank_period *period, const struct sl_block_totals *now) {
  const struct sl_block_totals *peak = &period->row.peak;
  return now->allocated_bytes > peak->allocated_bytes || now->reserved_bytes > peak->reserved_bytes ||
         now->active_bytes > peak->active_bytes || now->requested_bytes > peak->requested_bytes;
}

/* ---- what runs in a period outside of steps ---- */

/* Ranges that libraries open by themselves say nothing of what the program does. */
static bool is_of_library(const char *name) {
  static const char *const prefixes[] = {"gloo:", "nccl:", "enumerate(DataLoader)", "Optimizer.",
                                         "DistributedDataParallel."};
  for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
      return true;
  return false;
}

static const char *name_of(const struct sl_phase *phase) {
  switch (phase->kind) {
  case SL_KIND_eval: return "evaluation";
  case SL_KIND_load:
  case SL_KIND_save:
  case SL_KIND_generate: return phase->name;
  case SL_KIND_user: return is_of_library(phase->name) ? NULL : phase->name;
  default: return NULL;
  }
}

static bool is_named_in(const struct sl_rank_period *p, const struct sl_phase *phase) {
  return phase->start_at > p->began_at && name_of(phase);
}

static bool lies_within(const struct sl_phase *inner, const struct sl_phase *phase) {
  while (inner && inner != phase)
    inner = inner->parent;
  return inner;
}

/*
 * The outermost phases of the period that have a name count with their time. One inside of another counts as long as
 * that one goes on, since it may outlast the period.
 */
static void name_count(struct sl_rank_period *p, const struct sl_phase *phase, uint64_t end_ns, uint64_t at) {
  const struct sl_phase *within = NULL;
  bool is_part = false;
  for (const struct sl_phase *around = phase->parent; around; around = around->parent)
    if (is_named_in(p, around)) {
      within = within ? within : around;
      is_part |= around->end_at != 0;
    }
  size_t kept = 0;
  for (size_t i = 0; i < p->name_count; i++)
    if (!lies_within(p->names[i].within, phase))
      p->names[kept++] = p->names[i];
  p->name_count = kept;
  if (is_part)
    return;
  size_t i = 0;
  while (i < p->name_count && (p->names[i].within != within || strcmp(p->names[i].name, name_of(phase)) != 0))
    i++;
  if (i == SL_PERIOD_NAMES)
    return;
  if (i == p->name_count)
    p->names[p->name_count++] = (struct sl_period_name){.name = name_of(phase), .within = within};
  p->names[i].ns += end_ns > phase->start_ns ? end_ns - phase->start_ns : 0;
  p->names[i].at = at;
}

/* That with the longest time in sum, of equal ones the later one. */
static void name_choose(struct sl_rank_period *p) {
  uint64_t longest = 0, latest = 0;
  p->row.name = NULL;
  for (size_t i = 0; i < p->name_count; i++) {
    uint64_t ns = 0, at = 0;
    for (size_t j = 0; j < p->name_count; j++)
      if (strcmp(p->names[j].name, p->names[i].name) == 0) {
        ns += p->names[j].ns;
        at = p->names[j].at > at ? p->names[j].at : at;
      }
    if (!p->row.name || ns > longest || (ns == longest && at > latest)) {
      longest = ns;
      latest = at;
      p->row.name = p->names[i].name;
    }
  }
}

void sl_rank_period_name(struct sl_rank_period *p, const struct sl_phase *phase, uint64_t at) {
  if (p->row.kind == SL_PERIOD_step || !is_named_in(p, phase))
    return;
  name_count(p, phase, phase->end_ns, at);
  name_choose(p);
}

void sl_rank_period_names_end(struct sl_rank_period *p, struct sl_phases *phases, uint64_t at_ns) {
  for (const struct sl_phase *phase = sl_phases_list(phases); phase; phase = phase->next) {
    const struct sl_phase *around = phase->parent;
    while (around && !is_named_in(p, around))
      around = around->parent;
    if (!phase->end_at && !around && is_named_in(p, phase))
      name_count(p, phase, at_ns, UINT64_MAX);
  }
  name_choose(p);
}
