/* The driver's memory that an allocator holds, as ranges of addresses: what is looked at backwards, entry by entry. */
#ifndef SHARDLEDGER_SEGMENT_RANGES_H
#define SHARDLEDGER_SEGMENT_RANGES_H

#include "snapshot.h"

struct sl_segment_range {
  uint64_t from, until; /* until is the first address behind it */
  uint64_t stream, pool_owner, pool_id;
  bool joins; /* with what lies beside it: of an expandable segment */
};

/* Zero-initialise; free list. */
struct sl_segment_ranges {
  struct sl_segment_range *list; /* by address, without overlaps */
  size_t count, capacity;
};

/* One more; one that overlaps another is left out. 0 or -ENOMEM. */
int sl_segment_ranges_add(struct sl_segment_ranges *ranges, const struct sl_segment_range *range);

/* What lies there is no longer in them; where that is not all in one range, nothing is changed. 0 or -ENOMEM. */
int sl_segment_ranges_cut(struct sl_segment_ranges *ranges, uint64_t from, uint64_t until);

#endif
