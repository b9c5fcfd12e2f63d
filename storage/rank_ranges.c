/* Writes and reads lists of ranks: "2,8-10". */
#include "rank_ranges.h"

#include "grow.h"
#include "memory_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int sl_rank_ranges_add(struct sl_rank_ranges *ranges, int64_t first, int64_t last) {
  if (last < first)
    return 0;
  /* Ranks mostly come in order: then one range is enough for all of them. */
  if (ranges->count && ranges->list[ranges->count - 1].last == first - 1) {
    ranges->list[ranges->count - 1].last = last;
    return 0;
  }
  struct sl_rank_range *added = SL_LIST_ADD(ranges->list, ranges->count);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_rank_range){first, last};
  return 0;
}

static int by_first(const void *a, const void *b) {
  const struct sl_rank_range *x = a, *y = b;
  return x->first < y->first ? -1 : x->first > y->first;
}

/* Puts them in order and joins those that touch: list then has the fewest ranges. */
static void ranges_join(struct sl_rank_ranges *ranges) {
  size_t kept = 0;
  if (ranges->count == 0)
    return;
  qsort(ranges->list, ranges->count, sizeof *ranges->list, by_first);
  for (size_t i = 1; i < ranges->count; i++) {
    struct sl_rank_range *last = &ranges->list[kept], *next = &ranges->list[i];
    if (next->first <= last->last || next->first == last->last + 1)
      last->last = next->last > last->last ? next->last : last->last;
    else
      ranges->list[++kept] = *next;
  }
  ranges->count = kept + 1;
}

char *sl_rank_ranges_text(struct sl_rank_ranges *ranges, size_t limit) {
  struct sl_memory_file text;
  int64_t more = 0;
  FILE *stream = sl_memory_file_open(&text);
  if (!stream)
    return NULL;
  ranges_join(ranges);
  for (size_t i = 0; i < ranges->count; i++) {
    const struct sl_rank_range *range = &ranges->list[i];
    if (limit && i >= limit) {
      more += range->last - range->first + 1;
      continue;
    }
    fprintf(stream, "%s%" PRId64, i ? "," : "", range->first);
    if (range->last > range->first)
      fprintf(stream, "-%" PRId64, range->last);
  }
  if (more)
    fprintf(stream, ",… (%" PRId64 " more)", more);
  return sl_memory_file_close(&text, NULL);
}

bool sl_rank_ranges_has(const char *text, int64_t rank) {
  if (!text)
    return true;
  for (char *end; *text; text = *end ? end + 1 : end) {
    const long long first = strtoll(text, &end, 10);
    const long long last = *end == '-' ? strtoll(end + 1, &end, 10) : first;
    if (rank >= first && rank <= last)
      return true;
    if (*end && *end != ',')
      return false;
  }
  return false;
}
