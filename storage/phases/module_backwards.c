/*
 * Lists through all of them and through those of a module, since they end in any order, and each costs the same however
 * many are open.
 */
#include "module_backwards.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct sl_backwards_of_module { /* here as long as one is open */
  uint32_t module;
  struct sl_module_backward *newest;
  UT_hash_handle hh;
};

struct sl_module_backward {
  struct sl_phase *phase;
  struct sl_module_backward *older, *newer;
  struct sl_backwards_of_module *of;
  struct sl_module_backward *older_of_module, *newer_of_module;
};

static struct sl_backwards_of_module *module_find(const struct sl_module_backwards *backwards, uint32_t number) {
  struct sl_backwards_of_module *module;
  HASH_FIND(hh, backwards->modules, &number, sizeof number, module);
  return module;
}

static struct sl_backwards_of_module *module_of(struct sl_module_backwards *backwards, uint32_t number) {
  struct sl_backwards_of_module *module;
  SL_HASH_FIND_OR_ADD(backwards->modules, module, number, module);
  return module;
}

int sl_module_backwards_add(struct sl_module_backwards *backwards, struct sl_phase *phase) {
  struct sl_module_backward *backward = calloc(1, sizeof *backward);
  struct sl_backwards_of_module *module = backward ? module_of(backwards, phase->module) : NULL;
  if (!module) {
    free(backward);
    return -ENOMEM;
  }
  backward->phase = phase;
  backward->of = module;
  DL_PREPEND2(backwards->newest, backward, newer, older);
  DL_PREPEND2(module->newest, backward, newer_of_module, older_of_module);
  phase->backward = backward;
  return 0;
}

static void resharded_remove(struct sl_module_backwards *backwards, const struct sl_phase *phase) {
  for (size_t i = 0; i < backwards->resharded_count; i++)
    if (backwards->resharded[i] == phase) {
      backwards->resharded_count--;
      memmove(&backwards->resharded[i], &backwards->resharded[i + 1],
              (backwards->resharded_count - i) * sizeof backwards->resharded[0]);
      return;
    }
}

void sl_module_backwards_forget(struct sl_module_backwards *backwards, struct sl_phase *phase) {
  struct sl_module_backward *backward = phase->backward;
  if (!backward)
    return;
  resharded_remove(backwards, phase);
  DL_DELETE2(backwards->newest, backward, newer, older);
  struct sl_backwards_of_module *module = backward->of;
  DL_DELETE2(module->newest, backward, newer_of_module, older_of_module);
  if (!module->newest) {
    HASH_DEL(backwards->modules, module);
    free(module);
  }
  phase->backward = NULL;
  free(backward);
}

struct sl_phase *sl_module_backwards_newest(const struct sl_module_backwards *backwards) {
  return backwards->newest ? backwards->newest->phase : NULL;
}

struct sl_phase *sl_module_backwards_innermost(const struct sl_module_backwards *backwards) {
  const struct sl_module_backward *backward = backwards->newest;
  while (backward && backward->phase->resharded) /* so many at most */
    backward = backward->older;
  return backward ? backward->phase : NULL;
}

struct sl_phase *sl_module_backwards_of(const struct sl_module_backwards *backwards, uint32_t number) {
  const struct sl_backwards_of_module *module = module_find(backwards, number);
  return module ? module->newest->phase : NULL;
}

void sl_module_backwards_reshard(struct sl_module_backwards *backwards, struct sl_phase *phase, uint64_t time_ns,
                                 uint64_t at) {
  if (!phase->resharded)
    backwards->resharded[backwards->resharded_count++] = phase;
  phase->resharded = true;
  phase->end_ns = time_ns;
  phase->end_at = at;
}

void sl_module_backwards_reduce(struct sl_module_backwards *backwards, struct sl_phase *phase) {
  resharded_remove(backwards, phase);
  phase->resharded = false;
  phase->end_ns = phase->end_at = 0;
}
