/* Changes the number of ranks that FSDP2 shards over. */
#include "change_world_size.h"

#include "storage/predict/shards/optimizer_parts.h"
#include "storage/predict/shards/unit_sizes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct change {
  struct sl_tape *tape;
  const struct sl_shards *shards;
  struct sl_error *error;
  uint64_t from, to;
  struct sl_unit_sizes sizes;
  uint32_t *parts;      /* of each allocation, from the optimizer: 1 + index of sl_shards.parameters */
  uint64_t last_reduce; /* event, of the period that is looked at */
  uint64_t first_shard; /* event */
  uint64_t doubt_bytes; /* that the program made, which may depend on it */
  size_t doubt_count;
  int64_t doubt_step;
  size_t shards_found;
};

static bool is_category(const struct change *c, const struct sl_tape_allocation *a, const char *name) {
  return sl_tape_is(&c->tape->categories, a->category, name);
}

static bool is_phase(const struct change *c, const struct sl_tape_allocation *a, const char *name) {
  return sl_tape_is(&c->tape->phases, a->phase, name);
}

/* ---- whether the rules are known to hold ---- */

static int parameter_check(const struct change *c, const struct sl_shard_parameter *p) {
  if (!p->unit && p->ranks == 1)
    return 0; /* whole on every rank */
  const char *what = !p->unit              ? "is split, but not by FSDP2"
                     : p->ranks != c->from ? "is not split by its first dimension over all ranks"
                     : !p->element_bytes   ? "is of a type that is not known"
                     : p->is_offloaded     ? "is in the host's memory"
                     : sl_shard_own(p, c->from, c->shards->rank) != p->local_rows * p->row_elements
                         ? "is split in another way than FSDP2 does"
                     : !sl_shard_own(p, c->from, c->shards->rank) || !sl_shard_own(p, c->to, c->shards->rank)
                         ? "would have no part here, and what is made of none is not known"
                         : NULL;
  return what ? sl_error_set(c->error, -ENOTSUP, "%s %s", p->name, what) : 0;
}

static int rules_check(const struct change *c) {
  int r = sl_unit_sizes_check(&c->sizes);
  if (r == 0 && c->shards->rank >= c->to)
    return sl_error_set(c->error, -ENOTSUP, "of %" PRIu64 " ranks none is rank %" PRIu32, c->to, c->shards->rank);
  for (size_t i = 0; i < c->shards->parameter_count && r == 0; i++)
    r = parameter_check(c, &c->shards->parameters[i]);
  return r;
}

/* ---- allocation by allocation ---- */

static int shard_change(struct change *c, struct sl_tape_allocation *a) {
  for (size_t i = 0; a->parameter && i < c->shards->parameter_count; i++) {
    /* They come in the models' order, nearly. */
    const size_t at = (c->shards_found + i) % c->shards->parameter_count;
    const struct sl_shard_parameter *p = &c->shards->parameters[at];
    if (!p->unit || strcmp(p->name, c->tape->parameters.items[a->parameter - 1]) != 0)
      continue;
    c->shards_found = at + 1;
    return sl_unit_sizes_take(&c->sizes, a, "a shard", sl_shard_padded(p, c->from) * p->element_bytes,
                              sl_shard_padded(p, c->to) * p->element_bytes);
  }
  return sl_error_set(c->error, -ENOTSUP, "a shard is of no parameter whose shape was recorded");
}

static int part_change(struct change *c, struct sl_tape_allocation *a, uint32_t parameter) {
  const uint64_t bytes = c->shards->parameters[parameter].element_bytes;
  return sl_unit_sizes_take(&c->sizes, a, "the optimizer", sl_optimizer_elements(c->shards, parameter, c->from) * bytes,
                            sl_optimizer_elements(c->shards, parameter, c->to) * bytes);
}

/* ---- what may depend on it, for all that is known ---- */

static bool is_model_s(const struct change *c, uint64_t bytes) {
  for (size_t i = 0; i < c->shards->parameter_count; i++) {
    const struct sl_shard_parameter *p = &c->shards->parameters[i];
    if (p->rows * p->row_elements * p->element_bytes == bytes)
      return true;
  }
  return false;
}

static void doubt_note(struct change *c, const struct sl_tape_allocation *a) {
  static const char *const known[] = {"workspace", "input", "buffer", "param"};
  if (a->step >= 0 &&
      (a->alloc_event <= c->last_reduce || (*c->tape->phases.items[a->phase] && !is_phase(c, a, "step"))))
    return;
  if (a->alloc_event < c->first_shard)
    return;
  if (a->step < 0 && (*c->tape->phases.items[a->phase] || is_model_s(c, a->requested)))
    return;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (is_category(c, a, known[i]))
      return;
  if (!c->doubt_count++)
    c->doubt_step = a->step;
  c->doubt_bytes += a->requested;
}

static int allocation_change(struct change *c, uint32_t index) {
  static const char *const gathered[] = {"all_gather", "unsharded_param", "reduce_scatter", "sharded_grad"};
  struct sl_tape_allocation *a = &c->tape->allocations[index];
  if (sl_unit_sizes_has(&c->sizes, a))
    return sl_unit_sizes_change(&c->sizes, a);
  if (is_category(c, a, "sharded_param"))
    return shard_change(c, a);
  if (c->parts[index])
    return part_change(c, a, c->parts[index] - 1);
  for (size_t i = 0; i < sizeof gathered / sizeof gathered[0]; i++)
    if (is_category(c, a, gathered[i]))
      return sl_error_set(c->error, -ENOTSUP, "something is gathered or reduced outside of FSDP2's own phases");
  if (!a->optimizer_step)
    doubt_note(c, a);
  return 0;
}

/* Before it nothing is split, so nothing depends on over how many. */
static uint64_t first_shard(const struct change *c) {
  for (size_t i = 0; i < c->tape->allocation_count; i++)
    if (is_category(c, &c->tape->allocations[i], "sharded_param"))
      return c->tape->allocations[i].alloc_event;
  return 0;
}

static int allocations_change(struct change *c) {
  struct sl_tape *tape = c->tape;
  c->first_shard = first_shard(c);
  int64_t step = INT64_MIN;
  int r = 0;
  for (uint32_t i = 0; i < tape->allocation_count && r == 0; i++) {
    const struct sl_tape_allocation *a = &tape->allocations[i];
    if (a->step != step) { /* another one begins */
      step = a->step;
      c->last_reduce = 0;
      for (uint32_t j = i; j < tape->allocation_count && tape->allocations[j].step == step; j++)
        if (is_phase(c, &tape->allocations[j], "reduce"))
          c->last_reduce = tape->allocations[j].alloc_event;
      if (!c->last_reduce)
        c->last_reduce = UINT64_MAX; /* none: nothing of it comes after backward, or there is no gradient */
    }
    if (!a->dropped)
      r = allocation_change(c, i);
  }
  return r;
}

int sl_change_world_size(struct sl_tape *tape, const struct sl_shards *shards, uint64_t ranks, struct sl_error *error) {
  struct change c = {.tape = tape, .shards = shards, .error = error};
  const uint64_t replicas = sl_shards_replicas(shards);
  if (ranks % replicas)
    return sl_error_set(error, -ENOTSUP, "%" PRIu64 " ranks are not %" PRIu64 " groups of as many (HSDP)", ranks,
                        replicas);
  c.to = ranks / replicas;
  c.from = tape->world_size > 0 ? (uint64_t)tape->world_size / replicas : 0;
  c.sizes = (struct sl_unit_sizes){.tape = tape,
                                   .before = shards,
                                   .after = shards,
                                   .from = c.from,
                                   .to = c.to,
                                   .replicas = replicas,
                                   .error = error};
  int r = rules_check(&c);
  if (r < 0)
    return r;
  c.parts = calloc(tape->allocation_count + 1, sizeof *c.parts);
  r = c.parts ? sl_unit_sizes_begin(&c.sizes) : sl_no_memory(error);
  r = r < 0 ? r : sl_optimizer_parts(tape, shards, c.from, c.parts, error);
  if (r == 0)
    r = allocations_change(&c);
  if (r == 0 && !c.sizes.changed)
    r = sl_error_set(error, -ENOTSUP, "none of what FSDP2 makes was recorded");
  if (r == 0 && c.doubt_count)
    sl_tape_doubt(
        tape, "%" PRIu64 " bytes in %zu allocations of the program itself, the first %s, are taken not to depend on it",
        c.doubt_bytes, c.doubt_count, c.doubt_step < 0 ? "outside of steps" : "after backward");
  sl_unit_sizes_end(&c.sizes);
  free(c.parts);
  if (r == 0 && c.to == 1)
    sl_tape_sort(tape);
  return r;
}
