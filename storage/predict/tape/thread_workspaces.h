/*
 * Workspaces of cuBLAS on another thread: each thread has handles of its own, and so workspaces. What forward runs
 * again in backward is run by autograd's thread, which makes those that it lacks.
 */
#ifndef SHARDLEDGER_THREAD_WORKSPACES_H
#define SHARDLEDGER_THREAD_WORKSPACES_H

#include "tape.h"

struct sl_thread_workspaces {
  uint32_t recorded; /* allocations that are looked at: the first of the tape */
  int64_t from_tid, to_tid;
  bool (*is_wanted)(const void *context, uint32_t allocation);
  const void *context;
  uint64_t number; /* of the event before or after which they are made, as in sl_tape_put */
};

/* Those that one thread made and the other one lacks, if they are wanted: made at ++*offset, and they stay. 0 or
 * -ENOMEM. */
int sl_thread_workspaces_add(struct sl_tape *tape, const struct sl_thread_workspaces *which, int32_t *offset);

#endif
