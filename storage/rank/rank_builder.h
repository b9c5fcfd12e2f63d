/*
 * A rank's ledger in the making: the state that its parts share. Nobody outside of rank_*.c includes this.
 *
 *   rank_ledger.c       the loop over the log: what each event is for, and the facts about the rank
 *   rank_device.c       samples of the device, loaded code, and refused requests
 *   rank_allocations.c  allocator events, what was there before recording began, tags
 *   rank_gap.c          what goes on after a part of the log that was dropped
 *   rank_steps.c        what is decided, summed up and written when a step ends
 *   rank_pattern.c      what a step did, as a number that tells whether another one did the same
 *   rank_periods.c      which steps' rows are kept
 *   rank_live.c         what can be told while the log still grows
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

struct peak_entry { /* highest point of a (module, phase kind) in the step, over its calls */
  uint64_t key;     /* module << 8 | kind */
  struct sl_sample sample;
  struct sl_own_bytes own;
  UT_hash_handle hh;
};

struct sl_step_pattern {
  uint64_t low, high; /* 128 bits of hash */
  uint64_t allocator_events, range_events;
};

struct sl_rank_period { /* a step and what came before it since the step before; its rows, as long as they wait */
  struct sl_rows rows, device_rows;
  uint64_t began_at;         /* position of the last event before it */
  uint64_t first_allocation; /* id */
  struct sl_step_row step;   /* once it has ended */
  bool waits;                /* it repeats another one, and may yet be the last */
  bool left_out;
  uint64_t same_peak_phase; /* of the step that it repeats */
  uint32_t same_peak_module;
};

struct sl_rank_builder {
  struct sl_log *log;
  struct sl_ledger_writer *writer;
  struct sl_error *error;
  struct sl_phases *phases;
  struct sl_sweep *sweep;
  struct sl_driver_segments *segments;
  struct sl_collectives *collectives;
  struct sl_device_balance *balance;
  struct sl_refusals *refusals;
  struct sl_retries *retries;
  struct sl_rank_pattern *pattern; /* NULL: every step is kept */
  struct sl_rank_periods *periods;
  struct sl_rank_period current, last;
  int r; /* first failure inside a callback */

  uint64_t at; /* position in the event sequence */
  uint64_t now_ns;
  uint64_t start_ns, end_ns; /* first and last event */
  bool clean_exit;

  struct sl_allocator_config config;
  struct sl_block_map *maps[MAX_DEVICES];
  uint32_t next_sequence[MAX_DEVICES];               /* of allocator events */
  struct sl_block_totals private_pools[MAX_DEVICES]; /* of CUDA graphs and MemPools, part of the maps' totals */
  struct sl_event_device devices[MAX_DEVICES];
  struct place *places;
  int stream_places; /* so many of them are made here, for streams (drivers_pool) */
  int device;        /* the rank's own: that of its first allocator event; -1 before */
  uint64_t replay_unknown;
  struct restored restored[MAX_DEVICES];
  bool restoring;    /* until the definitions end */
  bool drivers_pool; /* PyTorch keeps no cache of its own, so the driver's calls are the tensors': cudaMallocAsync, */
  bool uncached;     /* or PYTORCH_NO_CUDA_MEMORY_CACHING */
  uint64_t restored_allocations;
  struct gap gap;
  bool jumps; /* over a gap: what is summed up is not a step, but more will follow */
  struct {    /* the one that is being put together */
    uint32_t device;
    uint64_t address, bytes, stream, at_ns;
  } restored_segment;

  struct sl_allocation **allocations; /* alive, or made in this step */
  size_t allocation_count, allocation_capacity;
  uint64_t next_allocation;

  struct sl_item *items;
  size_t item_count, item_capacity;
  struct reshard *reshards; /* of these items, in order */
  size_t reshard_count, reshard_capacity;
  struct positions optimizer_starts, backward_starts;
  bool gradients_tagged;
  struct sl_workspaces workspaces;
  struct sl_module_states *states;

  char *user_categories[SL_CATEGORY_limit];
  int category_count;

  /* the step in progress */
  struct sl_step_row step;
  uint64_t peak_at;
  uint64_t device_used_bytes; /* of the rank's device, as sampled last; 0: not yet */
  struct peak_entry *peaks;
};

/*
 * rank_steps.c: where steps begin and end, what is decided then, what is summed and written. Functions that return int
 * give 0 or a negative errno, with the reason in the builder's error.
 */
const char *sl_rank_category_name(const struct sl_rank_builder *b, int category);
/* What is known of the step so far, for decisions. cut_off: it has not ended. */
struct sl_step_facts sl_rank_step_facts(struct sl_rank_builder *b, int64_t step, bool cut_off);
int sl_rank_allocations_settle(struct sl_rank_builder *b, bool all);
struct sl_item *sl_rank_item_add(struct sl_rank_builder *b, enum sl_item_type type);
void *sl_rank_list_grow(struct sl_rank_builder *b, void *list, size_t count, size_t *capacity, size_t size);
void sl_rank_phase_closed(void *context, struct sl_phase *phase);
void sl_rank_phase_opened(void *context, struct sl_phase *phase);
int sl_rank_phases_settle(struct sl_rank_builder *b, bool all);
size_t sl_rank_state_item_add(void *context, const struct sl_item *state);
void sl_rank_state_item_withdraw(void *context, size_t index);
void sl_rank_state_item_fail(void *context);
int sl_rank_step_finish(struct sl_rank_builder *b, const struct sl_phase *step);
void sl_rank_step_watch(struct sl_rank_builder *b);
uint32_t sl_rank_sweep_parent(void *context, uint32_t module);
int sl_rank_sweep_peak(void *context, const struct sl_phase *phase, const struct sl_sample *sample,
                       const struct sl_own_bytes *own);
int sl_rank_sweep_snapshot(void *context, const struct sl_item *item, const struct sl_sample *sample);
void sl_rank_totals_max(struct sl_block_totals *peak, const struct sl_block_totals *now);
struct sl_block_totals sl_rank_totals_now(const struct sl_rank_builder *b);

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

/* rank_gap.c: dropped_allocator, kept_block, kept_range and dropped events; others are ignored. */
int sl_rank_on_gap_event(struct sl_rank_builder *b, const struct sl_event *event);
void sl_rank_gap_free(struct gap *gap);

/* rank_pattern.c: what goes into the pattern of the step in progress. Nothing is done where every step is kept. */
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
void sl_rank_pattern_take(struct sl_rank_builder *b, struct sl_step_pattern *out); /* and begins the next one */

/* rank_periods.c */
struct sl_rank_periods *sl_rank_periods_new(void); /* NULL: no memory */
struct sl_rank_periods *sl_rank_periods_free(struct sl_rank_periods *periods);
void sl_rank_periods_keep_all(struct sl_rank_periods *periods);
int sl_rank_on_collective(void *context, const struct sl_collective_row *row, struct sl_error *error);
void sl_rank_hold(struct sl_rank_builder *b); /* the rows that follow are of the step in progress */
/* … of something that began at this position; false: they are kept in any case, since it comes from a kept step. */
bool sl_rank_hold_since(struct sl_rank_builder *b, uint64_t begun_at);
bool sl_rank_hold_device(struct sl_rank_builder *b, uint64_t at_ns); /* … of the device then; false: leave them out */
void sl_rank_release(struct sl_rank_builder *b);                     /* … are of no step */
int sl_rank_period_decide(struct sl_rank_builder *b); /* the step in progress is summed up; settles the one before it */
int sl_rank_period_end(struct sl_rank_builder *b);    /* and all its rows are made */
int sl_rank_periods_flush(struct sl_rank_builder *b); /* what was held back until here is kept */
int sl_rank_periods_last(struct sl_rank_builder *b);  /* no step will follow: everything from here on is kept */
int sl_rank_periods_finish(struct sl_rank_builder *b); /* the log has ended, and all collectives are known */

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
