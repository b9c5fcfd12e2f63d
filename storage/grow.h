/* Lists that grow by one element at a time. */
#ifndef SHARDLEDGER_GROW_H
#define SHARDLEDGER_GROW_H

#include <stddef.h>
#include <stdlib.h>

/*
 * Room for one element more in a list that has its room from this alone: it doubles whenever count is a power of two,
 * so no capacity has to be kept. Elements may have been taken out: then there is room up to the next power of two at
 * least. NULL: no memory, and the list is as it was.
 */
static inline void *sl_list_grow(void *list, size_t count, size_t size) {
  enum { FIRST = 4 };
  if ((count & (count - 1)) || (count && count < FIRST))
    return list;
  return reallocarray(list, count ? 2 * count : FIRST, size);
}

#endif
