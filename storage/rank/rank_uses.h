/*
 * What a rank's operators used, in the steps in which that was followed. Such stretches are windows: within one every
 * use by an operator is known, and each kernel that no operator launched, whose uses are hidden. Where launches are
 * seen no more, or again, a window ends and the next one begins.
 */
#ifndef SHARDLEDGER_RANK_USES_H
#define SHARDLEDGER_RANK_USES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_use_window {
  uint64_t start_ns, end_ns; /* end_ns 0: it goes on */
  bool sees_launches;
};

/* Zero-initialise; free with sl_rank_uses_free. */
struct sl_rank_uses {
  struct sl_use_window *windows; /* in order; owned */
  size_t window_count;
  uint64_t *hidden; /* times of kernels that no operator launched, in order; owned */
  size_t hidden_count;
};

void sl_rank_uses_free(struct sl_rank_uses *uses);

#endif
