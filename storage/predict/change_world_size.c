#include "change_world_size.h"

#include "optimizer_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct progress { /* of a unit: what it makes next */
  size_t copied, reduced;
};

struct change {
  struct sl_tape *tape;
  const struct sl_shards *shards;
  struct sl_error *error;
  uint64_t from, to;
  struct progress *units;
  uint32_t *parts;      /* of each allocation, from the optimizer: 1 + index of sl_shards.parameters */
  uint64_t last_reduce; /* event, of the period that is looked at */
  uint64_t first_shard; /* event */
  uint64_t doubt_bytes; /* that the program made, which may depend on it */
  size_t doubt_count;
  int64_t doubt_step;
  size_t shards_found, changed;
};

static int refuse(const struct change *c, const struct sl_tape_allocation *a, const char *what, uint64_t bytes,
                  uint64_t expected) {
  char where[40];
  if (a->step < 0)
    snprintf(where, sizeof where, "outside of steps");
  else
    snprintf(where, sizeof where, "in step %" PRId64, a->step);
  return sl_error_set(c->error, -ENOTSUP,
                      "%s %s takes %" PRIu64 " bytes where FSDP2's rules say %" PRIu64 " of its own %" PRIu64
                      " ranks, so they are not what it does",
                      where, what, bytes, expected, c->from);
}

static bool is_category(const struct change *c, const struct sl_tape_allocation *a, const char *name) {
  return sl_tape_is(&c->tape->categories, a->category, name);
}

static bool is_phase(const struct change *c, const struct sl_tape_allocation *a, const char *name) {
  return sl_tape_is(&c->tape->phases, a->phase, name);
}

/* ---- whether the rules are known to hold ---- */

static int unit_check(const struct change *c, const struct sl_shard_unit *unit) {
  const char *what = unit->ranks != c->from ? "not all ranks share its parameters"
                     : unit->replicas != 1  ? "its parameters are copied, too (HSDP)"
                     : unit->reshard_ranks != 1 && unit->reshard_ranks != c->from ? "it is resharded to fewer ranks"
                     : unit->groups != 1                                          ? "it gathers in several groups"
                     : unit->is_offloaded ? "its parameters are in the host's memory"
                     : !unit->count       ? "its parameters were not recorded"
                                          : NULL;
  return what ? sl_error_set(c->error, -ENOTSUP, "of a unit of FSDP2, %s", what) : 0;
}

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
  if (!c->shards->parameter_count)
    return sl_error_set(c->error, -ENOTSUP, "shapes of its parameters were not recorded, as of now they are");
  if (!c->shards->unit_count)
    return sl_error_set(c->error, -ENOTSUP, "it has no unit of FSDP2 (fully_shard)");
  if (c->from < 2 || c->to < 2)
    return sl_error_set(c->error, -ENOTSUP, "with one rank FSDP2 gathers nothing, which is another order of events");
  if (c->shards->rank >= c->to)
    return sl_error_set(c->error, -ENOTSUP, "of %" PRIu64 " ranks none is rank %" PRIu32, c->to, c->shards->rank);
  if (!c->shards->multiprocessors || !c->shards->multiprocessor_threads)
    return sl_error_set(c->error, -ENOTSUP, "how many multiprocessors its device has was not recorded");
  int r = 0;
  for (size_t i = 0; i < c->shards->unit_count && r == 0; i++)
    r = unit_check(c, &c->shards->units[i]);
  for (size_t i = 0; i < c->shards->parameter_count && r == 0; i++)
    r = parameter_check(c, &c->shards->parameters[i]);
  return r;
}

/* ---- allocation by allocation ---- */

static int take(struct change *c, struct sl_tape_allocation *a, const char *what, uint64_t before, uint64_t after) {
  if (a->requested != before)
    return refuse(c, a, what, a->requested, before);
  a->requested = after;
  c->changed++;
  return 0;
}

static int gather_change(struct change *c, struct sl_tape_allocation *a, const struct sl_shard_unit *unit) {
  const uint64_t cast = sl_unit_cast(c->shards, unit, c->from);
  if (cast && a->requested == cast)
    return take(c, a, "a cast before gathering", cast, sl_unit_cast(c->shards, unit, c->to));
  return take(c, a, "a gather buffer", sl_unit_gather(c->shards, unit, c->from),
              sl_unit_gather(c->shards, unit, c->to));
}

static int copy_change(struct change *c, struct sl_tape_allocation *a, const struct sl_shard_unit *unit,
                       struct progress *at) {
  const size_t place = at->copied++;
  if (place < unit->count)
    return take(c, a, "a gathered parameter", sl_unit_gathered(c->shards, unit, place, c->from),
                sl_unit_gathered(c->shards, unit, place, c->to));
  at->copied = 0;
  return take(c, a, "the table of a copy", sl_unit_copy_table(c->shards, unit, c->from),
              sl_unit_copy_table(c->shards, unit, c->to));
}

static int reduce_change(struct change *c, struct sl_tape_allocation *a, const struct sl_shard_unit *unit,
                         struct progress *at) {
  static const struct {
    const char *name;
    uint64_t (*bytes)(const struct sl_shards *, const struct sl_shard_unit *, uint64_t);
  } made[] = {{"a reduce buffer", sl_unit_reduce_input},
              {"the table of a reduction", sl_unit_reduce_table},
              {"a reduced gradient", sl_unit_reduce_output},
              {"a reduced gradient's cast", sl_unit_reduce_cast}};
  const size_t count = sl_unit_reduce_cast(c->shards, unit, c->from) ? 4 : 3, place = at->reduced;
  at->reduced = (place + 1) % count;
  return take(c, a, made[place].name, made[place].bytes(c->shards, unit, c->from),
              made[place].bytes(c->shards, unit, c->to));
}

static int unit_change(struct change *c, struct sl_tape_allocation *a) {
  const struct sl_shard_unit *unit = sl_shards_unit(c->shards, a->module_id);
  if (!unit)
    return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " something is gathered or reduced for no unit of FSDP2",
                        a->step);
  struct progress *at = &c->units[unit - c->shards->units];
  if (is_phase(c, a, "unshard"))
    return gather_change(c, a, unit);
  return is_phase(c, a, "reduce") ? reduce_change(c, a, unit, at) : copy_change(c, a, unit, at);
}

static int shard_change(struct change *c, struct sl_tape_allocation *a) {
  for (size_t i = 0; a->parameter && i < c->shards->parameter_count; i++) {
    /* They come in the models' order, nearly. */
    const size_t at = (c->shards_found + i) % c->shards->parameter_count;
    const struct sl_shard_parameter *p = &c->shards->parameters[at];
    if (!p->unit || strcmp(p->name, c->tape->parameters.items[a->parameter - 1]) != 0)
      continue;
    c->shards_found = at + 1;
    return take(c, a, "a shard", sl_shard_padded(p, c->from) * p->element_bytes,
                sl_shard_padded(p, c->to) * p->element_bytes);
  }
  return sl_error_set(c->error, -ENOTSUP, "a shard is of no parameter whose shape was recorded");
}

static int part_change(struct change *c, struct sl_tape_allocation *a, uint32_t parameter) {
  const uint64_t bytes = c->shards->parameters[parameter].element_bytes;
  return take(c, a, "the optimizer", sl_optimizer_elements(c->shards, parameter, c->from) * bytes,
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
  if (is_phase(c, a, "unshard") || is_phase(c, a, "unshard_copy_out") || is_phase(c, a, "reduce"))
    return unit_change(c, a);
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
  struct change c = {.tape = tape, .shards = shards, .error = error, .to = ranks};
  c.from = tape->world_size > 0 ? (uint64_t)tape->world_size : 0;
  int r = rules_check(&c);
  if (r < 0)
    return r;
  c.units = calloc(shards->unit_count + 1, sizeof *c.units);
  c.parts = calloc(tape->allocation_count + 1, sizeof *c.parts);
  r = c.units && c.parts ? sl_optimizer_parts(tape, shards, c.from, c.parts, error) : -ENOMEM;
  if (r == 0)
    r = allocations_change(&c);
  if (r == 0 && !c.changed)
    r = sl_error_set(error, -ENOTSUP, "none of what FSDP2 makes was recorded");
  if (r == 0 && c.doubt_count)
    snprintf(tape->doubt, sizeof tape->doubt,
             "%" PRIu64 " bytes in %zu allocations of the program itself, the first %s, are taken not to depend on it",
             c.doubt_bytes, c.doubt_count, c.doubt_step < 0 ? "outside of steps" : "after backward");
  free(c.units);
  free(c.parts);
  return r;
}
