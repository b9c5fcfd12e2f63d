/* A snapshot's file in memory, as long as it is needed. */
#ifndef SHARDLEDGER_SNAPSHOT_FILE_H
#define SHARDLEDGER_SNAPSHOT_FILE_H

#include "storage/error.h"

#include <stddef.h>
#include <stdint.h>

struct sl_snapshot_file {
  const unsigned char *data; /* mapped: pages come and go as there is room */
  size_t length;
  uint64_t changed_ns; /* its last change */
};

/* 0 or a negative errno, with the sentence: what else than a snapshot it is, where that shows. */
int sl_snapshot_file_open(const char *path, struct sl_snapshot_file *out, struct sl_error *error);
/* What is before `at` is not needed in memory for now; whoever reads it again has it read from the file again. */
void sl_snapshot_file_release(void *file, size_t at); /* struct sl_snapshot_file, as sl_snapshot_progress has it */
void sl_snapshot_file_close(struct sl_snapshot_file *file);

#endif
