/*
 * Rules of users: what the names of their ranges and modules mean. A text file, one rule a line, `#` starts a comment:
 *
 *   range GLOB kind KIND [module=FQN-GLOB]  a range whose name matches means this kind (nvtx_ranges/kinds.def), and
 *                                           serves the module named: an enclosing one that matches, else the first
 *                                           of the model that does. Without such a module the rule does not fit
 *   range GLOB category CATEGORY            untagged memory allocated inside of such a range has this category
 *   module GLOB category CATEGORY           untagged memory of such a module that lives on after its phase has it
 *   note GLOB category CATEGORY             untagged memory that the program noted so has it:
 *                                           torch.cuda.memory._set_memory_metadata
 *
 * GLOB is matched against the whole name, with * ? and [ ] as in a shell; "…" when there are blanks in it. The first
 * rule that fits decides; of ranges inside of each other, the innermost. CATEGORY is one of
 * storage/rules/categories.def or a word of the user's own.
 */
#ifndef SHARDLEDGER_USER_RULES_H
#define SHARDLEDGER_USER_RULES_H

#include "nvtx_ranges/kinds.h"
#include "storage/error.h"
#include "storage/part_file.h"

#include <stddef.h>

#define SL_USER_RULES_NAME "rules" /* the copy in a run directory, for when it is ingested again */

enum sl_user_rule_type {
  SL_USER_RULE_range_kind,
  SL_USER_RULE_range_category,
  SL_USER_RULE_module_category,
  SL_USER_RULE_note_category,
};

struct sl_user_rule {
  enum sl_user_rule_type type;
  unsigned line;
  const char *glob;          /* all strings are owned by the rules */
  const char *module;        /* of range_kind: the module that it serves; NULL: not said */
  enum sl_kind kind;         /* of range_kind */
  int category;              /* of the others: enum sl_category, or SL_CATEGORY_built_in + n, the n-th own word */
  const char *category_name; /* its word */
};

struct sl_user_rules;

/*
 * Reads all rules of a text or of a file, or none: -EINVAL says in error which line is wrong, how, and what is
 * allowed; -EINVAL also when the file can't be read. path is for messages. Free *out with sl_user_rules_free.
 */
int sl_user_rules_parse(const char *text, const char *path, struct sl_user_rules **out, struct sl_error *error);
int sl_user_rules_read(const char *path, struct sl_user_rules **out, struct sl_error *error);
/* The rules that an earlier ingest or the run itself left in its directory; *out NULL when there are none. */
int sl_user_rules_kept(const char *directory, struct sl_user_rules **out, struct sl_error *error);
struct sl_user_rules *sl_user_rules_free(struct sl_user_rules *rules); /* returns NULL */

/* The rules in the order of their file. rules may be NULL: none. */
const struct sl_user_rule *sl_user_rules_list(const struct sl_user_rules *rules, size_t *count);

/* The user's own categories, in the order of their numbers. */
const char *const *sl_user_rules_own_categories(const struct sl_user_rules *rules, size_t *count);

/* The file's text and its path, owned by the rules. */
const char *sl_user_rules_text(const struct sl_user_rules *rules);
const char *sl_user_rules_path(const struct sl_user_rules *rules);

/* The first rule of a type that fits the name, after another (NULL: of all); NULL when none does. */
const struct sl_user_rule *sl_user_rule_find(const struct sl_user_rules *rules, enum sl_user_rule_type type,
                                             const char *name, const struct sl_user_rule *after);

/*
 * Writes the text beside directory's copy, as *staged, which sl_user_rules_keep puts in the copy's place (taking the
 * copy away when there are no rules) and then closes.
 */
int sl_user_rules_stage(const struct sl_user_rules *rules, const char *directory, struct sl_part_file *staged,
                        struct sl_error *error);
int sl_user_rules_keep(const struct sl_user_rules *rules, struct sl_part_file *staged, struct sl_error *error);

/* Which rules fit a name, remembered: names of ranges come again and again. */
struct sl_user_rule_match {
  const struct sl_user_rule *kind, *category; /* the first of each; NULL: none */
};
struct sl_user_rule_cache;
struct sl_user_rule_cache *sl_user_rule_cache_new(const struct sl_user_rules *rules); /* NULL: no memory */
struct sl_user_rule_cache *sl_user_rule_cache_free(struct sl_user_rule_cache *cache); /* returns NULL */

/* name is remembered by its address: it must stay where it is as long as the cache is used. */
struct sl_user_rule_match sl_user_rule_cache_find(struct sl_user_rule_cache *cache, const char *name);

#endif
