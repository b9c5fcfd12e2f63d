/*
 * Ids are positions in a list, but for the few that are not. A name is looked for among the modules of one tree, since
 * two models may use the same.
 */
#include "module_table.h"
#include "plugin/format/name.h"
#include "storage/grow.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct module_key { /* (root, fqn) → module id */
  uint32_t id;
  UT_hash_handle hh;
  char key[];
};

struct module_place { /* of a module whose id is not its place */
  uint32_t id, at;
  UT_hash_handle hh;
};

struct fsdp_root { /* of a tree: its outermost FSDP unit, of these the first */
  uint32_t root, at;
  UT_hash_handle hh;
};

struct sl_module_table {
  const struct sl_log *log;
  struct sl_module_info *modules;
  uint32_t count;
  bool any_trained;
  struct module_key *keys;
  struct module_place *places;
  uint64_t repeated, version;
  struct fsdp_root *fsdp_roots;
};

struct sl_module_table *sl_module_table_new(const struct sl_log *log) {
  struct sl_module_table *table = calloc(1, sizeof *table);
  if (table)
    table->log = log;
  return table;
}

struct sl_module_table *sl_module_table_free(struct sl_module_table *table) {
  if (!table)
    return NULL;
  SL_HASH_FREE(table->keys);
  SL_HASH_FREE(table->places);
  SL_HASH_FREE(table->fsdp_roots);
  free(table->modules);
  free(table);
  return NULL;
}

/* A module's name in its tree, as a key. Longer ones than a log has are no module's. */
struct name_key {
  size_t bytes; /* 0: too long */
  char text[sizeof(uint32_t) + SL_NAME_MAX];
};

static void name_key_append(struct name_key *key, const void *text, size_t bytes) {
  if (!key->bytes || bytes > sizeof key->text - key->bytes) {
    key->bytes = 0;
    return;
  }
  memcpy(key->text + key->bytes, text, bytes);
  key->bytes += bytes;
}

static void name_key_begin(struct name_key *key, uint32_t root) {
  memcpy(key->text, &root, sizeof root);
  key->bytes = sizeof root;
}

static struct module_key *key_find(const struct sl_module_table *table, const struct name_key *name) {
  struct module_key *key = NULL;
  if (name->bytes)
    HASH_FIND(hh, table->keys, name->text, name->bytes, key);
  return key;
}

static struct module_key *key_of(const struct sl_module_table *table, uint32_t root, const char *fqn, size_t length) {
  struct name_key name;
  name_key_begin(&name, root);
  name_key_append(&name, fqn, length);
  return key_find(table, &name);
}

static uint32_t module_lookup(const struct sl_module_table *table, uint32_t root, const char *fqn, size_t length) {
  const struct module_key *key = key_of(table, root, fqn, length);
  return key ? key->id : 0;
}

const struct sl_module_info *sl_module_table_find(const struct sl_module_table *table, uint32_t id) {
  /* Ids count from 1 without holes, so the index is nearly always id - 1. */
  if (id && id <= table->count && table->modules[id - 1].id == id)
    return &table->modules[id - 1];
  struct module_place *place = NULL;
  if (id && table->places)
    HASH_FIND(hh, table->places, &id, sizeof id, place);
  return place ? &table->modules[place->at] : NULL;
}

const struct sl_module_info *sl_module_table_all(const struct sl_module_table *table, uint32_t *count) {
  *count = table->count;
  return table->modules;
}

void sl_module_table_saw_backward(struct sl_module_table *table, uint32_t id) {
  const struct sl_module_info *module = sl_module_table_find(table, id);
  const struct sl_module_info *root = module ? sl_module_table_find(table, module->root) : NULL;
  if (root)
    table->any_trained = table->modules[root - table->modules].trained = true;
}

bool sl_module_table_is_aside(const struct sl_module_table *table, uint32_t id) {
  const struct sl_module_info *module = table->any_trained ? sl_module_table_find(table, id) : NULL;
  const struct sl_module_info *root = module ? sl_module_table_find(table, module->root) : NULL;
  return root && !root->trained;
}

const struct sl_module_info *sl_module_table_holding(const struct sl_module_table *table, uint32_t id,
                                                     const char *name) {
  const struct sl_module_info *module = sl_module_table_find(table, id);
  const char *dot = strrchr(name, '.');
  if (!module)
    return NULL;
  return sl_module_table_find(table, module_lookup(table, module->root, name, dot ? (size_t)(dot - name) : 0));
}

uint64_t sl_module_table_version(const struct sl_module_table *table) {
  return table->version;
}

uint64_t sl_module_table_repeated(const struct sl_module_table *table) {
  return table->repeated;
}

static struct fsdp_root *fsdp_root_find(const struct sl_module_table *table, uint32_t root) {
  struct fsdp_root *found;
  HASH_FIND(hh, table->fsdp_roots, &root, sizeof root, found);
  return found;
}

static int fsdp_root_add(struct sl_module_table *table, const struct sl_module_info *module, uint32_t at) {
  if (!(module->flags & SL_MODULE_FSDP))
    return 0;
  struct fsdp_root *found = fsdp_root_find(table, module->root);
  if (!found) {
    found = calloc(1, sizeof *found);
    if (!found)
      return -ENOMEM;
    *found = (struct fsdp_root){.root = module->root, .at = at};
    SL_HASH_ADD(table->fsdp_roots, root, found);
    if (!found)
      return -ENOMEM;
  } else if (module->depth < table->modules[found->at].depth) {
    found->at = at;
  }
  return 0;
}

static void fsdp_root_forget(struct sl_module_table *table, uint32_t root, uint32_t at) {
  struct fsdp_root *found = fsdp_root_find(table, root);
  if (found && found->at == at) {
    HASH_DEL(table->fsdp_roots, found);
    free(found);
  }
}

/* A module that has the id already goes: its place is the new one's. */
static struct sl_module_info *place_again(struct sl_module_table *table, const struct sl_module_info *module) {
  struct sl_module_info *known = (struct sl_module_info *)sl_module_table_find(table, module->id);
  if (!known)
    return NULL;
  table->repeated += strcmp(known->fqn, module->fqn) != 0 || strcmp(known->class_name, module->class_name) != 0 ||
                     known->parent != module->parent;
  fsdp_root_forget(table, known->root, (uint32_t)(known - table->modules));
  struct module_key *key = key_of(table, known->root, known->fqn, strlen(known->fqn));
  if (key && key->id == module->id) {
    HASH_DEL(table->keys, key);
    free(key);
  }
  return known;
}

static struct sl_module_info *place_new(struct sl_module_table *table, uint32_t id) {
  struct sl_module_info *grown = sl_list_grow(table->modules, table->count, sizeof *grown);
  if (!grown)
    return NULL;
  table->modules = grown;
  if (id != table->count + 1) {
    struct module_place *place = calloc(1, sizeof *place);
    if (!place)
      return NULL;
    place->id = id;
    place->at = table->count;
    SL_HASH_ADD(table->places, id, place);
    if (!place)
      return NULL;
  }
  return &table->modules[table->count++];
}

int sl_module_table_add(struct sl_module_table *table, const struct sl_event_module *event,
                        const struct sl_user_rules *rules) {
  if (!event->id) /* which is none */
    return 0;
  table->version++;
  const struct sl_module_info *parent = sl_module_table_find(table, event->parent);
  struct sl_module_info module = {
      .id = event->id,
      .parent = event->parent,
      .flags = event->flags,
      .depth = event->depth,
      .root = parent ? parent->root : event->id,
      .fqn = sl_log_string(table->log, event->fqn),
      .class_name = sl_log_string(table->log, event->class_name),
      .parameter_bytes = event->parameter_bytes,
      .buffer_bytes = event->buffer_bytes,
  };
  module.user_rule = sl_user_rule_find(rules, SL_USER_RULE_module_category, module.fqn, NULL);
  struct sl_module_info *place = place_again(table, &module);
  if (!place)
    place = place_new(table, module.id);
  struct name_key name;
  name_key_begin(&name, module.root);
  name_key_append(&name, module.fqn, strlen(module.fqn));
  struct module_key *key = place ? calloc(1, sizeof *key + name.bytes) : NULL;
  if (!key)
    return -ENOMEM;
  *place = module;
  if (fsdp_root_add(table, place, (uint32_t)(place - table->modules)) < 0) {
    free(key);
    return -ENOMEM;
  }
  key->id = module.id;
  memcpy(key->key, name.text, name.bytes);
  HASH_ADD_KEYPTR(hh, table->keys, key->key, name.bytes, key);
  if (SL_HASH_FAILED(key)) {
    free(key);
    return -ENOMEM;
  }
  return 0;
}

/*
 * FSDP names modules relative to its own root, which is the called root or a module below it (a wrapper's .module).
 * Returns the id of the module that the FQN names under the root in use, 0 when there is none.
 */
static uint32_t module_named(const struct sl_module_table *table, uint32_t root, const char *fqn, size_t length) {
  uint32_t id = length || !root ? module_lookup(table, root, fqn, length) : 0;
  if (id)
    return id;
  const struct fsdp_root *found = fsdp_root_find(table, root);
  const struct sl_module_info *fsdp_root = found ? &table->modules[found->at] : NULL;
  if (!fsdp_root)
    return length ? 0 : root;
  if (!length)
    return fsdp_root->id;
  struct name_key full;
  name_key_begin(&full, root);
  name_key_append(&full, fsdp_root->fqn, strlen(fsdp_root->fqn));
  name_key_append(&full, ".", 1);
  name_key_append(&full, fqn, length);
  const struct module_key *key = key_find(table, &full);
  return key ? key->id : 0;
}

uint32_t sl_module_table_of_fsdp_name(const struct sl_module_table *table, uint32_t root, const char *name) {
  const char *open = strstr(name, " (");
  if (open) {
    open += 2;
    return module_named(table, root, open, strcspn(open, ",)"));
  }
  const char *target = strstr(name, " for ");
  if (target) {
    target += 5;
    return module_named(table, root, target, strcspn(target, ","));
  }
  return module_named(table, root, "", 0);
}

uint32_t sl_module_table_shared_with(const struct sl_module_table *table, uint32_t root, const char *name,
                                     uint32_t *modules, uint32_t capacity) {
  const char *open = strstr(name, " ("), *next = open ? strchr(open, ',') : NULL;
  uint32_t count = 0;
  for (; next && count < capacity; next = strchr(next, ',')) {
    next += strspn(next, ", ");
    uint32_t module = module_named(table, root, next, strcspn(next, ",)"));
    if (module)
      modules[count++] = module;
  }
  return count;
}
