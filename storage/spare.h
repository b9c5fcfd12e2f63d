/*
 * Memory for things of one size that come and go by the thousand: what one leaves is the next one's, instead of going
 * through malloc each time. Under AddressSanitizer each has its own, so that a use after its end is found.
 */
#ifndef SHARDLEDGER_SPARE_H
#define SHARDLEDGER_SPARE_H

#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define SL_SPARE_NONE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SL_SPARE_NONE 1
#endif
#endif
#ifndef SL_SPARE_NONE
#define SL_SPARE_NONE 0
#endif

struct sl_spare { /* zero: none; all of one size, which is at least a pointer's */
  void *first;    /* begins with a pointer to the next one */
};

/* Not zeroed. NULL: no memory. */
static inline void *sl_spare_take(struct sl_spare *spare, size_t bytes) {
  void **taken = spare->first;
  if (!taken)
    return malloc(bytes);
  spare->first = *taken;
  return taken;
}

static inline void sl_spare_give(struct sl_spare *spare, void *memory) {
  if (SL_SPARE_NONE) {
    free(memory);
    return;
  }
  *(void **)memory = spare->first;
  spare->first = memory;
}

static inline void sl_spare_free(struct sl_spare *spare) {
  for (void *memory; (memory = spare->first);) {
    spare->first = *(void **)memory;
    free(memory);
  }
}

#endif
