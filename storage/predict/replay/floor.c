/* Computes how much reserved memory an ideal placement would need: a floor and a ceiling. */
#include "floor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ACTIVE = 2, RESERVED = 3 }; /* of SL_QUANTITIES */

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

int sl_floor_find(const struct sl_tape *tape, struct sl_floor *out) {
  static const char *const plans[] = {"expandable_segments:True,large_segment_size_mb:2", "expandable_segments:True"};
  *out = (struct sl_floor){.plan_bytes = UINT64_MAX};
  for (size_t i = 0; i < tape->period_count; i++)
    if (i == 0 || tape->periods[i].peak.reserved_bytes > out->plan_bytes)
      out->plan_bytes = tape->periods[i].peak.reserved_bytes; /* as it was */
  if (tape->restored)
    return -ENOTSUP; /* how large blocks had to be is not known of what was there before */
  uint8_t *sweeps = malloc(tape->segment_count + 1);
  if (!sweeps)
    return -ENOMEM;
  memset(sweeps, SL_SWEEP_empty_cache, tape->segment_count + 1);
  int r = 0;
  for (size_t i = 0; i < sizeof plans / sizeof plans[0] && r == 0; i++) {
    const struct sl_replay_options options = {.config = plans[i], .addresses = SL_ADDRESSES_rising, .sweeps = sweeps};
    struct sl_replay replay;
    r = sl_replay_run(tape, &options, &replay);
    if (r < 0)
      break;
    /* Blocks are rounded to 512 bytes and no more here, so what is active is what has to be somewhere. */
    out->least_bytes = replay.highest[ACTIVE].bytes;
    out->plan_bytes = least(out->plan_bytes, replay.highest[RESERVED].bytes);
    r = replay.unmatched ? -ENOTSUP : 0;
    sl_replay_free(&replay);
  }
  free(sweeps);
  return r;
}
