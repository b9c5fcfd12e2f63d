/* Lists of ranks as people write them: 8 9 10 2 is "2,8-10". */
#ifndef SHARDLEDGER_RANK_RANGES_H
#define SHARDLEDGER_RANK_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_rank_range {
  int64_t first, last; /* both are in it */
};

struct sl_rank_ranges { /* {0}: none. Free list when done with it */
  struct sl_rank_range *list;
  size_t count;
};

/* Adds the ranks from first to last, in any order and as often as one likes; none where last is lower. 0 or -ENOMEM. */
int sl_rank_ranges_add(struct sl_rank_ranges *ranges, int64_t first, int64_t last);

/*
 * The ranges, joined, as text: "0-8,10"; of more than `limit` the first and how many ranks more: "0,2,4,… (125 more)".
 * limit 0: all. Owned by the caller; NULL: no memory.
 */
char *sl_rank_ranges_text(struct sl_rank_ranges *ranges, size_t limit);

/* Whether a text such as "0-3,7", which has been checked, has this rank. NULL: it has all. */
bool sl_rank_ranges_has(const char *text, int64_t rank);

#endif
