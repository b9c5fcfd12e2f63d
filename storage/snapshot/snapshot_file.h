/* A snapshot's file in memory, as long as it is needed. */
#ifndef SHARDLEDGER_SNAPSHOT_FILE_H
#define SHARDLEDGER_SNAPSHOT_FILE_H

#include "storage/error.h"
#include "storage/mapped_file.h"

#include <stddef.h>

/* 0 or a negative errno, with the sentence: what else than a snapshot it is, where that shows. */
int sl_snapshot_file_open(const char *path, struct sl_mapped_file *out, struct sl_error *error);
/* What is before `at` is not needed in memory for now; whoever reads it again has it read from the file again. */
void sl_snapshot_file_release(void *file, size_t at); /* struct sl_mapped_file, as sl_snapshot_progress has it */

/* What was read of the file is of one state: 0, or -EBADMSG with the sentence. */
int sl_snapshot_file_settled(const struct sl_mapped_file *file, const char *path, struct sl_error *error);

#endif
