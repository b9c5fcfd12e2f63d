/*
 * uthash, with an end to its one habit that no program can have: it exits when memory runs out. Here an element that
 * found no room is freed, and the pointer to it NULL.
 */
#ifndef SHARDLEDGER_HASH_TABLE_H
#define SHARDLEDGER_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Most keys are one number: for those a multiplication spreads as well as uthash's own function, in a tenth of the
 * time. */
static inline unsigned sl_hash_number(const void *key, size_t bytes) {
  uint64_t number = 0;
  memcpy(&number, key, bytes);
  return (unsigned)(number * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, bytes, hash)                                                                                \
  do {                                                                                                                 \
    if ((bytes) == 4)                                                                                                  \
      (hash) = sl_hash_number(key, 4);                                                                                 \
    else if ((bytes) == 8)                                                                                             \
      (hash) = sl_hash_number(key, 8);                                                                                 \
    else                                                                                                               \
      (hash) = (unsigned)XXH3_64bits(key, bytes);                                                                      \
  } while (0)
#include <uthash.h>

/* Chains of one or two elements instead of five: each further one is a place in memory that is not in the cache. */
#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 5U

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

/*
 * The element whose key `field` has this value, which is in a variable; a new one of zeroes where there is none. NULL:
 * no memory.
 */
#define SL_HASH_FIND_OR_ADD(head, field, value, element)                                                               \
  do {                                                                                                                 \
    HASH_FIND(hh, head, &(value), sizeof(value), element);                                                             \
    if (!(element) && ((element) = calloc(1, sizeof *(element)))) {                                                    \
      _Static_assert(sizeof(value) == sizeof((element)->field), "a key of the table");                                 \
      memcpy(&(element)->field, &(value), sizeof(value)); /* all of its bytes count */                                 \
      SL_HASH_ADD(head, field, element);                                                                               \
    }                                                                                                                  \
  } while (0)

/* Frees a table with its elements, which have nothing of their own to free. */
#define SL_HASH_FREE(head)                                                                                             \
  do {                                                                                                                 \
    __typeof__(head) element_ = (head), next_;                                                                         \
    HASH_CLEAR(hh, head); /* leaves the elements linked */                                                             \
    for (; element_; element_ = next_) {                                                                               \
      next_ = element_->hh.next;                                                                                       \
      free(element_);                                                                                                  \
    }                                                                                                                  \
  } while (0)

#endif
