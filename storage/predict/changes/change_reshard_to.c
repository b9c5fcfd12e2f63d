/* Reshards to groups of N ranks after forward. */
#include "change_reshard_to.h"

#include "storage/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct round { /* of a unit: what it has gathered for forward, then for backward */
  uint32_t *forward, *parts;
  size_t forward_count, part_count, freed, backward;
  int64_t tid; /* forward's */
  uint32_t table;
};

struct change {
  struct sl_tape *tape;
  const struct sl_shards *shards;
  struct sl_error *error;
  uint64_t ranks, kept;
  struct round *rounds; /* of each unit */
  size_t changed;
};

static int refuse(const struct change *c, const struct sl_tape_allocation *a, const char *what) {
  return sl_error_set(c->error, -ENOTSUP, "in step %" PRId64 " a unit of FSDP2 %s", a->step, what);
}

static int check(const struct change *c) {
  if (!c->shards->unit_count)
    return sl_error_set(c->error, -ENOTSUP, "no unit of FSDP2 (fully_shard) was recorded with its shapes");
  if (c->kept < 2 || c->kept >= c->ranks || c->ranks % c->kept)
    return sl_error_set(c->error, -ENOTSUP,
                        "FSDP2 reshards to a divisor of its %" PRIu64 " ranks, which %" PRIu64 " is not", c->ranks,
                        c->kept);
  for (size_t i = 0; i < c->shards->unit_count; i++) {
    const struct sl_shard_unit *unit = &c->shards->units[i];
    if (unit->replicas != 1 || unit->groups != 1 || unit->is_offloaded || !unit->count)
      return sl_error_set(c->error, -ENOTSUP, "a unit of FSDP2 is copied, in groups or in the host's memory");
    for (size_t place = 0; place < unit->count; place++)
      if (unit->reshard_ranks == unit->ranks && sl_unit_gathered(c->shards, unit, place, c->ranks) % c->kept)
        return sl_error_set(c->error, -ENOTSUP, "%s can't be divided by %" PRIu64,
                            c->shards->parameters[unit->parameters[place]].name, c->kept);
  }
  return 0;
}

static struct round *round_of(const struct change *c, const struct sl_tape_allocation *a) {
  const struct sl_shard_unit *unit = sl_shards_unit(c->shards, a->module_id);
  return unit && unit->reshard_ranks == unit->ranks ? &c->rounds[unit - c->shards->units] : NULL;
}

static const struct sl_shard_unit *unit_of(const struct change *c, const struct round *round) {
  return &c->shards->units[round - c->rounds];
}

static void round_end(struct round *round) {
  free(round->forward);
  free(round->parts);
  *round = (struct round){.table = UINT32_MAX};
}

/* ---- events ---- */

static int copied(struct change *c, struct round *round, uint32_t index) {
  struct sl_tape_allocation *a = &c->tape->allocations[index];
  const struct sl_shard_unit *unit = unit_of(c, round);
  const bool is_backward = round->freed && round->freed == round->forward_count;
  if (sl_tape_is(&c->tape->categories, a->category, "unsharded_param")) {
    if (is_backward && a->tid == round->tid)
      return refuse(c, a, "gathers twice for forward");
    round->backward += is_backward;
    round->tid = is_backward ? round->tid : a->tid;
    return is_backward ? 0 : sl_index_add(&round->forward, &round->forward_count, index);
  }
  if (a->requested != sl_unit_copy_table(c->shards, unit, c->ranks))
    return refuse(c, a, "copies in another way than is known");
  if (is_backward) {
    a->requested = sl_unit_parts_table(c->shards, unit, c->ranks, c->kept);
    round->table = index;
  }
  return 0;
}

/* The gather buffer is as large as before; a cast before it is of the parts. */
static int gathered(struct change *c, struct round *round, struct sl_tape_allocation *a) {
  const struct sl_shard_unit *unit = unit_of(c, round);
  const uint64_t gather = sl_unit_gather(c->shards, unit, c->ranks), cast = sl_unit_cast(c->shards, unit, c->ranks);
  if (a->requested != gather && a->requested != cast)
    return refuse(c, a, "gathers in another way than is known");
  if (round->freed && cast && a->requested == cast) {
    a->requested = cast * c->ranks / c->kept;
    sl_tape_doubt(c->tape, "what is cast of resharded parameters is taken from FSDP2's code alone");
  }
  return 0;
}

/* Its part is made before what was gathered goes. */
static int part_put(struct change *c, struct round *round, uint32_t index, uint64_t number) {
  struct sl_tape_allocation like = c->tape->allocations[index];
  uint32_t part = 0;
  like.free_event = 1; /* has an end, by events that are put */
  round->freed++;
  int r = sl_tape_category(c->tape, "sharded_param", &like.category);
  r = r < 0 ? r : sl_tape_add(c->tape, &like, like.requested / c->kept, &part);
  r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_alloc, part, number, -1);
  return r < 0 ? r : sl_index_add(&round->parts, &round->part_count, part);
}

static int parts_end(struct change *c, struct round *round, uint64_t number) {
  int32_t offset = 0;
  int r = 0;
  for (size_t i = 0; i < round->part_count && r == 0; i++) {
    r = sl_tape_put(c->tape, SL_TAPE_free, round->parts[i], number, ++offset);
    r = r < 0 ? r : sl_tape_put(c->tape, SL_TAPE_complete, round->parts[i], number, ++offset);
  }
  c->changed++;
  round_end(round);
  return r;
}

static int event_change(struct change *c, const struct sl_tape_event *event) {
  if (event->kind == SL_TAPE_segment)
    return 0;
  struct sl_tape_allocation *a = &c->tape->allocations[event->index];
  const bool is_copy = sl_tape_is(&c->tape->phases, a->phase, "unshard_copy_out");
  struct round *round = is_copy || sl_tape_is(&c->tape->phases, a->phase, "unshard") ? round_of(c, a) : NULL;
  if (!round)
    return 0;
  if (event->kind == SL_TAPE_alloc)
    return is_copy ? copied(c, round, event->index) : gathered(c, round, a);
  if (event->kind == SL_TAPE_complete)
    return event->index == round->table ? parts_end(c, round, event->number) : 0;
  if (round->freed < round->forward_count && round->forward[round->freed] == event->index)
    return part_put(c, round, event->index, event->number);
  return 0;
}

int sl_change_reshard_to(struct sl_tape *tape, const struct sl_shards *shards, uint64_t ranks, uint64_t kept_ranks,
                         struct sl_error *error) {
  struct change c = {.tape = tape, .shards = shards, .error = error, .ranks = ranks, .kept = kept_ranks};
  int r = check(&c);
  if (r < 0)
    return r;
  c.rounds = calloc(shards->unit_count + 1, sizeof *c.rounds);
  r = c.rounds ? 0 : -ENOMEM;
  for (size_t i = 0; i < shards->unit_count && r == 0; i++)
    c.rounds[i].table = UINT32_MAX;
  const size_t events = tape->event_count;
  for (size_t i = 0; i < events && r == 0; i++) {
    const struct sl_tape_event event = tape->events[i];
    r = event_change(&c, &event);
  }
  for (size_t i = 0; i < shards->unit_count && c.rounds; i++) {
    if (r == 0 && c.rounds[i].part_count)
      r = sl_error_set(error, -ENOTSUP, "a unit of FSDP2 has a forward without a backward");
    round_end(&c.rounds[i]);
  }
  if (r == 0 && !c.changed)
    r = sl_error_set(error, -ENOTSUP, "no unit of FSDP2 reshards to all ranks after forward");
  if (r == 0)
    sl_tape_sort(tape);
  free(c.rounds);
  return r;
}
