/*
 * Keep-last: makes room in a log that grows, by dropping its middle.
 *
 *   first files          dropped files                    latest files
 *   ├── from_ns ─────────────────────────── until_ns ──►
 *       the steps that make parameters and optimizer state; what lives on from them keeps its owner
 *
 * The log is read up to the first step that begins after the last record of the files to be dropped. What a reader must
 * know to go on from there is written to SL_DROPPED_NAME: PyTorch's block map, block by block, each with who asked for
 * it and when; open ranges; and copies of the rare events of which state follows: driver allocations that are alive,
 * contexts, loaded code, communicators, gaps. Then, and only then, the files may be removed. It is all done from the
 * log itself, so it costs the threads that record nothing, and needs neither CUDA nor PyTorch.
 */
#ifndef SHARDLEDGER_LOG_DROP_H
#define SHARDLEDGER_LOG_DROP_H

#include "storage/error.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_log_drop_options {
  const char *directory; /* of the process's log; copied */
  uint64_t head_ns;      /* what was recorded before it is in files that stay */
  uint64_t target_ns;    /* what was recorded in files to be dropped is from before it */
  uint64_t until_ns;     /* only what was recorded before it is sure to be in the log */
  uint32_t number;       /* of the segment in SL_DROPPED_NAME */
  /* Whether the sealed file of this name is to be dropped. */
  bool (*drops)(void *context, const char *name);
  void *context;
};

struct sl_log_drop;

/* NULL: the error says why. */
struct sl_log_drop *sl_log_drop_begin(const struct sl_log_drop_options *options, struct sl_error *error);

/*
 * Reads at most so many events. 1: there is more to do. 0: SL_DROPPED_NAME is in place, the files may go. -EAGAIN: no
 * step has begun since target_ns. Other negative errnos: the error says why; nothing has changed.
 */
int sl_log_drop_work(struct sl_log_drop *drop, unsigned events, struct sl_error *error);

/* Bytes of SL_DROPPED_NAME, once sl_log_drop_work has returned 0. */
uint64_t sl_log_drop_bytes(const struct sl_log_drop *drop);

struct sl_log_drop *sl_log_drop_free(struct sl_log_drop *drop); /* returns NULL */

#endif
