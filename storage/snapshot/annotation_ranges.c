/* Makes ranges of a snapshot's annotations, which name no thread. */
#include "annotation_ranges.h"

#include <errno.h>
#include <stdlib.h>

#define OPEN SIZE_MAX

enum {
  THREADS_MAX = 64, /* more are not told apart: the rest is left out */
  OPEN_MAX = 4096,  /* so many open ranges an end is looked for in */
};

struct range {
  size_t end;    /* annotation that ends it; OPEN: none does */
  size_t around; /* the range that was open before it, by its start; OPEN: none */
};

/* For each start its end, and the other way around in ends. */
static void pair(const struct sl_snapshot *snapshot, struct range *ranges, size_t *starts) {
  size_t innermost = OPEN;
  for (size_t i = 0; i < snapshot->annotation_count; i++) {
    ranges[i] = (struct range){OPEN, OPEN};
    starts[i] = OPEN;
    if (snapshot->annotations[i].starts) {
      ranges[i].around = innermost;
      innermost = i;
      continue;
    }
    /* Open ranges are a list from the latest on; the one that ends leaves it. */
    size_t *link = &innermost, seen = 0;
    while (*link != OPEN && seen++ < OPEN_MAX && snapshot->annotations[*link].name != snapshot->annotations[i].name)
      link = &ranges[*link].around;
    if (*link == OPEN || snapshot->annotations[*link].name != snapshot->annotations[i].name)
      continue;
    starts[i] = *link;
    ranges[*link].end = i;
    *link = ranges[*link].around;
  }
}

int sl_annotation_ranges_find(const struct sl_snapshot *snapshot, uint32_t **out, uint32_t *threads) {
  const size_t count = snapshot->annotation_count;
  size_t innermost[THREADS_MAX]; /* by thread, the open range */
  *out = NULL;
  *threads = 0;
  if (!count)
    return 0;
  uint32_t *list = calloc(count, sizeof *list);
  struct range *ranges = calloc(count, sizeof *ranges);
  size_t *starts = calloc(count, sizeof *starts);
  if (!list || !ranges || !starts) {
    free(list);
    free(ranges);
    free(starts);
    return -ENOMEM;
  }
  pair(snapshot, ranges, starts);
  for (size_t i = 0; i < count; i++) {
    if (starts[i] != OPEN) {
      const uint32_t thread = list[i] = list[starts[i]];
      if (thread)
        innermost[thread - 1] = ranges[starts[i]].around;
      continue;
    }
    if (!snapshot->annotations[i].starts)
      continue;
    /* On the first thread whose open range does not end before it. */
    uint32_t thread = 0;
    while (thread < *threads && innermost[thread] != OPEN && ranges[innermost[thread]].end < ranges[i].end)
      thread++;
    if (thread == THREADS_MAX)
      continue;
    if (thread == *threads)
      innermost[(*threads)++] = OPEN;
    ranges[i].around = innermost[thread];
    innermost[thread] = i;
    list[i] = thread + 1;
  }
  free(ranges);
  free(starts);
  *out = list;
  return 0;
}
