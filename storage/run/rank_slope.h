/*
 * Whether one rank's memory runs away from another's: a leak is a slope, however small, and no tolerance swallows it.
 */
#ifndef SHARDLEDGER_RANK_SLOPE_H
#define SHARDLEDGER_RANK_SLOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_SLOPE_LEAST 4096 /* bytes a step: less is a kept loss or two, as `survivors` says */

struct sl_slope {
  int64_t bytes;          /* in all; negative: the other one runs away */
  int64_t bytes_per_step; /* between the steps' numbers */
  int64_t since_step;     /* the first one that added to it */
  size_t rises;           /* how many did */
};

/*
 * difference[i] is what the rank has more than the other one at the end of step steps[i] (upwards). Its floor is the
 * least from there on: what comes and goes does not lift it, and one jump lifts it once. It is a slope where the floor
 * rises at four steps or more, in both halves of the time and in its last quarter, by more than eight times the noise
 * (that of figures which differ by chance) and by more than SL_SLOPE_LEAST a step. 1: found, 0: not,
 * or -ENOMEM.
 */
int sl_slope_find(const int64_t *steps, const int64_t *difference, size_t count, int64_t noise, struct sl_slope *out);

#endif
