/*
 * A rank's ledger in the making. Nobody outside of rank_*.c includes this; who looks on has rank_view.h.
 *
 * Parts with state of their own, which know nothing of each other and of the builder:
 *
 *   rank_memory.h       PyTorch's allocators, replayed
 *   rank_allocations.h  what is alive, or was made since the last decision
 *   rank_items.h        what happens in a period, in order
 *   rank_steps.h        what decisions need to know of the steps
 *   rank_life.h         which period goes on (rank_period.h)
 *   rank_pattern.h      what a period did, as a number that tells whether another one did the same
 *   rank_repeats.h      which periods' rows are kept
 *   rank_sites.h        where in the code allocations were made
 *   rank_uses.h         when what operators use was followed
 *
 * What brings them together:
 *
 *   rank_ledger.c       the loop over the log: what each event is for, and the facts about the rank
 *   rank_device.c       samples of the device, loaded code, and refused requests
 *   rank_allocator.c    allocator events, what was there before recording began, tags
 *   rank_gap.c          what goes on after a part of the log that was dropped
 *   rank_cycle.c        where periods begin and end, and what is decided then
 *   rank_rows.c         what is written of a period
 *   rank_meshes.c       where the rank stands in its device meshes, and the groups of a rehearsed one
 *   rank_shards.c       how parameters are laid out, and what optimizers step them
 *
 * Functions that return int give 0 or a negative errno, with the reason in the builder's error: the only way in which
 * a failure is told, also by callbacks.
 */
#ifndef SHARDLEDGER_RANK_BUILDER_H
#define SHARDLEDGER_RANK_BUILDER_H

#include "plugin/format/events.h"
#include "rank_allocations.h"
#include "rank_items.h"
#include "rank_ledger.h"
#include "rank_life.h"
#include "rank_memory.h"
#include "rank_pattern.h"
#include "rank_repeats.h"
#include "rank_sites.h"
#include "rank_steps.h"
#include "rank_uses.h"
#include "storage/attribution/module_states.h"
#include "storage/attribution/sweep.h"
#include "storage/collectives/collectives.h"
#include "storage/device/device_balance.h"
#include "storage/device/driver_segments.h"
#include "storage/device/refusals.h"
#include "storage/device/retries.h"
#include "storage/hash_table.h"
#include "storage/rules/category_names.h"
#include "storage/tables/ledger_writer.h"

struct sl_rank_clock {
  uint64_t at; /* position in the event sequence */
  uint64_t now_ns;
  uint64_t start_ns, end_ns; /* first and last event */
};

struct sl_rank_gap { /* what is there after it, until it is reached */
  struct sl_event_kept_block *blocks;
  size_t block_count, block_capacity;
  struct sl_event_kept_range *ranges;
  size_t range_count, range_capacity;
  struct {
    bool known;
    uint32_t until; /* sequence of the next allocator event */
  } devices[SL_DEVICES_MAX];
};

struct sl_rank_restore { /* what was there before recording began */
  bool goes_on;          /* until the definitions end */
  uint64_t allocations;
  struct { /* the one that is being put together */
    uint32_t device, place;
    uint64_t address, bytes, stream, at_ns;
  } segment;
};

struct sl_peak_entry { /* highest point of a (module, phase kind) in the period, over its calls */
  uint64_t key;        /* module << 8 | kind; 0: of the period as a whole */
  struct sl_sample sample;
  struct sl_own_bytes own;
  UT_hash_handle hh;
};

struct sl_rank_builder {
  struct sl_log *log;
  struct sl_ledger_writer *writer;
  struct sl_error *error;

  struct sl_rank_clock clock;
  struct sl_rank_memory memory;
  struct sl_rank_allocations allocations;
  struct sl_rank_items items;
  struct sl_rank_steps steps;
  struct sl_rank_life life;
  struct sl_rank_sites sites;
  struct sl_rank_uses uses;
  struct sl_category_names categories;
  struct sl_rank_repeats *repeats;

  struct sl_phases *phases;
  struct sl_module_states *states;
  struct sl_sweep *sweep;
  struct sl_tracker *tracker;
  struct sl_driver_segments *segments;
  struct sl_collectives *collectives;
  struct sl_device_balance *balance;
  struct sl_refusals *refusals;
  struct sl_retries *retries;

  struct sl_rank_restore restore;
  struct sl_rank_gap gap;
  struct sl_rank_period *closing; /* the one that the sweep sums up; NULL: none */
  struct sl_peak_entry *peaks;    /* of it */
  uint64_t settled_at;            /* phases that ended until here are written */
  bool clean_exit;
  bool figures_only; /* no allocation has an owner, and none is known by itself */
};

/* rank_cycle.c. Periods begin after the event at a position. */
int sl_rank_phase_opened(void *context, struct sl_phase *phase);
int sl_rank_phase_closed(void *context, struct sl_phase *phase);
int sl_rank_period_begin(struct sl_rank_builder *b, enum sl_period_kind kind, int64_t step, uint64_t after);
void sl_rank_watch(struct sl_rank_builder *b);       /* the current period's peaks count from here on */
int sl_rank_period_cut(struct sl_rank_builder *b);   /* by a gap; another one begins */
int sl_rank_period_piece(struct sl_rank_builder *b); /* decides a part of a long one, if it is long enough */
int sl_rank_life_end(struct sl_rank_builder *b);     /* the log has ended */

/* rank_rows.c: of a period that is closed, what ended at these positions or before. */
int sl_rank_allocations_write(struct sl_rank_builder *b, struct sl_rank_period *p, uint64_t until);
int sl_rank_phases_write(struct sl_rank_builder *b, struct sl_rank_period *p, uint64_t until);
int sl_rank_peaks_write(struct sl_rank_builder *b, struct sl_rank_period *p);
int sl_rank_owners_write(struct sl_rank_builder *b, struct sl_rank_period *p);
int sl_rank_owners_note(struct sl_rank_builder *b, struct sl_rank_period *p); /* keeps them until they are written */
int sl_rank_refusals_write(struct sl_rank_builder *b);
uint32_t sl_rank_sweep_parent(void *context, uint32_t module);
int sl_rank_sweep_peak(void *context, const struct sl_phase *phase, const struct sl_sample *sample,
                       const struct sl_own_bytes *own);
int sl_rank_sweep_snapshot(void *context, const struct sl_item *item, const struct sl_sample *sample);

/* rank_phase.c. find: false where it is not known, as of what an allocator's own history says. */
struct sl_phase *sl_rank_phase_of(const struct sl_rank_builder *b, const struct sl_event *event); /* NULL: outside */
bool sl_rank_phase_find(const struct sl_rank_builder *b, const struct sl_event *event, struct sl_phase **out);

/* rank_allocator.c: PyTorch's allocator, blocks from before recording, tags. */
uint64_t sl_rank_allocation_containing(void *context, uint64_t address);
uint64_t sl_rank_allocation_sized(void *context, const struct sl_phase *phase, uint64_t bytes, uint64_t factor);
int sl_rank_on_allocator(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_allocator_existing(struct sl_rank_builder *b, const struct sl_event *event);
void sl_rank_on_existing_site(struct sl_rank_builder *b, const struct sl_event_existing_site *e);
int sl_rank_on_allocator_restore(struct sl_rank_builder *b, const struct sl_event_allocator_restore *e);
bool sl_block_totals_are(const struct sl_block_totals *now, const struct sl_event_allocator_stats *stats);
void sl_rank_on_allocator_stats(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_tag(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_driver_allocation(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_driver_free(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_restore_finish(struct sl_rank_builder *b);

/*
 * An allocation, whose block is the one that its map handed out or restored last. NULL: no memory. And it becomes part
 * of the sums; and leaves them.
 */
struct sl_allocation *sl_rank_allocation_add(struct sl_rank_builder *b, const struct sl_event *event,
                                             const struct sl_allocation *made);
int sl_rank_allocation_begins(struct sl_rank_builder *b, struct sl_allocation *a);
int sl_rank_allocation_ends(struct sl_rank_builder *b, struct sl_allocation *a);

/* rank_uses.c: use and use_watch events; an allocation that was freed for good; the windows' rows. */
int sl_rank_on_use(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_use_watch(struct sl_rank_builder *b, const struct sl_event *event);
void sl_rank_uses_settle(struct sl_rank_builder *b, struct sl_allocation *a);
int sl_rank_uses_write(struct sl_rank_builder *b);

/* rank_meshes.c */
int sl_rank_meshes_write(struct sl_rank_builder *b);
int sl_rank_rehearsed_groups_write(struct sl_rank_builder *b);

/* rank_shards.c: a parameter, fsdp_unit or optimizer event. */
int sl_rank_on_shards(struct sl_rank_builder *b, const struct sl_event *event);

/* rank_gap.c: dropped_allocator, kept_block, kept_range and dropped events; others are ignored. */
int sl_rank_on_gap_event(struct sl_rank_builder *b, const struct sl_event *event);
void sl_rank_gap_free(struct sl_rank_gap *gap);

/* rank_device.c: the device as a whole, and refused requests. */
int sl_rank_on_device_sample(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_driver_failure(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_note_driver_allocation(struct sl_rank_builder *b, const struct sl_event *event); /* requests wait for it */
void sl_rank_note_driver_free(struct sl_rank_builder *b, const struct sl_event *event);
void sl_rank_on_refused_site(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_out_of_memory(struct sl_rank_builder *b, const struct sl_event *event, uint32_t device);
int sl_rank_on_gpu_module(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_balance_settle(struct sl_rank_builder *b); /* writes the samples of the device since the last time */

#endif
