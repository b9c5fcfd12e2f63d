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
void sl_snapshot_file_close(struct sl_snapshot_file *file);

#endif
