/*
 * A text that is written like a file, in memory. One place sees that memory ran out. open_memstream does not: a write
 * that failed once leaves a hole and no sign of it, and fclose may return 0 without a text.
 */
#ifndef SHARDLEDGER_MEMORY_FILE_H
#define SHARDLEDGER_MEMORY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct sl_memory_file {
  FILE *file; /* NULL: not open */
  char *text;
  size_t bytes, capacity;
  bool failed; /* a write found no memory: there will be no text */
};

/* What to write to; it can't seek. NULL: no memory; then closing is allowed and gives NULL. *memory must stay where it
 * is. */
FILE *sl_memory_file_open(struct sl_memory_file *memory);

/* The text, NUL-terminated; free it. NULL: no memory, now or in any write. *bytes, where not NULL: its length. */
char *sl_memory_file_close(struct sl_memory_file *memory, size_t *bytes);

#endif
