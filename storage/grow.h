/* Lists that grow by one element at a time. */
#ifndef SHARDLEDGER_GROW_H
#define SHARDLEDGER_GROW_H

#include <stddef.h>
#include <stdlib.h>

/*
 * Room for one element more in a list that has only ever grown by this: it doubles whenever count is a power of two, so
 * no capacity has to be kept. NULL: no memory, and the list is as it was.
 */
static inline void *sl_list_grow(void *list, size_t count, size_t size) {
  if (count & (count - 1))
    return list;
  return reallocarray(list, count ? 2 * count : 1, size);
}

#endif
