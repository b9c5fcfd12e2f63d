/* Changes the types that FSDP2 gathers, computes and reduces in. */
#include "change_mixed_precision.h"

#include "storage/predict/shards/unit_sizes.h"
#include "storage/predict/tape/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX };

struct change {
  struct sl_tape *tape;
  struct sl_unit_sizes sizes;
  uint64_t element, new_element; /* bytes, of what is gathered */
  bool at_most;
  struct sl_error *error;
  struct sl_tape_ends *ends;
  size_t scaled;
};

static struct sl_tape_allocation *allocation(const struct change *c, uint32_t index) {
  return &c->tape->allocations[index];
}

static bool is_phase(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->phases, allocation(c, index)->phase, name);
}

static bool is_category(const struct change *c, uint32_t index, const char *name) {
  return sl_tape_is(&c->tape->categories, allocation(c, index)->category, name);
}

/* ---- types ---- */

/* The bytes of an element that a unit gathers: of all parameters the same; 0: they differ, or are not known. */
static uint64_t gathered_element(const struct sl_shards *shards, const struct sl_shard_unit *unit) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < unit->count; i++) {
    const struct sl_shard_parameter *p = &shards->parameters[unit->parameters[i]];
    const uint64_t own = *unit->param_dtype ? sl_dtype_bytes(unit->param_dtype) : p->element_bytes;
    if (!own || (bytes && own != bytes))
      return 0;
    bytes = own;
  }
  return bytes;
}

static int types_take(struct change *c, const struct sl_shards *before, struct sl_shards *after, uint64_t ranks,
                      const char *dtype, const char *reduce_dtype) {
  c->new_element = sl_dtype_bytes(dtype);
  for (size_t i = 0; i < after->unit_count; i++) {
    struct sl_shard_unit *unit = &after->units[i];
    const uint64_t element = gathered_element(before, &before->units[i]);
    if (!element || (c->element && c->element != element))
      return sl_error_set(c->error, -ENOTSUP, "its parameters are not all gathered in one type");
    c->element = element;
    snprintf(unit->param_dtype, sizeof unit->param_dtype, "%s", dtype);
    snprintf(unit->reduce_dtype, sizeof unit->reduce_dtype, "%s", reduce_dtype);
    if (!sl_unit_reduce_cast(before, &before->units[i], ranks) != !sl_unit_reduce_cast(after, unit, ranks))
      return sl_error_set(
          c->error, -ENOTSUP,
          "with gradients reduced in %s FSDP2 casts them, or does not any more: when that ends is not in "
          "this record",
          reduce_dtype);
  }
  if (c->new_element == c->element)
    return sl_error_set(c->error, -ENOTSUP, "parameters are gathered in a type of %" PRIu64 " bytes already",
                        c->element);
  return 0;
}

/* ---- what FSDP2 makes ---- */

static int cast_add(struct change *c, uint32_t gather, uint64_t bytes) {
  struct sl_tape_allocation like = *allocation(c, gather);
  uint32_t cast = 0;
  like.free_event = 1; /* has an end, by events that are put */
  int r = sl_tape_add(c->tape, &like, bytes, &cast);
  r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_alloc, cast, like.alloc_event, -1);
  r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_free, cast, like.alloc_event, 1);
  return r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_complete, cast, like.alloc_event, 2);
}

/* A cast before gathering may be new, or go. */
static int unit_change(struct change *c, uint32_t index) {
  const struct sl_shard_unit *unit = sl_shards_unit(c->sizes.before, allocation(c, index)->module_id);
  uint64_t cast = 0, new_cast = 0;
  if (unit && is_phase(c, index, "unshard")) {
    cast = sl_unit_cast(c->sizes.before, unit, c->sizes.from);
    new_cast = sl_unit_cast(c->sizes.after, &c->sizes.after->units[unit - c->sizes.before->units], c->sizes.to);
  }
  const bool is_cast = cast && allocation(c, index)->requested == cast;
  int r = sl_unit_sizes_change(&c->sizes, allocation(c, index));
  if (r == 0 && is_cast)
    allocation(c, index)->dropped = !new_cast;
  else if (r == 0 && new_cast && !cast && (r = cast_add(c, index, new_cast)) < 0)
    r = sl_no_memory(c->error);
  return r;
}

/* ---- what the model makes ---- */

static uint64_t scaled(const struct change *c, uint64_t bytes) {
  return (bytes * c->new_element + c->element - 1) / c->element;
}

static bool is_activation(const struct change *c, uint32_t index) {
  static const char *const phases[] = {"forward", "backward", "recompute", "user", "step"};
  bool is_model_s = false;
  for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++)
    is_model_s |= is_phase(c, index, phases[i]);
  return is_model_s && allocation(c, index)->step >= 0 && !allocation(c, index)->optimizer_step &&
         !sl_is_staging(c->tape, index) && (is_category(c, index, "activation") || is_category(c, index, "temp"));
}

static void size_change(struct change *c, uint32_t index) {
  struct sl_tape_allocation *a = allocation(c, index);
  const bool is_larger = c->new_element > c->element;
  if (is_category(c, index, "unsharded_grad") || (is_activation(c, index) && c->at_most == is_larger)) {
    a->requested = scaled(c, a->requested);
    c->scaled++;
  }
}

/* A copy of it that lives as long, in float32: what the loss may cast it to. */
static int copy_add(struct change *c, uint32_t output) {
  struct sl_tape_allocation like = *allocation(c, output);
  const struct sl_tape_ends ends = c->ends[output];
  uint32_t copy = 0;
  if (ends.free == SIZE_MAX)
    return 0;
  int r = sl_tape_add(c->tape, &like, like.requested / c->element * sizeof(float), &copy);
  r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_alloc, copy, like.alloc_event, 1);
  r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_free, copy, c->tape->events[ends.free].number, 1);
  return r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_complete, copy, c->tape->events[ends.free].number, 2);
}

/* What forward made last before each backward, and is there still. */
static int outputs_copy(struct change *c) {
  const size_t events = c->tape->event_count;
  uint32_t last = NONE;
  int r = 0;
  for (size_t e = 0; e < events && r == 0; e++) {
    const struct sl_tape_event event = c->tape->events[e];
    if (event.kind == SL_TAPE_free && event.index == last && allocation(c, last)->step < 0)
      last = NONE;
    if (event.kind != SL_TAPE_alloc || event.index >= c->tape->recorded_count)
      continue;
    if (is_phase(c, event.index, "forward") && is_category(c, event.index, "activation")) {
      last = event.index;
    } else if (is_phase(c, event.index, "backward") && last != NONE) {
      r = copy_add(c, last);
      last = NONE;
    }
  }
  return r < 0 ? sl_no_memory(c->error) : 0;
}

/* ---- the whole ---- */

static int tape_change(struct change *c) {
  const size_t count = c->tape->allocation_count;
  int r = c->at_most && c->new_element < c->element ? outputs_copy(c) : 0;
  for (uint32_t i = 0; i < count && r == 0; i++) {
    if (allocation(c, i)->dropped)
      continue;
    if (sl_unit_sizes_has(&c->sizes, allocation(c, i)))
      r = unit_change(c, i);
    else
      size_change(c, i);
  }
  if (r == 0 && (!c->sizes.changed || !c->scaled))
    r = sl_error_set(c->error, -ENOTSUP, "no step of it was recorded");
  return r;
}

int sl_change_mixed_precision(struct sl_tape *tape, const struct sl_shards *before, struct sl_shards *after,
                              uint64_t ranks, const char *dtype, const char *reduce_dtype, bool at_most,
                              struct sl_error *error) {
  struct change c = {.tape = tape, .at_most = at_most, .error = error};
  c.sizes = (struct sl_unit_sizes){.tape = tape,
                                   .before = before,
                                   .after = after,
                                   .from = ranks,
                                   .to = ranks,
                                   .replicas = sl_shards_replicas(before),
                                   .error = error};
  int r = sl_unit_sizes_check(&c.sizes);
  r = r < 0 ? r : types_take(&c, before, after, ranks, dtype, reduce_dtype);
  if (r < 0)
    return r;
  c.ends = sl_tape_ends(tape);
  r = c.ends ? sl_unit_sizes_begin(&c.sizes) : sl_no_memory(error);
  r = r < 0 ? r : tape_change(&c);
  if (r == 0) {
    sl_tape_sort(tape);
    sl_tape_doubt(tape,
                  "types of activations are not recorded, nor what the program casts itself: they are taken at %s",
                  c.new_element < c.element ? "the new type at least, and as recorded with the output copied at most"
                                            : "what was recorded at least, and the new type at most");
  }
  sl_unit_sizes_end(&c.sizes);
  free(c.ends);
  return r;
}
