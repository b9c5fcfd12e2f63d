/*
 * uthash, with an end to its one habit that no program can have: it exits when memory runs out. Here an element that
 * found no room is freed, and the pointer to it NULL.
 */
#ifndef SHARDLEDGER_HASH_TABLE_H
#define SHARDLEDGER_HASH_TABLE_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include <stdlib.h>

/* True when the element that HASH_ADD was given is not in the table. */
#define SL_HASH_FAILED(element) ((element)->hh.tbl == NULL)

/* Adds an element that was allocated by itself, with the key `field`. */
#define SL_HASH_ADD(head, field, element)                                                                              \
  do {                                                                                                                 \
    HASH_ADD(hh, head, field, sizeof((element)->field), element);                                                      \
    if (SL_HASH_FAILED(element)) {                                                                                     \
      free(element);                                                                                                   \
      (element) = NULL;                                                                                                \
    }                                                                                                                  \
  } while (0)

#endif
