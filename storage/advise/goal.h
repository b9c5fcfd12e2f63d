/*
 * What advice has to reach: a limit on what PyTorch's allocator may take from the driver. It is the budget that is
 * asked for, else what refused a dead run's request, else the device's memory.
 *
 * A process's own limit (set_per_process_memory_fraction) is in no record. A refused request tells that it lies from
 * what was reserved then to less than one segment more; the least is taken, and since a program may draw it late, it
 * holds from where no more than that was reserved any more. Had it held from the beginning, it was at least what was
 * ever reserved.
 */
#ifndef SHARDLEDGER_GOAL_H
#define SHARDLEDGER_GOAL_H

#include "storage/predict/tape/tape.h"

enum sl_limit { SL_LIMIT_none, SL_LIMIT_budget, SL_LIMIT_process, SL_LIMIT_device };

struct sl_goal {
  uint32_t rank;
  bool is_refused;   /* a request was refused, and the job has to get past it */
  bool is_allocator; /* it was asked of PyTorch's allocator, not of the driver by a library */
  bool is_deadly;    /* it ended the rank */
  bool has_steps;
  int64_t at_ns;                            /* of the request; -1: none */
  int64_t period;                           /* of the highest peak, where no request was refused; -1: not known */
  int64_t step;                             /* of the request or the peak; -1: outside of steps */
  uint64_t refused_bytes;                   /* as the allocator rounds them */
  uint64_t wanted_bytes;                    /* the segment for them */
  uint64_t allocated_bytes, reserved_bytes; /* then, or at the peak; 0: not known */
  uint64_t largest_free_bytes;
  int64_t free_bytes; /* of the device; -1: not known */
  enum sl_limit limit;
  uint64_t limit_bytes; /* what the allocator may take; 0: not known */
  uint64_t limit_event; /* from this event of the allocator on; 0: from the first */
  uint64_t limit_life; /* what it was at least, had it held as long as what was reserved allows; 0: no more than that */
  uint64_t life_event; /* since when it may have held */
  uint64_t limit_most; /* the most that it may be */
  uint64_t budget_bytes; /* as asked for; 0: none */
  uint64_t own_bytes;    /* of the process's own memory, what is not its allocator's; 0: no sample tells */
};

/*
 * Reads what a rank has to reach; at_ns: of its refused request, -1: none. 0 or a negative errno, with the sentence in
 * error: -ENODATA where nothing was refused and no peak is known.
 */
int sl_goal_read(struct sl_db *db, uint32_t rank, int64_t at_ns, struct sl_goal *out, struct sl_error *error);

/* The limit, which needs the tape. -EINVAL with a sentence where a budget leaves nothing for PyTorch. budget: 0: none.
 */
int sl_goal_limit(struct sl_goal *goal, const struct sl_tape *tape, uint64_t budget_bytes, struct sl_error *error);

/* How much more than there was the refused request alone took, at least. */
uint64_t sl_goal_missing(const struct sl_goal *goal);

#endif
