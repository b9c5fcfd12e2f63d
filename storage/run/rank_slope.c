/* Compares how ranks grow from step to step. */
#include "rank_slope.h"

#include <errno.h>
#include <stdlib.h>

#define LEAST_RISES 4

/* floor[i]: the least of sign times difference from i on. */
static void floor_of(const int64_t *difference, size_t count, int sign, int64_t *floor) {
  int64_t least = INT64_MAX;
  for (size_t i = count; i-- > 0;) {
    const int64_t value = sign * difference[i];
    least = value < least ? value : least;
    floor[i] = least;
  }
}

static bool rises(const int64_t *steps, const int64_t *floor, size_t count, int64_t noise, struct sl_slope *out) {
  size_t first = count, last = 0;
  *out = (struct sl_slope){0};
  for (size_t i = 0; i + 1 < count; i++)
    if (floor[i + 1] > floor[i]) {
      first = first == count ? i : first;
      last = i + 1;
      out->rises++;
    }
  if (out->rises < LEAST_RISES)
    return false;
  const int64_t all = floor[count - 1] - floor[first], early = floor[first + (count - first) / 2] - floor[first];
  const int64_t span = steps[count - 1] - steps[first];
  if (last < count - (count - first + 3) / 4 || early < all / 4 || all - early < all / 4 || all <= 8 * noise)
    return false;
  out->bytes = all;
  out->bytes_per_step = all / span;
  out->since_step = steps[first + 1];
  /* The first step there is may have added as much as the others. */
  if (first == 0 && floor[0] >= out->bytes_per_step / 2 && floor[0] <= 2 * out->bytes_per_step) {
    out->since_step = steps[0];
    out->bytes += floor[0];
  }
  return out->bytes_per_step > SL_SLOPE_LEAST;
}

int sl_slope_find(const int64_t *steps, const int64_t *difference, size_t count, int64_t noise, struct sl_slope *out) {
  if (count < LEAST_RISES)
    return 0;
  int64_t *floor = reallocarray(NULL, count, sizeof *floor);
  if (!floor)
    return -ENOMEM;
  floor_of(difference, count, 1, floor);
  bool found = rises(steps, floor, count, noise, out);
  if (!found) {
    floor_of(difference, count, -1, floor);
    found = rises(steps, floor, count, noise, out);
    out->bytes = -out->bytes;
    out->bytes_per_step = -out->bytes_per_step;
  }
  free(floor);
  return found;
}
