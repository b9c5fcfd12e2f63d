/*
 * The modules of a rank, and which one a name in an FSDP range means.
 */
#ifndef SHARDLEDGER_MODULE_TABLE_H
#define SHARDLEDGER_MODULE_TABLE_H

#include "plugin/format/events.h"
#include "storage/log/log_reader.h"
#include "storage/rules/user_rules.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_module_info { /* one module event */
  uint32_t id, parent, flags, depth;
  uint32_t root;                /* id of the root of its tree */
  const char *fqn, *class_name; /* owned by the log */
  uint64_t parameter_bytes, buffer_bytes;
  const struct sl_user_rule *user_rule; /* category that the user gave to what it keeps; NULL: none */
  bool trained;                         /* of a root: a backward of one of its modules has been seen */
};

struct sl_module_table;

/* log gives the strings and must outlive the table. NULL when memory runs out. */
struct sl_module_table *sl_module_table_new(const struct sl_log *log);
struct sl_module_table *sl_module_table_free(struct sl_module_table *table); /* returns NULL */

/*
 * Takes a module event; its parent's came before. Of several with one id the last one counts. rules: the user's, or
 * NULL. 0 or -ENOMEM.
 */
int sl_module_table_add(struct sl_module_table *table, const struct sl_event_module *event,
                        const struct sl_user_rules *rules);

const struct sl_module_info *sl_module_table_find(const struct sl_module_table *table, uint32_t id); /* NULL: unknown */
const struct sl_module_info *sl_module_table_all(const struct sl_module_table *table, uint32_t *count);

/* Another number whenever the table has changed. */
uint64_t sl_module_table_version(const struct sl_module_table *table);

/* Modules that are not there, as another module got their id. */
uint64_t sl_module_table_repeated(const struct sl_module_table *table);

/* A backward of this module began, so its model is one that is trained. */
void sl_module_table_saw_backward(struct sl_module_table *table, uint32_t id);

/* Whether a module (0: none) belongs to a model without a backward, beside one that is trained: a reference, a copy. */
bool sl_module_table_is_aside(const struct sl_module_table *table, uint32_t id);

/* The module that holds a tensor of this full name ("blocks.0.up.weight"), in the tree of a module. NULL: none. */
const struct sl_module_info *sl_module_table_holding(const struct sl_module_table *table, uint32_t id,
                                                     const char *name);

/*
 * Id of the module that an FSDP range serves, in the tree of root: "FSDP::x (fqn)", "FSDP::x (fqn, fqn)" (the first),
 * "FSDP::x_prefetch for fqn"; without a suffix FSDP's root. 0 when there is none.
 */
uint32_t sl_module_table_of_fsdp_name(const struct sl_module_table *table, uint32_t root, const char *name);

/* Ids of the modules after the first in "FSDP::x (fqn, fqn, …)": they share a unit. Returns how many, at most capacity.
 */
uint32_t sl_module_table_shared_with(const struct sl_module_table *table, uint32_t root, const char *name,
                                     uint32_t *modules, uint32_t capacity);

#endif
