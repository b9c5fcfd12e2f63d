/*
 * Phases are looked through from the inside out, and the first that says something decides. What outlived what is
 * known: the step has ended.
 */
#include "attribution.h"

const struct sl_rule_info sl_rules[SL_RULE_count] = {
#define RULE(name, category, detail, meaning) {#name, SL_CATEGORY_##category, detail, meaning},
#include "attribution_rules.def"
#undef RULE
};

/* What PyTorch gives cuBLAS by default: 32 MiB from compute capability 9.0 on, :4096:2:16:8 before. */
static const uint64_t cublas_workspace_bytes[] = {32u * 1024 * 1024, 8519680};
/* And cuBLASLt. */
static const uint64_t cublaslt_workspace_bytes = 1024 * 1024;

static bool has_cublas_size(const struct sl_allocation *allocation) {
  for (size_t i = 0; i < sizeof cublas_workspace_bytes / sizeof cublas_workspace_bytes[0]; i++)
    if (allocation->requested_bytes == cublas_workspace_bytes[i])
      return true;
  return false;
}

bool sl_has_workspace_size(const struct sl_allocation *allocation) {
  return has_cublas_size(allocation) || allocation->requested_bytes == cublaslt_workspace_bytes;
}

static bool outlives(const struct sl_allocation *allocation, const struct sl_phase *phase) {
  return allocation->free_at == 0 || (phase->end_at != 0 && allocation->free_at > phase->end_at);
}

/* Alive at the first of these positions that comes after its allocation. false when none comes. */
static bool alive_at_next(const struct sl_allocation *allocation, const uint64_t *positions, size_t count) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (positions[middle] > allocation->alloc_at)
      high = middle;
    else
      low = middle + 1;
  }
  return low < count && (allocation->free_at == 0 || allocation->free_at > positions[low]);
}

static bool any_after(const struct sl_allocation *allocation, const uint64_t *positions, size_t count) {
  return count > 0 && positions[count - 1] > allocation->alloc_at;
}

/* Alive when the optimizer steps; where none does after it, that is not known. */
static bool is_there_to_step(const struct sl_allocation *allocation, const struct sl_step_facts *facts) {
  return alive_at_next(allocation, facts->optimizer_starts, facts->optimizer_start_count) ||
         !any_after(allocation, facts->optimizer_starts, facts->optimizer_start_count);
}

static struct sl_phase *whole_backward_of(struct sl_phase *phase) {
  for (; phase; phase = phase->parent)
    if (phase->kind == SL_KIND_backward && phase->module == 0)
      return phase;
  return NULL;
}

/* PyTorch keeps one for each thread (a handle of cuBLAS) and stream; others of this size are tensors. */
static bool is_first_workspace(const struct sl_allocation *allocation, struct sl_workspaces *known) {
  const uint64_t owner = (uint64_t)allocation->thread << 32 | allocation->place;
  for (size_t i = 0; i < known->count; i++)
    if (known->owners[i] == owner)
      return false;
  if (known->count == sizeof known->owners / sizeof known->owners[0])
    return false;
  known->owners[known->count++] = owner;
  return true;
}

/* For recordings without PyTorch's table of them: by size, and by what is known of how PyTorch makes them. */
static bool is_cublas_workspace(const struct sl_allocation *allocation, const struct sl_step_facts *facts) {
  if (!facts->workspaces || allocation->free_at != 0 || allocation->step > 1 || allocation->tag_category >= 0)
    return false;
  /* An untagged gradient could have this size by chance; once gradients carry tags, what has none is no gradient. */
  if (sl_phase_enclosing(allocation->phase, SL_KIND_backward) && !facts->gradients_tagged)
    return false;
  return has_cublas_size(allocation) && is_first_workspace(allocation, facts->workspaces);
}

/*
 * Of a step in which no optimizer steps: what outlives the backward pass and is not used up in another one. Where the
 * log ends in the step, an error may have let go of what was in use.
 */
static bool is_kept_without_optimizer(const struct sl_allocation *allocation, const struct sl_step_facts *facts,
                                      const struct sl_phase *backward) {
  return allocation->step >= 0 && facts->optimizer_start_count == 0 && !facts->cut_off && allocation->free_at != 0 &&
         backward && outlives(allocation, backward) && !whole_backward_of(allocation->free_phase);
}

static enum sl_attribution_rule rule_in_backward(const struct sl_allocation *allocation,
                                                 const struct sl_step_facts *facts) {
  if (allocation->free_phase && sl_phase_enclosing_point(allocation->free_phase, SL_POINT_reduce_scatter))
    return SL_RULE_freed_in_reduce;
  if (allocation->free_phase && sl_phase_enclosing_point(allocation->free_phase, SL_POINT_root_callback))
    return SL_RULE_freed_in_root_callback;
  if (is_cublas_workspace(allocation, facts))
    return SL_RULE_cublas_workspace;
  if (alive_at_next(allocation, facts->optimizer_starts, facts->optimizer_start_count))
    return SL_RULE_backward_gradient;
  const struct sl_phase *backward = whole_backward_of(allocation->phase);
  if (is_kept_without_optimizer(allocation, facts, backward))
    return SL_RULE_backward_kept;
  if (allocation->free_at != 0 || any_after(allocation, facts->optimizer_starts, facts->optimizer_start_count))
    return SL_RULE_backward_temp;
  return facts->cut_off && backward && backward->end_at == 0 ? SL_RULE_backward_in_flight : SL_RULE_backward_survivor;
}

static enum sl_attribution_rule rule_in_reduce(const struct sl_allocation *allocation, struct sl_phase *reduce) {
  if (!outlives(allocation, reduce))
    return SL_RULE_fsdp_reduce_staging;
  const struct sl_phase *backward = whole_backward_of(reduce);
  bool survives = backward ? outlives(allocation, backward) : allocation->free_at == 0;
  return survives ? SL_RULE_fsdp_sharded_grad : SL_RULE_fsdp_reduce_scatter;
}

static enum sl_attribution_rule rule_outside_modules(const struct sl_allocation *allocation,
                                                     const struct sl_step_facts *facts) {
  if (allocation->step < 0)
    /* Where no step follows, everything is freed as the process ends. */
    return !facts->modules_known                         ? SL_RULE_none
           : allocation->free_at == 0 || facts->step < 0 ? SL_RULE_program_kept
                                                         : SL_RULE_program_temp;
  if (is_cublas_workspace(allocation, facts))
    return SL_RULE_cublas_workspace;
  if (allocation->free_at == 0)
    return facts->cut_off ? SL_RULE_step_activation : SL_RULE_step_survivor;
  return alive_at_next(allocation, facts->backward_starts, facts->backward_start_count) ? SL_RULE_step_activation
                                                                                        : SL_RULE_step_temp;
}

/* Made outside of steps and alive after the outermost call of a module around it, which has ended. */
static bool is_kept_output(const struct sl_allocation *allocation, const struct sl_phase *phase) {
  const struct sl_phase *call = phase;
  for (; phase; phase = phase->parent)
    if (phase->kind == SL_KIND_forward || phase->kind == SL_KIND_eval)
      call = phase;
  return allocation->step < 0 && call->end_at != 0 && outlives(allocation, call);
}

/* The first phase outwards that says something decides; *by is that phase. */
static enum sl_attribution_rule rule_by_phase(const struct sl_allocation *allocation, const struct sl_step_facts *facts,
                                              struct sl_phase **by) {
  for (struct sl_phase *phase = allocation->phase; phase; phase = phase->parent) {
    *by = phase;
    switch (phase->point) {
    case SL_POINT_all_gather:
      return outlives(allocation, phase) ? SL_RULE_fsdp_all_gather : SL_RULE_fsdp_all_gather_cast;
    case SL_POINT_copy_out: return outlives(allocation, phase) ? SL_RULE_fsdp_copy_out : SL_RULE_fsdp_copy_out_temp;
    case SL_POINT_fsdp1_unshard:
      return outlives(allocation, phase) ? SL_RULE_fsdp1_unshard : SL_RULE_fsdp1_unshard_temp;
    case SL_POINT_pre_forward:
    case SL_POINT_pre_backward:
      if (outlives(allocation, phase))
        return SL_RULE_fsdp_only_shard;
      continue;
    case SL_POINT_inputs: return SL_RULE_fsdp_inputs;
    case SL_POINT_ddp_buckets: /* PyTorch's own range of this name is the whole forward, activations included */
      if (outlives(allocation, phase) && is_there_to_step(allocation, facts))
        return SL_RULE_ddp_bucket;
      continue;
    case SL_POINT_accumulate:
      if (outlives(allocation, phase))
        return SL_RULE_fsdp_accumulate;
      continue;
    case SL_POINT_reduce_scatter: return rule_in_reduce(allocation, phase);
    default: break;
    }
    switch (phase->kind) {
    case SL_KIND_optimizer_step: return outlives(allocation, phase) ? SL_RULE_optimizer_state : SL_RULE_optimizer_temp;
    case SL_KIND_recompute: return outlives(allocation, phase) ? SL_RULE_recompute_activation : SL_RULE_recompute_temp;
    case SL_KIND_forward:
    case SL_KIND_eval:
      if (!outlives(allocation, phase))
        return SL_RULE_forward_temp;
      if (is_cublas_workspace(allocation, facts))
        return SL_RULE_cublas_workspace;
      if (is_kept_output(allocation, phase))
        return SL_RULE_call_output;
      /* Where the log ends within a forward, what is alive is in use, also in an evaluation between steps. */
      return allocation->free_at == 0 && !facts->cut_off && phase->end_at ? SL_RULE_forward_survivor
                                                                          : SL_RULE_forward_activation;
    case SL_KIND_backward: return rule_in_backward(allocation, facts);
    default: break; /* steps, user ranges, prefetches and the like say nothing by themselves */
    }
  }
  *by = NULL;
  return rule_outside_modules(allocation, facts);
}

void sl_attribute(struct sl_allocation *allocation, const struct sl_step_facts *facts) {
  struct sl_phase *by = NULL;
  enum sl_attribution_rule rule = allocation->workspace  ? SL_RULE_cublas_workspace
                                  : allocation->dropped  ? SL_RULE_dropped
                                  : allocation->restored ? SL_RULE_restored
                                  : allocation->unplaced ? SL_RULE_none
                                                         : rule_by_phase(allocation, facts, &by);
  allocation->phase_kind = by ? by->kind : allocation->phase ? allocation->phase->kind : SL_KIND_none;
  allocation->module =
      sl_phase_module(rule == SL_RULE_freed_in_reduce || rule == SL_RULE_freed_in_root_callback ? allocation->free_phase
                                                                                                : allocation->phase);
  if (rule == SL_RULE_cublas_workspace)
    allocation->module = 0; /* whoever came first made it, and everybody uses it */
  allocation->category = sl_rules[rule].category;
  if (allocation->tag_category >= 0) {
    rule = SL_RULE_tag;
    allocation->category = allocation->tag_category;
    if (allocation->tag_module)
      allocation->module = allocation->tag_module;
  }
  allocation->rule = (uint8_t)rule;
  allocation->phase_id = allocation->phase ? allocation->phase->id : 0;
  if (allocation->free_phase)
    allocation->free_phase_id = allocation->free_phase->id;
  allocation->decided = true;
}

/* The innermost phase that is more than a name. */
static const struct sl_phase *meaningful(const struct sl_phase *phase) {
  while (phase && phase->kind == SL_KIND_user)
    phase = phase->parent;
  return phase;
}

void sl_attribute_by_user(struct sl_allocation *allocation, const struct sl_phases *phases) {
  const struct sl_user_rule *rule = NULL;
  if (allocation->tag_category >= 0)
    return;
  if (allocation->note_rule) {
    allocation->category = allocation->note_rule->category;
    allocation->rule = SL_RULE_user_note;
    return;
  }
  for (const struct sl_phase *phase = allocation->phase; phase && !rule; phase = phase->parent)
    rule = phase->user_rule;
  if (rule) {
    allocation->category = rule->category;
    allocation->rule = SL_RULE_user_range;
    return;
  }
  const struct sl_module_info *module = sl_phases_module(phases, allocation->module);
  const struct sl_phase *made_in = meaningful(allocation->phase);
  if (!module || !module->user_rule || !(made_in ? outlives(allocation, made_in) : allocation->free_at == 0))
    return;
  allocation->category = module->user_rule->category;
  allocation->rule = SL_RULE_user_module;
}
