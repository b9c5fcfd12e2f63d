/*
 * Nsight Compute (ncu): programs that call CUPTI can't run under it, and it ends those that have CUDA_INJECTION64_PATH.
 */
#ifndef SHARDLEDGER_NSIGHT_COMPUTE_H
#define SHARDLEDGER_NSIGHT_COMPUTE_H

#include <stdbool.h>

/* Whether this process runs under it, by the variables that it sets. */
bool sl_is_under_nsight_compute(void);

/* Whether a command, with or without a path, is Nsight Compute's. */
bool sl_is_nsight_compute(const char *command);

#endif
