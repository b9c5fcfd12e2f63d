/*
 * A file under construction, beside the one that it will replace: <output>.<pid>.part, locked as long as it is built.
 * One that nobody holds the lock of was left by a process that was killed, and is removed by the next builder.
 */
#ifndef SHARDLEDGER_PART_FILE_H
#define SHARDLEDGER_PART_FILE_H

#include "storage/error.h"

struct sl_part_file {
  char *path; /* owned; NULL when there is none */
  int lock;
};
#define SL_PART_FILE_NONE ((struct sl_part_file){NULL, -1})

/* Makes it, empty. On failure *out is none; -EINVAL: output is there and is no file. */
int sl_part_file_make(const char *output, struct sl_part_file *out, struct sl_error *error);

/* Puts it in the output's place in one step. */
int sl_part_file_keep(const struct sl_part_file *part, const char *output, struct sl_error *error);

/* Removes it where it was not kept, and frees. Returns none, so that a second call does nothing. */
struct sl_part_file sl_part_file_close(struct sl_part_file part);

#endif
