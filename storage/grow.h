/* Lists that grow by one element at a time. */
#ifndef SHARDLEDGER_GROW_H
#define SHARDLEDGER_GROW_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* The same where the room is kept from use to use: a list that is emptied again and again. */
static inline void *sl_list_room(void *list, size_t count, size_t *capacity, size_t size) {
  enum { FIRST_ROOM = 1024 };
  if (count < *capacity)
    return list;
  const size_t more = *capacity ? 2 * *capacity : FIRST_ROOM;
  void *grown = reallocarray(list, more, size);
  if (grown)
    *capacity = more;
  return grown;
}

/*
 * One element more: where it is, with nothing written there yet, and count has counted it. NULL: no memory, and the
 * list is as it was.
 */
#define SL_LIST_ADD(list, count) SL_LIST_ADD_IN(list, count, sl_list_grow(list, (size_t)(count), sizeof *(list)))

/* The same where the room is kept from use to use. */
#define SL_LIST_ADD_ROOM(list, count, capacity)                                                                        \
  SL_LIST_ADD_IN(list, count, sl_list_room(list, count, capacity, sizeof *(list)))

#define SL_LIST_ADD_IN(list, count, room)                                                                              \
  __extension__({                                                                                                      \
    __typeof__(list) grown_ = (__typeof__(list))(room);                                                                \
    if (grown_)                                                                                                        \
      (list) = grown_;                                                                                                 \
    grown_ ? &grown_[(count)++] : NULL;                                                                                \
  })

/* One number more, as of an allocation in a list of them. 0 or -ENOMEM. */
static inline int sl_index_add(uint32_t **list, size_t *count, uint32_t index) {
  uint32_t *added = SL_LIST_ADD(*list, *count);
  if (!added)
    return -ENOMEM;
  *added = index;
  return 0;
}

/* A copy of a text more. NULL: no memory. */
static inline char *sl_text_add(char ***list, size_t *count, const char *text) {
  char *copy = strdup(text);
  char **added = copy ? SL_LIST_ADD(*list, *count) : NULL;
  if (added)
    return *added = copy;
  free(copy);
  return NULL;
}

#endif
