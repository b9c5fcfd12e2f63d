/*
 * What stands for the part of a log that was dropped: one segment of nobody's thread, in a file of its own
 * (plugin/format/log_format.h), which is put into its place at once and whole.
 */
#ifndef SHARDLEDGER_DROPPED_FILE_H
#define SHARDLEDGER_DROPPED_FILE_H

#include "plugin/format/log_format.h"

#include <stddef.h>
#include <stdint.h>

#define SL_DROPPED_NEW_NAME SL_DROPPED_NAME ".new" /* until it is whole */

/* start_ns and base_ns are where its time begins; the rest is 0 at first. */
struct sl_dropped_file {
  uint64_t start_ns, base_ns;
  char *records; /* owned */
  size_t bytes, size;
};

/* Appends a record of an event without a tail, or with it behind its fields. 0, -ENOMEM, or -EFBIG. */
int sl_dropped_put(struct sl_dropped_file *file, uint64_t time_ns, uint8_t type, const void *fields, size_t bytes);

/* Puts it into its place in directory. 0 or a negative errno: then nothing has changed there. */
int sl_dropped_write(const struct sl_dropped_file *file, const char *directory, uint64_t process_key);

void sl_dropped_free(struct sl_dropped_file *file);

#endif
