#include "refusals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sl_refusals {
  struct sl_refusal *list;
  size_t count, capacity;
};

struct sl_refusals *sl_refusals_new(void) {
  return calloc(1, sizeof(struct sl_refusals));
}

struct sl_refusals *sl_refusals_free(struct sl_refusals *refusals) {
  if (refusals)
    free(refusals->list);
  free(refusals);
  return NULL;
}

static void drop(struct sl_refusals *refusals, size_t i) {
  memmove(&refusals->list[i], &refusals->list[i + 1], (refusals->count - i - 1) * sizeof *refusals->list);
  refusals->count--;
}

int sl_refusals_add(struct sl_refusals *refusals, const struct sl_refusal *refusal, struct sl_error *error) {
  for (size_t i = refusals->count; i-- > 0;) {
    const struct sl_refusal *earlier = &refusals->list[i];
    if (strcmp(refusal->source, "allocator") != 0 && earlier->thread == refusal->thread &&
        strcmp(earlier->source, refusal->source) == 0 && earlier->row.requested_bytes == refusal->row.requested_bytes)
      drop(refusals, i);
  }
  if (refusals->count == refusals->capacity) {
    size_t capacity = refusals->capacity ? 2 * refusals->capacity : 8;
    struct sl_refusal *grown = realloc(refusals->list, capacity * sizeof *grown);
    if (!grown)
      return sl_error_set(error, -ENOMEM, "out of memory");
    refusals->list = grown;
    refusals->capacity = capacity;
  }
  refusals->list[refusals->count++] = *refusal;
  return 0;
}

void sl_refusals_saved(struct sl_refusals *refusals, uint32_t thread, const char *source, uint64_t bytes) {
  for (size_t i = refusals->count; i-- > 0;) {
    const struct sl_refusal *earlier = &refusals->list[i];
    if (earlier->thread == thread && strcmp(earlier->source, source) == 0 && earlier->row.requested_bytes <= bytes)
      drop(refusals, i);
  }
}

const struct sl_refusal *sl_refusals_list(const struct sl_refusals *refusals, size_t *count) {
  *count = refusals->count;
  return refusals->list;
}

void sl_refusals_clear(struct sl_refusals *refusals) {
  refusals->count = 0;
}
