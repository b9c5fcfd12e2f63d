/*
 * By how much figures of ranks that are alike may differ: the highest of
 *
 * - 1 MiB, half of the smallest segment that PyTorch takes from the driver: less does not change what a device holds
 * - 1 % of the other's peak: about what padding and shapes that depend on the data differ by
 * - 8 times this job's measured noise (rank_likeness.h): where shapes depend on the data more than that
 */
#ifndef SHARDLEDGER_RANK_TOLERANCE_H
#define SHARDLEDGER_RANK_TOLERANCE_H

#include <stdint.h>

static inline int64_t sl_tolerance(int64_t peak, int64_t noise) {
  const int64_t least = 1 << 20, share = peak / 100, chance = noise > INT64_MAX / 8 ? INT64_MAX : 8 * noise;
  const int64_t more = share > least ? share : least;
  return chance > more ? chance : more;
}

#endif
