/*
 * Which category is an allocation, and whose? The rules are in attribution_rules.def.
 */
#ifndef SHARDLEDGER_ATTRIBUTION_H
#define SHARDLEDGER_ATTRIBUTION_H

#include "allocation.h"

enum sl_attribution_rule {
#define RULE(name, category, detail, meaning) SL_RULE_##name,
#include "attribution_rules.def"
#undef RULE
  SL_RULE_count,
};

struct sl_rule_info {
  const char *name;
  enum sl_category category;
  const char *detail; /* NULL: none */
  const char *meaning;
};

extern const struct sl_rule_info sl_rules[SL_RULE_count];

/* The threads and streams whose workspace for cuBLAS has been found by its size. */
struct sl_workspaces {
  uint64_t owners[256];
  size_t count;
};

/* What a decision needs to know of the step, beside the allocation itself. Positions are in increasing order. */
struct sl_step_facts {
  int64_t step;                     /* -1: not in a step */
  const uint64_t *optimizer_starts; /* positions at which optimizer steps began */
  size_t optimizer_start_count;
  const uint64_t *backward_starts; /* positions at which whole backward passes began */
  size_t backward_start_count;
  bool modules_known;               /* the companion says what modules, steps and optimizers do */
  bool gradients_tagged;            /* the companion tagged the gradients of this step */
  struct sl_workspaces *workspaces; /* of the rank; decisions add to it. NULL: PyTorch's own table was recorded */
  bool cut_off;                     /* the log ended within it: what is alive then has not outlived the step */
};

/*
 * Decides category, rule and module of an allocation at the end of the step in which it was made (its phases must
 * still be there), and copies the ids of its phases. Nothing that happens later changes it but a tag.
 */
void sl_attribute(struct sl_allocation *allocation, const struct sl_step_facts *facts);

/* Whether it has a size that PyTorch gives workspaces of cuBLAS or cuBLASLt by default; tensors may have it too. */
bool sl_has_workspace_size(const struct sl_allocation *allocation);

/*
 * Lets the user's rules have their say about an allocation that sl_attribute has decided and no tag has: the rule of
 * the innermost range around it, else that of its module, when it outlives the phase that made it.
 */
void sl_attribute_by_user(struct sl_allocation *allocation, const struct sl_phases *phases);

#endif
