/* The companion's word comes first, then the user's rules, then the table of names that FSDP and PyTorch give. */
#include "range_meaning.h"

#include <fnmatch.h>
#include <string.h>

static const struct {
  const char *prefix;
  size_t length;
  enum sl_kind kind;
  enum sl_phase_point point;
} rules[] = {
#define RULE(prefix, kind, point) {prefix, sizeof prefix - 1, SL_KIND_##kind, SL_POINT_##point},
#include "phase_rules.def"
#undef RULE
};

/* The module that a rule's range serves: one that encloses it, else the first of the model. 0: none fits. */
static uint32_t module_of_rule(const struct sl_phases *phases, const struct sl_user_rule *rule,
                               const struct sl_phase *around) {
  for (; around; around = around->parent) {
    const struct sl_module_info *module = sl_module_table_find(phases->modules, around->module);
    if (module && fnmatch(rule->module, module->fqn, 0) == 0)
      return module->id;
  }
  uint32_t count;
  const struct sl_module_info *modules = sl_module_table_all(phases->modules, &count);
  for (uint32_t i = 0; i < count; i++)
    if (fnmatch(rule->module, modules[i].fqn, 0) == 0)
      return modules[i].id;
  return 0;
}

/* The first rule of the user's that fits the name, and whose module is there. */
static bool meaning_by_user(struct sl_phases *phases, uint32_t thread, const char *name, struct meaning *out) {
  const struct sl_user_rule *rule = phases->names ? sl_user_rule_cache_find(phases->names, name).kind : NULL;
  for (; rule; rule = sl_user_rule_find(phases->rules, SL_USER_RULE_range_kind, name, rule)) {
    uint32_t module = rule->module ? module_of_rule(phases, rule, sl_phases_current(phases, thread)) : 0;
    if (rule->module && !module)
      continue;
    *out = (struct meaning){rule->kind, SL_POINT_none, module, true};
    return true;
  }
  return false;
}

static struct meaning meaning_by_table(const struct sl_phases *phases, const char *name) {
  struct meaning meaning = {.kind = SL_KIND_user};
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (name[0] == rules[i].prefix[0] && strncmp(name, rules[i].prefix, rules[i].length) == 0) {
      meaning.kind = rules[i].kind;
      meaning.point = rules[i].point;
      break;
    }
  if (strncmp(name, "FSDP::", 6) == 0 && (meaning.point != SL_POINT_none || meaning.kind == SL_KIND_prefetch))
    meaning.module = sl_module_table_of_fsdp_name(phases->modules, phases->current_root, name);
  return meaning;
}

/* The same, of a name that may have been asked for: a step's ranges have those of the step before. */
static struct meaning meaning_by_name(struct sl_phases *phases, const char *name) {
  const uint64_t modules = sl_module_table_version(phases->modules);
  struct known_meaning *known = &phases->known_meanings[sl_hash_number(&name, sizeof name) % KNOWN_MEANINGS];
  if (known->name != name || known->root != phases->current_root || known->modules != modules)
    *known = (struct known_meaning){name, phases->current_root, modules, meaning_by_table(phases, name)};
  return known->meaning;
}

struct meaning sl_range_meaning(struct sl_phases *phases, uint32_t thread, uint16_t domain, uint16_t category,
                                uint64_t value, const char *name) {
  struct meaning meaning = {.kind = SL_KIND_user};
  if (phases->shardledger_domain && domain == phases->shardledger_domain && category && category < SL_KIND_count)
    meaning.kind = (enum sl_kind)category;
  if (meaning.kind == SL_KIND_user || meaning.kind == SL_KIND_record_function) {
    enum sl_kind said = meaning.kind;
    if (!meaning_by_user(phases, thread, name, &meaning) && said == SL_KIND_record_function)
      meaning = meaning_by_name(phases, name);
  } else if (meaning.kind == SL_KIND_forward || meaning.kind == SL_KIND_backward || meaning.kind == SL_KIND_recompute ||
             meaning.kind == SL_KIND_eval) {
    meaning.module = (uint32_t)value;
  }
  const struct sl_module_info *info = sl_module_table_find(phases->modules, meaning.module);
  if (info && (meaning.kind == SL_KIND_forward || meaning.kind == SL_KIND_recompute || meaning.kind == SL_KIND_eval))
    phases->current_root = info->root;
  /* The same thing may be named twice, by the companion and by the user: the outer one is it. */
  if (meaning.kind == SL_KIND_backward && !meaning.module && phases->whole_backward)
    meaning.kind = SL_KIND_user;
  if (meaning.kind == SL_KIND_step) {
    enum step_origin origin = meaning.by_user ? STEPS_of_user : STEPS_of_companion;
    if (phases->steps == STEPS_unknown)
      phases->steps = origin;
    if (phases->steps != origin || (meaning.by_user && phases->step))
      meaning.kind = SL_KIND_user;
  }
  return meaning;
}
