/*
 * What a period did, as one 128-bit number: two with the same number have the same rows but for times and
 * addresses.
 *
 * What goes in, as words: every allocator event of the rank in the allocator's order with its bytes, place and phase,
 * and which allocation a free ends; every range and mark, each thread's by themselves, since threads race each other
 * harmlessly; NCCL's calls; then what was decided: category, rule and module of each allocation; then the sums
 * themselves: snapshots, peaks, and who held the peak. What stays out: times, addresses, thread ids, correlation ids,
 * and the number that ends a range's name (ProfilerStep#17).
 *
 * A pattern may be NULL everywhere: then nothing is kept.
 */
#ifndef SHARDLEDGER_RANK_PATTERN_H
#define SHARDLEDGER_RANK_PATTERN_H

#include "storage/attribution/memory_owners.h"
#include "storage/attribution/sweep.h"
#include "storage/log/log_reader.h"

struct sl_rank_pattern;
struct sl_rank_period;
struct sl_rank_allocations;

struct sl_period_pattern {
  uint64_t low, high; /* 128 bits of hash */
  uint64_t allocator_events, range_events;
};

struct sl_rank_pattern *sl_rank_pattern_new(void); /* NULL: no memory */
struct sl_rank_pattern *sl_rank_pattern_free(struct sl_rank_pattern *pattern);

struct sl_pattern_allocation { /* what the allocator did */
  int action;
  uint32_t place;
  uint64_t bytes, block_bytes;
  const struct sl_allocation *ended; /* NULL: none */
  const struct sl_phase *phase;      /* in which it did so; NULL: none */
  uint64_t recent_since;             /* what was made behind this position is known by its number */
  uint64_t first_allocation;         /* id, of the period */
};
void sl_rank_pattern_allocator(struct sl_rank_pattern *pattern, const struct sl_pattern_allocation *what);

/* Numbers the phase among those of its thread. */
void sl_rank_pattern_opened(struct sl_rank_pattern *pattern, struct sl_phase *phase);
void sl_rank_pattern_closed(struct sl_rank_pattern *pattern, const struct sl_phase *phase);

/* Ranges that are no phases, marks, and NCCL's calls; others are ignored. */
void sl_rank_pattern_event(struct sl_rank_pattern *pattern, const struct sl_event *event, const struct sl_log *log,
                           const struct sl_phases *phases);

void sl_rank_pattern_owner(struct sl_rank_pattern *pattern, const struct sl_memory_owner *owner);
void sl_rank_pattern_peak(struct sl_rank_pattern *pattern, uint64_t key, const struct sl_sample *sample,
                          const struct sl_own_bytes *own);
void sl_rank_pattern_snapshot(struct sl_rank_pattern *pattern, const struct sl_item *item, int category, uint64_t bytes,
                              uint64_t tracker_bytes);

/* What was decided of the period's allocations since its decided_at: of a piece. */
void sl_rank_pattern_decisions(const struct sl_rank_period *period, const struct sl_rank_allocations *all);

/* The whole of it; the pattern is empty afterwards, for another period. 0, or -ENOMEM: it had not all of it. */
int sl_rank_pattern_take(const struct sl_rank_period *period, const struct sl_rank_allocations *all,
                         struct sl_period_pattern *out);

#endif
