/*
 * A file under construction, beside the one that it will replace: <output>.<random>.part, locked as long as it is
 * built. It is made new in a directory that stays open, so nothing that somebody puts there meanwhile is written into.
 * One that nobody holds the lock of was left by a process that was killed, and is removed by the next builder of this
 * output.
 */
#ifndef SHARDLEDGER_PART_FILE_H
#define SHARDLEDGER_PART_FILE_H

#include "storage/error.h"

#include <stdio.h>

struct sl_part_file {
  char *output; /* what it will be; owned, NULL when there is none */
  char *path;   /* where it is until then; owned */
  int directory, file;
};
#define SL_PART_FILE_NONE ((struct sl_part_file){NULL, NULL, -1, -1})

/* Makes it, empty. On failure *out is none; -EINVAL: output is there and is no file. */
int sl_part_file_make(const char *output, struct sl_part_file *out, struct sl_error *error);

/* A stream that writes into it, to be closed before it is kept. NULL with errno. */
FILE *sl_part_file_stream(const struct sl_part_file *part);

/* Puts it in the output's place in one step. */
int sl_part_file_keep(const struct sl_part_file *part, struct sl_error *error);

/* Removes it where it was not kept, and frees. Returns none, so that a second call does nothing. */
struct sl_part_file sl_part_file_close(struct sl_part_file part);

#endif
