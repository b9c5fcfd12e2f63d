/*
 * A log whose middle was dropped to make room for the latest (plugin/format/log_format.h) goes on behind the gap with
 * what the allocator holds then. What was there before the gap and still is keeps its owner; the rest of it ends where
 * the gap begins, as open ranges do. What was made within it is there, with the time and the step of its making, and
 * without an owner.
 */
#include "rank_builder.h"

#include "storage/grow.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void sl_rank_gap_free(struct sl_rank_gap *gap) {
  free(gap->blocks);
  free(gap->ranges);
  *gap = (struct sl_rank_gap){0};
}

static int compare_blocks(const void *left, const void *right) {
  const struct sl_event_kept_block *a = left, *b = right;
  if (a->device != b->device)
    return a->device < b->device ? -1 : 1;
  return (a->address > b->address) - (a->address < b->address);
}

/* The allocation's block after the gap; NULL: it has gone. */
static const struct sl_event_kept_block *block_of(const struct sl_rank_gap *gap, const struct sl_allocation *a) {
  const struct sl_event_kept_block key = {.device = a->device, .address = a->address};
  const struct sl_event_kept_block *block =
      gap->block_count ? bsearch(&key, gap->blocks, gap->block_count, sizeof key, compare_blocks) : NULL;
  if (!block || block->state != SL_BLOCK_ALLOCATED)
    return NULL;
  return (block->alloc_ns == 0 ? a->restored : !a->restored && block->sequence == a->sequence) ? block : NULL;
}

/*
 * What has gone within the gap, nobody knows when, ends where it was last known to be alive: at any later instant what
 * was made within the gap may have had its address.
 */
static int allocations_end(struct sl_rank_builder *b, uint64_t from_ns) {
  int r = 0;
  for (size_t i = 0; i < b->allocations.count && r == 0; i++) {
    struct sl_allocation *a = b->allocations.list[i];
    if (!b->gap.devices[a->device].known || (!a->free_at && block_of(&b->gap, a)))
      continue;
    if (!a->free_at)
      a->free_ns = a->alloc_ns > from_ns ? a->alloc_ns : from_ns;
    if (!a->complete_at) {
      a->complete_ns = a->free_ns > from_ns ? a->free_ns : from_ns;
      a->complete_at = b->clock.at;
    }
    if (a->free_at)
      continue;
    a->free_at = b->clock.at;
    r = sl_rank_allocation_ends(b, a);
  }
  return r;
}

/* 1: there is no such block, so nothing is in it. */
static int block_take(struct sl_rank_builder *b, const struct sl_event_kept_block *kept) {
  const struct sl_known_block block = {
      .device = kept->device,
      .place = kept->place,
      .address = kept->address,
      .bytes = kept->bytes,
      .requested_bytes = kept->requested_bytes,
      .state = kept->state,
      .starts_segment = kept->starts_segment,
  };
  int r = sl_rank_memory_restore(&b->memory, &block);
  if (r == -ENOMEM)
    return sl_no_memory(b->error);
  b->memory.unknown += r < 0;
  return r < 0;
}

static int allocation_make(struct sl_rank_builder *b, const struct sl_event *event,
                           const struct sl_event_kept_block *block) {
  const struct sl_allocation made = {
      .address = block->address,
      .bytes = block->bytes,
      .requested_bytes = block->requested_bytes,
      .place = block->place,
      .device = block->device,
      .sequence = block->sequence,
      .step = block->step == UINT32_MAX ? -1 : (int64_t)block->step,
      .dropped = true,
  };
  struct sl_allocation *a = sl_rank_allocation_add(b, event, &made);
  if (!a)
    return sl_no_memory(b->error);
  a->tid = block->tid;
  a->alloc_ns = block->alloc_ns;
  a->period = b->life.current.row.period - 1; /* the one that was cut */
  return sl_rank_allocation_begins(b, a);
}

/* The maps as they are after the gap, and whose the blocks in them are. */
static int blocks_take(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_rank_allocations *all = &b->allocations;
  struct sl_allocation **kept = calloc(b->gap.block_count + 1, sizeof *kept);
  int r = kept ? 0 : sl_no_memory(b->error);
  for (size_t i = 0; i < all->count && r == 0; i++) {
    const struct sl_event_kept_block *block = all->list[i]->free_at ? NULL : block_of(&b->gap, all->list[i]);
    if (block)
      kept[block - b->gap.blocks] = all->list[i];
  }
  for (uint32_t i = 0; i < SL_DEVICES_MAX && r == 0; i++)
    if (b->gap.devices[i].known)
      r = sl_or_no_memory(sl_rank_memory_restart(&b->memory, i, b->gap.devices[i].until), b->error);
  for (size_t i = 0; i < b->gap.block_count && r == 0; i++) {
    const struct sl_event_kept_block *block = &b->gap.blocks[i];
    if (block->device >= SL_DEVICES_MAX || !b->gap.devices[block->device].known)
      continue;
    r = block_take(b, block);
    if (r > 0)
      r = 0;
    else if (r == 0 && block->state == SL_BLOCK_ALLOCATED) {
      if (kept[i])
        sl_block_map_set_user(b->memory.devices[block->device].map, kept[i]);
      else
        r = allocation_make(b, event, block);
    }
  }
  free(kept);
  return r;
}

/* Where the gap begins: so what ends there can be told from what was seen to be freed. */
static int row_write(struct sl_rank_builder *b, const struct sl_event_dropped *e) {
  char steps[64] = "a part between the first and the latest", reason[200];
  if (e->first_step == e->last_step)
    snprintf(steps, sizeof steps, "step %u", e->first_step);
  else if (e->first_step < e->last_step)
    snprintf(steps, sizeof steps, "steps %u to %u", e->first_step, e->last_step);
  snprintf(reason, sizeof reason, "%s dropped to make room for the latest (SHARDLEDGER_AT_MAX=keep-last): %llu events",
           steps, (unsigned long long)e->events);
  const struct sl_gap_cells cells = {.at_ns = (int64_t)e->from_ns, .source = "log", .reason = reason};
  return sl_put_gap(b->writer, &cells, b->error);
}

static int jump(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_dropped *e = event->payload;
  if (b->gap.block_count)
    qsort(b->gap.blocks, b->gap.block_count, sizeof *b->gap.blocks, compare_blocks);
  int r = allocations_end(b, e->from_ns);
  if (r == 0)
    r = sl_rank_period_cut(b);
  if (r == 0)
    r = blocks_take(b, event);
  if (r == 0) {
    r = sl_phases_jump(b->phases, b->gap.ranges, b->gap.range_count, e->from_ns, b->clock.at);
    r = r == -ENOMEM ? sl_no_memory(b->error) : r;
  }
  if (r == 0)
    r = row_write(b, e);
  sl_rank_gap_free(&b->gap);
  sl_rank_watch(b);
  return r;
}

int sl_rank_on_gap_event(struct sl_rank_builder *b, const struct sl_event *event) {
  struct sl_rank_gap *gap = &b->gap;
  if (!event->salvaged)
    return 0;
  switch (event->type) {
  case SL_EVENT_dropped_allocator: {
    const struct sl_event_dropped_allocator *e = event->payload;
    if (e->device < SL_DEVICES_MAX) {
      gap->devices[e->device].known = true;
      gap->devices[e->device].until = e->until;
    }
    return 0;
  }
  case SL_EVENT_kept_block: {
    struct sl_event_kept_block *added = SL_LIST_ADD_ROOM(gap->blocks, gap->block_count, &gap->block_capacity);
    if (!added)
      return sl_no_memory(b->error);
    *added = *(const struct sl_event_kept_block *)event->payload;
    return 0;
  }
  case SL_EVENT_kept_range: {
    struct sl_event_kept_range *added = SL_LIST_ADD_ROOM(gap->ranges, gap->range_count, &gap->range_capacity);
    if (!added)
      return sl_no_memory(b->error);
    *added = *(const struct sl_event_kept_range *)event->payload;
    return 0;
  }
  case SL_EVENT_dropped: return jump(b, event);
  default: return 0;
  }
}
