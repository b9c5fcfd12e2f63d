#include "module_table.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct module_key { /* (root, fqn) → module id */
  char *key;
  uint32_t id;
  UT_hash_handle hh;
};

struct sl_module_table {
  const struct sl_log *log;
  struct sl_module_info *modules;
  uint32_t count, capacity;
  bool any_trained;
  struct module_key *keys;
  bool out_of_memory; /* a look-up had none, and answered that there is no such module */
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
  struct module_key *key, *next;
  HASH_ITER(hh, table->keys, key, next) {
    HASH_DEL(table->keys, key);
    free(key->key);
    free(key);
  }
  free(table->modules);
  free(table);
  return NULL;
}

static char *module_key_text(uint32_t root, const char *fqn, size_t length) {
  char *key = NULL;
  return asprintf(&key, "%u:%.*s", root, (int)length, fqn) < 0 ? NULL : key;
}

/* Asking a table changes nothing in it but this. */
static uint32_t lookup_failed(const struct sl_module_table *table) {
  ((struct sl_module_table *)table)->out_of_memory = true;
  return 0;
}

static uint32_t module_lookup(const struct sl_module_table *table, uint32_t root, const char *fqn, size_t length) {
  char *text = module_key_text(root, fqn, length);
  if (!text)
    return lookup_failed(table);
  struct module_key *key;
  HASH_FIND_STR(table->keys, text, key);
  free(text);
  return key ? key->id : 0;
}

const struct sl_module_info *sl_module_table_find(const struct sl_module_table *table, uint32_t id) {
  /* Ids count from 1 without holes, so the index is nearly always id - 1. */
  if (id && id <= table->count && table->modules[id - 1].id == id)
    return &table->modules[id - 1];
  for (uint32_t i = 0; id && i < table->count; i++)
    if (table->modules[i].id == id)
      return &table->modules[i];
  return NULL;
}

const struct sl_module_info *sl_module_table_all(const struct sl_module_table *table, uint32_t *count) {
  *count = table->count;
  return table->modules;
}

bool sl_module_table_failed(const struct sl_module_table *table) {
  return table->out_of_memory;
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

int sl_module_table_add(struct sl_module_table *table, const struct sl_event_module *event,
                        const struct sl_user_rules *rules) {
  if (table->count == table->capacity) {
    uint32_t capacity = table->capacity ? 2 * table->capacity : 256;
    void *grown = realloc(table->modules, capacity * sizeof *table->modules);
    if (!grown)
      return -ENOMEM;
    table->modules = grown;
    table->capacity = capacity;
  }
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
  table->modules[table->count++] = module;
  struct module_key *key = calloc(1, sizeof *key);
  if (!key)
    return -ENOMEM;
  key->id = module.id;
  key->key = module_key_text(module.root, module.fqn, strlen(module.fqn));
  if (!key->key) {
    free(key);
    return -ENOMEM;
  }
  HASH_ADD_KEYPTR(hh, table->keys, key->key, strlen(key->key), key);
  if (SL_HASH_FAILED(key)) {
    free(key->key);
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
  const struct sl_module_info *fsdp_root = NULL;
  for (uint32_t i = 0; i < table->count; i++) {
    const struct sl_module_info *module = &table->modules[i];
    if (module->root == root && (module->flags & SL_MODULE_FSDP) && (!fsdp_root || module->depth < fsdp_root->depth))
      fsdp_root = module;
  }
  if (!fsdp_root)
    return length ? 0 : root;
  if (!length)
    return fsdp_root->id;
  char *full = NULL;
  if (asprintf(&full, "%s.%.*s", fsdp_root->fqn, (int)length, fqn) < 0)
    return lookup_failed(table);
  id = module_lookup(table, root, full, strlen(full));
  free(full);
  return id;
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
