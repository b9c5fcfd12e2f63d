/* Changes the sizes of what FSDP2's units allocate, once the recorded ones are proven. */
#include "unit_sizes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_phase(const struct sl_unit_sizes *c, const struct sl_tape_allocation *a, const char *name) {
  return sl_tape_is(&c->tape->phases, a->phase, name);
}

int sl_unit_sizes_begin(struct sl_unit_sizes *c) {
  c->progress = calloc(c->before->unit_count + 1, sizeof *c->progress);
  return c->progress ? 0 : sl_no_memory(c->error);
}

void sl_unit_sizes_end(struct sl_unit_sizes *c) {
  free(c->progress);
  c->progress = NULL;
}

static int unit_check(const struct sl_unit_sizes *c, const struct sl_shard_unit *unit) {
  const bool is_alone = c->to == 1;
  const char *what = unit->ranks != c->from ? "not all ranks share its parameters"
                     : unit->replicas != c->replicas
                         ? "there are not as many copies of its parameters as of others (HSDP)"
                     : unit->reshard_ranks != 1 && unit->reshard_ranks != c->from ? "it is resharded to fewer ranks"
                     : unit->groups != 1                                          ? "it gathers in several groups"
                     : unit->is_offloaded ? "its parameters are in the host's memory"
                     : !unit->count       ? "its parameters were not recorded"
                     : is_alone && c->replicas > 1
                         ? "copies on several ranks (HSDP) that are not split are made in an order that is not known"
                     : is_alone && sl_unit_cast(c->before, unit, c->from)
                         ? "parameters are cast before they are gathered, which one rank does in another order"
                         : NULL;
  return what ? sl_error_set(c->error, -ENOTSUP, "of a unit of FSDP2, %s", what) : 0;
}

int sl_unit_sizes_check(const struct sl_unit_sizes *c) {
  if (!c->before->parameter_count)
    return sl_error_set(c->error, -ENOTSUP, "no unit of FSDP2 (fully_shard) was recorded with its shapes");
  if (!c->before->unit_count)
    return sl_error_set(c->error, -ENOTSUP, "it has no unit of FSDP2 (fully_shard)");
  if (c->from < 2)
    return sl_error_set(c->error, -ENOTSUP,
                        "with one rank FSDP2 gathers nothing, so when it would with more is not in the record");
  if (!c->before->multiprocessors || !c->before->multiprocessor_threads)
    return sl_error_set(c->error, -ENOTSUP, "how many multiprocessors its device has was not recorded");
  int r = 0;
  for (size_t i = 0; i < c->before->unit_count && r == 0; i++)
    r = unit_check(c, &c->before->units[i]);
  return r;
}

bool sl_unit_sizes_has(const struct sl_unit_sizes *c, const struct sl_tape_allocation *a) {
  return is_phase(c, a, "unshard") || is_phase(c, a, "unshard_copy_out") || is_phase(c, a, "reduce");
}

static int refuse(const struct sl_unit_sizes *c, const struct sl_tape_allocation *a, const char *what, uint64_t bytes,
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

int sl_unit_sizes_take(struct sl_unit_sizes *c, struct sl_tape_allocation *a, const char *what, uint64_t before,
                       uint64_t after) {
  if (a->requested != before)
    return refuse(c, a, what, a->requested, before);
  a->requested = after;
  c->changed++;
  return 0;
}

/* One rank has all there is. */
static int leave_out(struct sl_unit_sizes *c, struct sl_tape_allocation *a, const char *what, uint64_t before) {
  a->dropped = true;
  return sl_unit_sizes_take(c, a, what, before, before);
}

static int gather_change(struct sl_unit_sizes *c, struct sl_tape_allocation *a, const struct sl_shard_unit *before,
                         const struct sl_shard_unit *after) {
  const uint64_t cast = sl_unit_cast(c->before, before, c->from);
  if (cast && a->requested == cast)
    return sl_unit_sizes_take(c, a, "a cast before gathering", cast, sl_unit_cast(c->after, after, c->to));
  if (c->to == 1)
    return leave_out(c, a, "a gather buffer", sl_unit_gather(c->before, before, c->from));
  return sl_unit_sizes_take(c, a, "a gather buffer", sl_unit_gather(c->before, before, c->from),
                            sl_unit_gather(c->after, after, c->to));
}

static int copy_change(struct sl_unit_sizes *c, struct sl_tape_allocation *a, const struct sl_shard_unit *before,
                       const struct sl_shard_unit *after, struct sl_unit_progress *at) {
  const size_t place = at->copied++;
  if (place < before->count)
    return sl_unit_sizes_take(c, a, "a gathered parameter", sl_unit_gathered(c->before, before, place, c->from),
                              sl_unit_gathered(c->after, after, place, c->to));
  at->copied = 0;
  if (c->to == 1)
    return leave_out(c, a, "the table of a copy", sl_unit_copy_table(c->before, before, c->from));
  return sl_unit_sizes_take(c, a, "the table of a copy", sl_unit_copy_table(c->before, before, c->from),
                            sl_unit_copy_table(c->after, after, c->to));
}

static int reduce_change(struct sl_unit_sizes *c, struct sl_tape_allocation *a, const struct sl_shard_unit *before,
                         const struct sl_shard_unit *after, struct sl_unit_progress *at) {
  static const struct {
    const char *name;
    uint64_t (*bytes)(const struct sl_shards *, const struct sl_shard_unit *, uint64_t);
  } made[] = {{"a reduce buffer", sl_unit_reduce_input},
              {"the table of a reduction", sl_unit_reduce_table},
              {"a reduced gradient", sl_unit_reduce_output},
              {"a reduced gradient's cast", sl_unit_reduce_cast}};
  const size_t count = sl_unit_reduce_cast(c->before, before, c->from) ? 4 : 3, place = at->reduced;
  at->reduced = (place + 1) % count;
  return sl_unit_sizes_take(c, a, made[place].name, made[place].bytes(c->before, before, c->from),
                            made[place].bytes(c->after, after, c->to));
}

int sl_unit_sizes_change(struct sl_unit_sizes *c, struct sl_tape_allocation *a) {
  const struct sl_shard_unit *before = sl_shards_unit(c->before, a->module_id);
  if (!before)
    return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " something is gathered or reduced for no unit of FSDP2",
                        a->step);
  const size_t number = (size_t)(before - c->before->units);
  const struct sl_shard_unit *after = &c->after->units[number];
  struct sl_unit_progress *at = &c->progress[number];
  if (is_phase(c, a, "unshard"))
    return gather_change(c, a, before, after);
  return is_phase(c, a, "reduce") ? reduce_change(c, a, before, after, at) : copy_change(c, a, before, after, at);
}
