/*
 * Points are joined as sets are (union-find): a value that is higher than many of them makes them one, at once and for
 * good.
 */
#include "maxima.h"

#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sl_maxima_point {
  size_t part_of; /* itself, unless another one has taken it in */
  size_t watches; /* open ones whose highest point this is */
  uint64_t value;
  void *sample; /* owned; NULL also where no watch needs it */
};

static size_t point_of(struct sl_maxima *maxima, size_t at) {
  struct sl_maxima_point *points = maxima->points;
  while (points[at].part_of != at) {
    points[at].part_of = points[points[at].part_of].part_of; /* the way is half as long next time */
    at = points[at].part_of;
  }
  return at;
}

/* ---- the heap ---- */

static uint64_t value_at(const struct sl_maxima *maxima, size_t place) {
  return maxima->points[maxima->heap[place]].value;
}

static void heap_swap(struct sl_maxima *maxima, size_t a, size_t b) {
  const size_t kept = maxima->heap[a];
  maxima->heap[a] = maxima->heap[b];
  maxima->heap[b] = kept;
}

static void heap_sink(struct sl_maxima *maxima, size_t place) {
  for (;;) {
    size_t lowest = place;
    for (size_t child = 2 * place + 1; child <= 2 * place + 2 && child < maxima->heap_count; child++)
      if (value_at(maxima, child) < value_at(maxima, lowest))
        lowest = child;
    if (lowest == place)
      return;
    heap_swap(maxima, place, lowest);
    place = lowest;
  }
}

static void heap_push(struct sl_maxima *maxima, size_t point) {
  size_t place = maxima->heap_count++;
  maxima->heap[place] = point;
  for (; place && value_at(maxima, place) < value_at(maxima, (place - 1) / 2); place = (place - 1) / 2)
    heap_swap(maxima, place, (place - 1) / 2);
}

static size_t heap_pop(struct sl_maxima *maxima) {
  const size_t point = maxima->heap[0];
  maxima->heap[0] = maxima->heap[--maxima->heap_count];
  heap_sink(maxima, 0);
  return point;
}

/* ---- watches ---- */

static int room_make(struct sl_maxima *maxima) {
  struct sl_maxima_point *points = sl_list_grow(maxima->points, maxima->count, sizeof *points);
  if (!points)
    return -ENOMEM;
  maxima->points = points;
  size_t *heap = sl_list_grow(maxima->heap, maxima->count, sizeof *heap);
  if (!heap)
    return -ENOMEM;
  maxima->heap = heap;
  return 0;
}

int64_t sl_maxima_open(struct sl_maxima *maxima, uint64_t value, const void *sample) {
  void *copy = maxima->sample_bytes ? malloc(maxima->sample_bytes) : NULL;
  if ((maxima->sample_bytes && !copy) || room_make(maxima) < 0) {
    free(copy);
    return -ENOMEM;
  }
  if (copy)
    memcpy(copy, sample, maxima->sample_bytes);
  const size_t point = maxima->count++;
  maxima->points[point] = (struct sl_maxima_point){.part_of = point, .watches = 1, .value = value, .sample = copy};
  heap_push(maxima, point);
  return (int64_t)point;
}

void sl_maxima_raise(struct sl_maxima *maxima, uint64_t value, const void *sample) {
  struct sl_maxima_point *points = maxima->points;
  size_t joined = SIZE_MAX;
  while (maxima->heap_count && value_at(maxima, 0) < value) {
    const size_t point = heap_pop(maxima);
    if (!points[point].watches)
      continue; /* nobody asks for it any more */
    if (joined == SIZE_MAX) {
      joined = point;
      continue;
    }
    /* The larger one takes in the smaller one, so that ways stay short. */
    const size_t part = points[point].watches > points[joined].watches ? joined : point;
    joined = part == joined ? point : joined;
    points[part].part_of = joined;
    points[joined].watches += points[part].watches;
    free(points[part].sample);
    points[part].sample = NULL;
  }
  if (joined == SIZE_MAX)
    return;
  points[joined].value = value;
  if (maxima->sample_bytes)
    memcpy(points[joined].sample, sample, maxima->sample_bytes);
  heap_push(maxima, joined);
}

struct sl_maximum sl_maxima_of(struct sl_maxima *maxima, int64_t watch) {
  const struct sl_maxima_point *point = &maxima->points[point_of(maxima, (size_t)watch)];
  return (struct sl_maximum){point->value, point->sample};
}

void sl_maxima_close(struct sl_maxima *maxima, int64_t watch) {
  struct sl_maxima_point *point = &maxima->points[point_of(maxima, (size_t)watch)];
  if (--point->watches)
    return;
  free(point->sample);
  point->sample = NULL;
}

void sl_maxima_clear(struct sl_maxima *maxima) {
  for (size_t i = 0; i < maxima->count; i++)
    free(maxima->points[i].sample);
  free(maxima->points);
  free(maxima->heap);
  *maxima = (struct sl_maxima){.sample_bytes = maxima->sample_bytes};
}
