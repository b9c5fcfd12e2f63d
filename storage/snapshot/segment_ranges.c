/* Keeps the address ranges of an allocator's segments, also backwards in time. */
#include "segment_ranges.h"

#include "storage/grow.h"

#include <string.h>

/* The first range that ends behind the address. */
static size_t position(const struct sl_segment_ranges *ranges, uint64_t address) {
  size_t low = 0, high = ranges->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (ranges->list[middle].until > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static int insert(struct sl_segment_ranges *ranges, size_t at, const struct sl_segment_range *range) {
  struct sl_segment_range *last = SL_LIST_ADD_ROOM(ranges->list, ranges->count, &ranges->capacity), *place;
  if (!last)
    return -ENOMEM;
  place = ranges->list + at;
  memmove(place + 1, place, (size_t)(last - place) * sizeof *place);
  *place = *range;
  return 0;
}

static void drop(struct sl_segment_ranges *ranges, size_t at) {
  memmove(ranges->list + at, ranges->list + at + 1, (--ranges->count - at) * sizeof *ranges->list);
}

static bool is_one_segment(const struct sl_segment_range *left, const struct sl_segment_range *right) {
  return left->joins && right->joins && left->until == right->from && left->stream == right->stream &&
         left->pool_owner == right->pool_owner && left->pool_id == right->pool_id;
}

int sl_segment_ranges_add(struct sl_segment_ranges *ranges, const struct sl_segment_range *range) {
  const size_t at = position(ranges, range->from);
  if (range->until <= range->from || (at < ranges->count && ranges->list[at].from < range->until))
    return 0;
  int r = insert(ranges, at, range);
  if (r < 0)
    return r;
  struct sl_segment_range *list = ranges->list;
  if (at + 1 < ranges->count && is_one_segment(&list[at], &list[at + 1])) {
    list[at].until = list[at + 1].until;
    drop(ranges, at + 1);
  }
  if (at > 0 && is_one_segment(&list[at - 1], &list[at])) {
    list[at - 1].until = list[at].until;
    drop(ranges, at);
  }
  return 0;
}

int sl_segment_ranges_cut(struct sl_segment_ranges *ranges, uint64_t from, uint64_t until) {
  const size_t at = position(ranges, from);
  if (until <= from || at == ranges->count || ranges->list[at].from > from || ranges->list[at].until < until)
    return 0;
  struct sl_segment_range behind = ranges->list[at];
  behind.from = until;
  const bool is_front_left = ranges->list[at].from < from;
  ranges->list[at].until = from;
  int r = behind.from < behind.until ? insert(ranges, at + 1, &behind) : 0;
  if (!is_front_left)
    drop(ranges, at);
  return r;
}
