/*
 * A rank's ledger in the making: the state that its parts share. Nobody outside of rank_*.c includes this.
 *
 *   rank_ledger.c       the loop over the log: what each event is for, and the facts about the rank
 *   rank_device.c       samples of the device, loaded code, and refused requests
 *   rank_allocations.c  allocator events, what was there before recording began, tags
 *   rank_gap.c          what goes on after a part of the log that was dropped
 *   rank_items.c        what happens in a period, in order
 *   rank_life.c         where periods begin and end, and what is decided then
 *   rank_rows.c         what is written of a period
 *   rank_pattern.c      what a period did, as a number that tells whether another one did the same
 *   rank_meshes.c       where the rank stands in its device meshes
 *   rank_repeats.c      which periods' rows are kept
 */
#ifndef SHARDLEDGER_RANK_BUILDER_H
#define SHARDLEDGER_RANK_BUILDER_H

#include "plugin/format/events.h"
#include "storage/allocator/block_map.h"
#include "storage/attribution/allocation.h"
#include "storage/attribution/attribution.h"
#include "storage/attribution/memory_owners.h"
#include "storage/attribution/module_states.h"
#include "storage/attribution/sweep.h"
#include "storage/collectives/collective_totals.h"
#include "storage/collectives/collectives.h"
#include "storage/device/device_balance.h"
#include "storage/device/driver_segments.h"
#include "storage/device/refusals.h"
#include "storage/device/retries.h"
#include "storage/hash_table.h"
#include "storage/log/log_reader.h"
#include "storage/tables/ledger_writer.h"

enum {
  MAX_DEVICES = SL_DEVICES_MAX,
  MAX_PLACES = 65536,
  PROGRESS_EVENTS = 1 << 16,
  CUDA_OUT_OF_MEMORY = 2, /* CUresult */
};

struct place { /* an allocator_place event */
  uint32_t device;
  uint64_t stream, pool_owner, pool_id;
  char *pool; /* its name in the ledger, once asked for; owned */
};

struct restored { /* an allocator_restore event */
  bool begun;
  uint32_t sequence; /* of the first allocator event that is not part of it */
  uint32_t missing;  /* blocks that did not come yet */
};

struct gap { /* what is there after it, until it is reached */
  struct sl_event_kept_block *blocks;
  size_t block_count, block_capacity;
  struct sl_event_kept_range *ranges;
  size_t range_count, range_capacity;
  struct {
    bool known;
    uint32_t until; /* sequence of the next allocator event */
  } devices[MAX_DEVICES];
};

struct reshard { /* FSDP gave up a unit's parameters in backward */
  uint64_t at;
  size_t item; /* that stands for its end */
};

struct positions { /* in the event sequence, increasing */
  uint64_t *at;
  size_t count, capacity;
};

struct peak_entry { /* highest point of a (module, phase kind) in the period, over its calls */
  uint64_t key;     /* module << 8 | kind; 0: of the period as a whole */
  struct sl_sample sample;
  struct sl_own_bytes own;
  UT_hash_handle hh;
};

struct sl_period_pattern {
  uint64_t low, high; /* 128 bits of hash */
  uint64_t allocator_events, range_events;
};

enum { SL_PERIOD_NAMES = 16 };

struct sl_period_name {
  const char *name;
  const struct sl_phase *within; /* that has a name and goes on; NULL: nothing */
  uint64_t ns, at;               /* its time in sum; position at which it ended last */
};

struct sl_rank_period {
  struct sl_period_row row;
  struct sl_rows rows, device_rows; /* as long as they wait */
  struct sl_rank_pattern *pattern;  /* NULL: every period is kept */
  uint64_t began_at, ended_at;      /* positions of the last event before it, and of its own last one */
  uint64_t decided_at;              /* until where it has been decided: of a long one in pieces */
  uint64_t peak_at;                 /* position of its highest point */
  uint64_t first_allocation;        /* id */
  uint64_t last_collective;         /* id */
  size_t first_item, end_item;      /* those that are not summed up yet */
  struct sl_memory_owner *owners;   /* at its highest point, when that is in an earlier piece; owned */
  size_t owner_count;
  struct sl_period_name names[SL_PERIOD_NAMES]; /* what ran in it, outside of steps */
  size_t name_count;
  bool kept;  /* whatever it did */
  bool waits; /* it repeats another one, and may yet be the last */
  bool left_out;
  uint64_t same_peak_phase; /* of the period that it repeats */
  uint32_t same_peak_module;
};

struct sl_rank_builder {
  struct sl_log *log;
  struct sl_ledger_writer *writer;
  struct sl_error *error;
  struct sl_phases *phases;
  struct sl_sweep *sweep;
  struct sl_tracker *tracker;
  struct sl_driver_segments *segments;
  struct sl_collectives *collectives;
  struct sl_device_balance *balance;
  struct sl_refusals *refusals;
  struct sl_retries *retries;
  struct sl_rank_repeats *repeats;

  struct sl_rank_period current; /* that goes on */
  struct sl_rank_period outside; /* before the step that goes on, has ended and waits to be decided with it */
  bool outside_waits;
  struct sl_rank_period last; /* the latest that was closed */
  struct {
    uint64_t began_at;
    bool left_out;
  } before_last;
  struct sl_rank_period *closing; /* the one that is being summed up; NULL: none */
  uint64_t next_period;
  uint64_t cycle_began_at, last_cycle_began_at; /* the ends of the last step and of the one before */
  uint64_t settled_at;                          /* phases that ended until here are written */
  bool has_steps;
  struct sl_phase whole; /* stands for each period as a whole where highest points are looked for */
  int r;                 /* first failure inside a callback */

  uint64_t at; /* position in the event sequence */
  uint64_t now_ns;
  uint64_t start_ns, end_ns; /* first and last event */
  bool clean_exit;

  struct sl_allocator_config config;
  struct sl_block_map *maps[MAX_DEVICES];
  uint32_t next_sequence[MAX_DEVICES];               /* of allocator events */
  uint64_t allocator_events[MAX_DEVICES];            /* how many the maps were told */
  struct sl_block_totals private_pools[MAX_DEVICES]; /* of CUDA graphs and MemPools, part of the maps' totals */
  struct sl_event_device devices[MAX_DEVICES];
  struct place *places;
  int stream_places;     /* so many of them are made here, for streams (drivers_pool) */
  uint32_t named_places; /* none from here on has a pool with a name */
  int device;            /* the rank's own: that of its first allocator event; -1 before */
  uint64_t replay_unknown;
  struct restored restored[MAX_DEVICES];
  bool restoring;    /* until the definitions end */
  bool drivers_pool; /* PyTorch keeps no cache of its own, so the driver's calls are the tensors': cudaMallocAsync, */
  bool uncached;     /* or PYTORCH_NO_CUDA_MEMORY_CACHING */
  uint64_t restored_allocations;
  struct gap gap;
  struct { /* the one that is being put together */
    uint32_t device, place;
    uint64_t address, bytes, stream, at_ns;
  } restored_segment;

  struct sl_allocation **allocations; /* alive, or made in this step */
  size_t allocation_count, allocation_capacity;
  size_t allocations_made; /* structs that are there; those from allocation_count on are free to be used again */
  uint64_t next_allocation;

  struct sl_item *items;
  size_t item_count, item_capacity;
  struct reshard *reshards; /* of these items, in order */
  size_t reshard_count, reshard_capacity;
  struct positions optimizer_starts, backward_starts;
  bool companion; /* is there, and says what modules, steps and optimizers do */
  bool gradients_tagged;
  struct sl_workspaces workspaces;
  struct sl_module_states *states;

  char *user_categories[SL_CATEGORY_limit];
  int category_count;

  uint64_t device_used_bytes; /* of the rank's device, as sampled last; 0: not yet */
  struct peak_entry *peaks;   /* of the period that is being summed up */
};

/* Functions that return int give 0 or a negative errno, with the reason in the builder's error. */

/* rank_items.c */
struct sl_item *sl_rank_item_add(struct sl_rank_builder *b, enum sl_item_type type);
void sl_rank_items_restart(struct sl_rank_builder *b);
void *sl_rank_list_grow(struct sl_rank_builder *b, void *list, size_t count, size_t *capacity, size_t size);
void sl_rank_phase_closed(void *context, struct sl_phase *phase);
void sl_rank_phase_opened(void *context, struct sl_phase *phase);
size_t sl_rank_state_item_add(void *context, const struct sl_item *state);
void sl_rank_state_item_withdraw(void *context, size_t index);
void sl_rank_state_item_fail(void *context);
void sl_rank_watch(struct sl_rank_builder *b, struct sl_phase *phase);

/* rank_life.c. Periods begin after the event at a position. */
void sl_rank_period_begin(struct sl_rank_builder *b, enum sl_period_kind kind, int64_t step, uint64_t after);
void sl_rank_period_watch(struct sl_rank_builder *b);
void sl_rank_period_names(struct sl_rank_builder *b, const struct sl_phase *phase);
int sl_rank_step_begins(struct sl_rank_builder *b, const struct sl_phase *step);
int sl_rank_step_ends(struct sl_rank_builder *b, const struct sl_phase *step);
int sl_rank_period_cut(struct sl_rank_builder *b);   /* by a gap; another one begins */
int sl_rank_period_piece(struct sl_rank_builder *b); /* decides a part of a long one, if it is long enough */
int sl_rank_life_end(struct sl_rank_builder *b);     /* the log has ended */
/* What is known of the step so far, for decisions. cut_off: it has not ended. */
struct sl_step_facts sl_rank_step_facts(struct sl_rank_builder *b, bool cut_off);
void sl_rank_totals_max(struct sl_block_totals *peak, const struct sl_block_totals *now);
struct sl_block_totals sl_rank_totals_now(const struct sl_rank_builder *b);

/* rank_rows.c: of the period that is being closed, what ended at these positions or before. */
const char *sl_rank_category_name(const struct sl_rank_builder *b, int category);
int sl_rank_allocations_settle(struct sl_rank_builder *b, uint64_t until);
int sl_rank_phases_settle(struct sl_rank_builder *b, uint64_t until);
int sl_rank_peaks_write(struct sl_rank_builder *b);
int sl_rank_owners_write(struct sl_rank_builder *b);
int sl_rank_owners_note(struct sl_rank_builder *b); /* keeps them until they are written */
int sl_rank_refusals_settle(struct sl_rank_builder *b);
uint32_t sl_rank_sweep_parent(void *context, uint32_t module);
int sl_rank_sweep_peak(void *context, const struct sl_phase *phase, const struct sl_sample *sample,
                       const struct sl_own_bytes *own);
int sl_rank_sweep_snapshot(void *context, const struct sl_item *item, const struct sl_sample *sample);

/* rank_allocations.c: PyTorch's allocator, blocks from before recording, tags. */
struct sl_phase *sl_rank_phase_of(struct sl_rank_builder *b, const struct sl_event *event); /* NULL: outside, unknown */
uint64_t sl_rank_allocation_containing(void *context, uint64_t address);
uint64_t sl_rank_allocation_sized(void *context, const struct sl_phase *phase, uint64_t bytes, uint64_t factor);
int sl_rank_on_allocator(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_allocator_existing(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_allocator_restore(struct sl_rank_builder *b, const struct sl_event_allocator_restore *e);
void sl_rank_on_allocator_stats(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_tag(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_driver_allocation(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_driver_free(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_restore_finish(struct sl_rank_builder *b);

/*
 * An allocation, whose block is the one that its map handed out or restored last. NULL: b->r says why. And it becomes
 * part of the sums.
 */
struct sl_allocation *sl_rank_allocation_add(struct sl_rank_builder *b, const struct sl_event *event,
                                             const struct sl_allocation *made);
int sl_rank_allocation_begins(struct sl_rank_builder *b, struct sl_allocation *a);
void sl_rank_private_pool_restore(struct sl_rank_builder *b, uint32_t device, uint32_t place, uint64_t bytes,
                                  int state);

/* The pool of a place as the ledger calls it, NULL: the shared one. Owned by the place. */
int sl_rank_pool_name(struct sl_rank_builder *b, uint32_t place, const char **out);

/* rank_meshes.c */
int sl_rank_meshes_write(struct sl_rank_builder *b);

/* rank_gap.c: dropped_allocator, kept_block, kept_range and dropped events; others are ignored. */
int sl_rank_on_gap_event(struct sl_rank_builder *b, const struct sl_event *event);
void sl_rank_gap_free(struct gap *gap);

/* rank_pattern.c: what goes into the pattern of the current period, or of that which is being closed. */
struct sl_rank_pattern *sl_rank_pattern_new(void); /* NULL: no memory */
struct sl_rank_pattern *sl_rank_pattern_free(struct sl_rank_pattern *pattern);
void sl_rank_pattern_allocator(struct sl_rank_builder *b, int action, uint32_t place, uint64_t bytes,
                               uint64_t block_bytes, const struct sl_allocation *ended, const struct sl_event *event);
void sl_rank_pattern_closed(struct sl_rank_builder *b, const struct sl_phase *phase);
void sl_rank_pattern_event(struct sl_rank_builder *b, const struct sl_event *event);
void sl_rank_pattern_opened(struct sl_rank_builder *b, struct sl_phase *phase);
void sl_rank_pattern_owner(struct sl_rank_builder *b, const struct sl_memory_owner *owner);
void sl_rank_pattern_peak(struct sl_rank_builder *b, uint64_t key, const struct sl_sample *sample,
                          const struct sl_own_bytes *own);
void sl_rank_pattern_snapshot(struct sl_rank_builder *b, const struct sl_item *item, int category, uint64_t bytes,
                              uint64_t tracker_bytes);
void sl_rank_pattern_decisions(struct sl_rank_builder *b, const struct sl_rank_period *p); /* of a piece */
/* The whole of it; the pattern is empty afterwards, for another period. */
void sl_rank_pattern_take(struct sl_rank_builder *b, const struct sl_rank_period *p, struct sl_period_pattern *out);

/* rank_repeats.c */
struct sl_rank_repeats *sl_rank_repeats_new(void); /* NULL: no memory */
struct sl_rank_repeats *sl_rank_repeats_free(struct sl_rank_repeats *repeats);
void sl_rank_repeats_keep_all(struct sl_rank_repeats *repeats);
bool sl_rank_keeps_next(const struct sl_rank_repeats *repeats); /* the period that begins now, whatever it does */
int sl_rank_on_collective(void *context, const struct sl_collective_row *row, struct sl_error *error);
void sl_rank_hold(struct sl_rank_builder *b); /* the rows that follow are of the closing period */
/* … of something that began at this position; false: they are kept in any case, since it comes from a kept period. */
bool sl_rank_hold_since(struct sl_rank_builder *b, uint64_t begun_at);
bool sl_rank_hold_device(struct sl_rank_builder *b, uint64_t at_ns); /* … of the device then; false: leave them out */
void sl_rank_release(struct sl_rank_builder *b);                     /* … are of no period */
int sl_rank_repeat_decide(struct sl_rank_builder *b, struct sl_rank_period *p); /* settles the one before it */
int sl_rank_repeat_end(struct sl_rank_builder *b, struct sl_rank_period *p);    /* all its rows are made */
int sl_rank_repeats_flush(struct sl_rank_builder *b);  /* what was held back until here is kept */
int sl_rank_repeats_last(struct sl_rank_builder *b);   /* no step will follow: everything from here on is kept */
int sl_rank_repeats_finish(struct sl_rank_builder *b); /* the log has ended, and all collectives are known */

/* rank_device.c: the device as a whole, and refused requests. */
int sl_rank_on_device_sample(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_driver_failure(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_note_driver_allocation(struct sl_rank_builder *b, const struct sl_event *event); /* requests wait for it */
void sl_rank_note_driver_free(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_on_out_of_memory(struct sl_rank_builder *b, const struct sl_event *event, uint32_t device);
int sl_rank_on_gpu_module(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_balance_settle(struct sl_rank_builder *b); /* writes the samples of the device since the last time */

/* rank_ledger.c: from event to event. */
struct sl_rank_builder *sl_rank_builder_new(struct sl_log *log, struct sl_ledger_writer *writer,
                                            const struct sl_user_rules *rules,
                                            struct sl_error *error);     /* NULL: no memory */
struct sl_rank_builder *sl_rank_builder_free(struct sl_rank_builder *b); /* returns NULL */
void sl_rank_builder_keep_all(struct sl_rank_builder *b); /* also steps that repeat another; before the first event */
int sl_rank_builder_event(struct sl_rank_builder *b, const struct sl_event *event);
int sl_rank_builder_finish(struct sl_rank_builder *b); /* the log has ended */

#endif
