/* Changes that are made in some steps only. */
#ifndef SHARDLEDGER_CHANGE_STEPS_H
#define SHARDLEDGER_CHANGE_STEPS_H

#include "storage/predict/tape/tape.h"

/* A step that repeats another one repeats its change. 0, or -ENOTSUP where only one of two is among first to last. */
int sl_change_steps_check(const struct sl_tape *tape, int64_t first, int64_t last, struct sl_error *error);

#endif
