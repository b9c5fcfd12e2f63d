/* All that is alive is looked through once, and counted in a group for each answer that a row can give. */
#include "memory_owners.h"

#include "attribution.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct key {
  int32_t category;
  uint32_t module;
  int32_t kind; /* of the phase */
  int32_t rule; /* whose detail it has; -1: none */
  uint32_t site;
};

struct group {
  struct key key;
  uint64_t bytes, allocations;
  UT_hash_handle hh;
};

static bool lives(const struct sl_allocation *a, uint32_t device, uint64_t at) {
  return a->device == device && a->alloc_at <= at && (!a->free_at || a->free_at > at);
}

static struct key key_of(const struct sl_allocation *a, enum sl_owners_by by) {
  if (by == SL_OWNERS_BY_site)
    return (struct key){.category = a->category, .module = a->module, .rule = -1, .site = a->site};
  return (struct key){a->category, a->module, (int32_t)a->phase_kind, sl_rules[a->rule].detail ? a->rule : -1, 0};
}

int sl_memory_owners(struct sl_allocation *const *allocations, size_t count, uint32_t device, uint64_t at,
                     enum sl_owners_by by, sl_owner_listener *listener, void *context, struct sl_error *error) {
  struct group *groups = NULL, *group = NULL, *next;
  int r = 0;
  for (size_t i = 0; i < count && r == 0; i++) {
    const struct sl_allocation *a = allocations[i];
    if (!lives(a, device, at))
      continue;
    const struct key key = key_of(a, by);
    if (!group || memcmp(&group->key, &key, sizeof key) != 0) /* else as the one before, which was made beside it */
      SL_HASH_FIND_OR_ADD(groups, key, key, group);
    if (!group) {
      r = sl_no_memory(error);
      break;
    }
    group->bytes += a->bytes;
    group->allocations++;
  }
  HASH_ITER(hh, groups, group, next) {
    struct sl_memory_owner owner = {
        .by = by,
        .category = group->key.category,
        .detail = group->key.rule >= 0 ? sl_rules[group->key.rule].detail : NULL,
        .module = group->key.module,
        .phase = group->key.kind ? sl_kind_name((enum sl_kind)group->key.kind) : NULL,
        .site = group->key.site,
        .bytes = group->bytes,
        .allocations = group->allocations,
    };
    if (r == 0)
      r = listener(context, &owner, error);
    HASH_DEL(groups, group);
    free(group);
  }
  return r;
}
