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
 * log itself and outside of the process, so it costs that nothing, and needs neither CUDA nor PyTorch.
 */
#ifndef SHARDLEDGER_LOG_DROP_H
#define SHARDLEDGER_LOG_DROP_H

#include "storage/log/log_reader.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_log_drop_options {
  uint64_t head_ns;   /* what was recorded before it is in files that stay */
  uint64_t target_ns; /* what was recorded in files to be dropped is from before it */
  uint64_t until_ns;  /* only what was recorded before it is sure to be in the log */
  /* Whether the sealed file of this name is to be dropped. */
  bool (*drops)(void *context, const char *name);
  void *context;
};

/*
 * Reads a log, from which nothing has been read yet, up to where it goes on. 0: SL_DROPPED_NAME is in place, the files
 * may go. -EAGAIN: no step has begun since target_ns. Other negative errnos: the error says why; nothing has changed.
 */
int sl_log_drop(struct sl_log *log, const struct sl_log_drop_options *options, struct sl_error *error);

#endif
