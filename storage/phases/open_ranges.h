/*
 * Which ranges are open: those that were pushed, by thread and NVTX domain, and those that were started, by their id.
 *
 * A range stands for a phase, or for none. One whose phase ends before it does stands for none from then on.
 */
#ifndef SHARDLEDGER_OPEN_RANGES_H
#define SHARDLEDGER_OPEN_RANGES_H

#include "phase.h"
#include "storage/spare.h"

struct sl_open_ranges { /* zero: none */
  struct sl_range_thread *threads;
  struct sl_range_thread *latest; /* that a range was pushed on; NULL: gone */
  struct sl_range_domain *domains;
  struct sl_open_range *started;
  struct sl_spare spare; /* of ranges */
};

/* phase NULL: the range stands for none. 0 or -ENOMEM. */
int sl_open_ranges_push(struct sl_open_ranges *ranges, uint32_t thread, uint16_t domain, struct sl_phase *phase);
int sl_open_ranges_start(struct sl_open_ranges *ranges, uint64_t id, struct sl_phase *phase);

/*
 * The range that was pushed last, of this thread and domain (NVTX keeps one stack for each), or started last with this
 * id, is not open any more. *phase: the one that it stood for, or NULL. false: no such range is open.
 */
bool sl_open_ranges_pop(struct sl_open_ranges *ranges, uint32_t thread, uint16_t domain, struct sl_phase **phase);
bool sl_open_ranges_end(struct sl_open_ranges *ranges, uint64_t id, struct sl_phase **phase);

/* The phase of the range that was pushed last on this thread, of those that stand for one; NULL: none does. */
struct sl_phase *sl_open_ranges_top(const struct sl_open_ranges *ranges, uint32_t thread);

/*
 * The same of the only thread that has one: false where several do. Threads whose innermost one is `waiting` (NULL:
 * none) do not count. *phase NULL: none has.
 */
bool sl_open_ranges_only_top(const struct sl_open_ranges *ranges, const struct sl_phase *waiting,
                             struct sl_phase **phase);

/* The phase ends: its range, if one is open, stands for none any more. */
void sl_open_ranges_forget(struct sl_open_ranges *ranges, struct sl_phase *phase);

/* No range is open; their phases are as they were. */
void sl_open_ranges_clear(struct sl_open_ranges *ranges);

#endif
